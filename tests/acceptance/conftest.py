"""A browser for all tests of pages, and pages that complain of nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from .browsing import Browsing, chromium


@pytest.fixture(scope="module")  # while it runs, no other event loop can in this thread
def browser() -> Iterator[Browser]:
    """A browser; each test has an empty profile of its own."""
    with chromium() as running:
        yield running


@pytest.fixture
def browsing(browser: Browser, tmp_path: Path) -> Iterator[Browsing]:
    """Pages that complain of nothing but of what a test expects."""
    pages = Browsing(browser, tmp_path)
    yield pages
    pages.end()

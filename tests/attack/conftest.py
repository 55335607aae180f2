"""What every attack needs: enough files, and a report of what was measured."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from .bounds import COLUMNS
from .limits import CONFIG
from .target import Target, measurements, under_attack

FILES_WANTED = 8_192
FILES_NEEDED = 2_500


@pytest.fixture(scope="session", autouse=True)
def many_files() -> Iterator[None]:
    """Let attackers and the servers they attack open thousands of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if wanted < FILES_NEEDED:
        assert os.environ.get("CI") != "true", f"only {hard} files may be open: raise ulimit -Hn"
        pytest.skip(f"two thousand connections need more files than the {hard} this system allows: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory, many_files: None) -> Iterator[Target]:
    """A server that attacks share; those that define boards have one of their own."""
    with under_attack(tmp_path_factory.mktemp("attack"), CONFIG) as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what was measured, where it was asked for: with -s, and with the long forms."""
    if measurements and (config.getoption("capture") == "no" or config.getoption("markexpr") == "long"):
        terminalreporter.section("attacks")
        for row in (COLUMNS, *(measured.row() for measured in measurements)):
            terminalreporter.write_line("| " + " | ".join(row) + " |")

"""The server process sets Python up for short pauses."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rankd.background import YOUNG_OBJECTS_MAX
from rankd.serving import keep_collections_short


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_what_is_there_when_the_server_is_ready_is_in_no_garbage_collection() -> None:
    loaded = len(gc.get_objects())
    keep_collections_short()

    assert len(gc.get_objects()) < loaded / 100
    assert gc.get_threshold()[0] == YOUNG_OBJECTS_MAX

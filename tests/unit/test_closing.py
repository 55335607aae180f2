"""What closing leaves behind: nothing, however long somebody holds on to what was closed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from rankd import Boards
from rankd.errors import Closed
from rankd.node.open_embedded import embedded_of
from rankd.projection.engine import EngineStore


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """What holds itself stays: it would go some time later, and the memory of ten million players with it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def store_of(boards: Boards) -> EngineStore:
    return embedded_of(boards).rank_store


@pytest.mark.usefixtures("_no_collector")
def test_the_memory_of_closed_boards_is_given_back_at_once(boards: Boards) -> None:
    boards.define("arcade", windows=["all_time", "daily"])
    boards.submit("arcade", "ann", 1)
    boards.submit_many("arcade", [("bob", 2), ("cyd", 3)])
    boards.snapshot()
    engine = store_of(boards)._native
    boards.close()

    assert sys.getrefcount(engine) == 2  # ours, and the one of the question


def test_a_closed_store_refuses_those_who_still_hold_it(boards: Boards) -> None:
    boards.define("arcade")
    store = store_of(boards)
    boards.close()

    with pytest.raises(Closed, match="open them again"):
        store.memory()

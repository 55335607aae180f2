"""Boards that lag in Redis behind a log are reloaded: its events do not say how they count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rankd.domain.definition import define_board
from rankd.projection.catalogue import Catalogue
from rankd.projection.state import BoardState
from rankd.redis.write.backfill import Backfill, LaggingBoard


def test_all_boards_of_a_log_that_lag_are_reloaded() -> None:
    log: Any = SimpleNamespace(capabilities=SimpleNamespace(appends_conditionally=False))
    lagging = LaggingBoard(define_board("arcade", {}), BoardState(1, 1, 0), (0,), (9,), {})
    assert Backfill(log, Catalogue()).mark([lagging]) == {"arcade"}
    assert not lagging.dirty

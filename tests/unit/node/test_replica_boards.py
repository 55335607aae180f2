"""A replica that keeps some boards: theirs are the writer's ranks, and of the others it has none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rankd import Boards
from rankd.clock import ManualClock
from rankd.domain.board_selection import BoardSelection
from rankd.errors import Refused
from rankd.node.open_embedded import open_boards
from rankd.node.open_replica import open_replica

START = 1_800_000_000_000
DAY_MS = 86_400_000
KEPT = BoardSelection(["arcade*"])
CLAN = {"attribute": "clan", "by": "average"}
WINDOWS = {"windows": ["all_time", "daily", "weekly"], "late_by": "0s", "retention": {"daily": "1d"}}
BOARDS: dict[str, dict[str, object]] = {
    "clans": {"team": CLAN, "keep": "sum"},
    "arcade-clans": {"team": CLAN, "keep": "sum"},
    "arcade": {**WINDOWS, "keep": {"daily": "best", "weekly": "sum_of_daily"}, "feeds": ["clans"]},
    "words": {
        **WINDOWS,
        "keep": {"daily": "best", "weekly": "sum_of_daily"},
        "scopes": ["clan"],
        "feeds": ["arcade-clans"],
    },
}


def ranks(boards: Boards) -> dict[str, object]:
    """Return the entries of every window of the boards that are kept."""
    return {
        f"{board} {window}": [
            (entry.player, entry.score, entry.rank) for entry in boards.top(board, window=window).entries
        ]
        for board in BOARDS
        if KEPT.keeps(board)
        for window in boards.board(board).all_windows
    }


def entries_of_others(boards: Boards) -> dict[str, int]:
    return {board: count for board, count in boards.entries_by_board(100).items() if not KEPT.keeps(board) and count}


def play(writer: Boards, clock: ManualClock) -> None:
    """Change every board in every way, over some days."""
    for day in range(3):
        for number in range(20):
            player, clan = f"p{number}", f"c{number % 3}"
            for board in ("arcade", "words"):
                metadata = {"day": day} if number % 2 else None
                writer.submit(board, player, day * 7 + number, attributes={"clan": clan}, metadata=metadata)
        for board in ("arcade", "words"):
            writer.remove(board, f"p{day}")
        writer.reset("words", "daily")
        clock.advance(DAY_MS)
        writer.settle()
    writer.define("words", {**BOARDS["words"], "title": "Words"})
    writer.define("letters", keep="sum")
    writer.submit("letters", "p1", 1)
    writer.delete("letters")


@pytest.mark.parametrize("snapshot", ["none", "before", "between"])
def test_its_boards_are_the_writers_and_the_others_are_empty(tmp_path: Path, snapshot: str) -> None:
    clock = ManualClock(START)
    with open_boards(tmp_path / "data", clock=clock) as writer:
        for board, definition in BOARDS.items():
            writer.define(board, definition)
        steps: list[Callable[[], None]] = [lambda: play(writer, clock)] * 2
        if snapshot == "between":
            steps.insert(1, writer.snapshot)
        for step in steps:
            step()
        if snapshot == "before":
            writer.snapshot()
        with open_replica(tmp_path / "data", lambda _timeout_s: None, clock=clock, kept=KEPT) as replica:
            assert replica.started.snapshot is None or snapshot != "none"
            assert ranks(replica) == ranks(writer)
            assert entries_of_others(replica) == {}
            assert entries_of_others(writer).keys() == {"clans", "words"}
            play(writer, clock)
            replica.settle()
            assert ranks(replica) == ranks(writer)
            assert entries_of_others(replica) == {}
            with pytest.raises(Refused):
                replica.verify()

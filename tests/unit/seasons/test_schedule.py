"""What the clock makes due: midnights and the ends of windows, in the order of time, on every kind of day."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest

from rankd import Boards, ManualClock
from rankd.domain.board import Board
from rankd.domain.definition import define_board
from rankd.ledger.event import EventKind
from rankd.node.open_embedded import embedded_of
from rankd.projection.state import BoardState, State
from rankd.seasons.rollover import BOARDS_AT_ONCE
from rankd.seasons.schedule import NEVER, Schedule, next_midnight

LATE_MS = 300_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


class Planned:
    """Boards with window instances in the store, and the schedule they make."""

    def __init__(self, defined_at: int, **definitions: dict[str, object]) -> None:
        self.state = State()
        self.boards: dict[str, Board] = {
            name: define_board(name, definition) for name, definition in definitions.items()
        }
        for name in definitions:
            self.state.boards[name] = BoardState(version=1, born=1, defined_at=defined_at)
        self.schedule = Schedule(self.state, lambda: self.boards)

    def holds(self, board: str, *instances: str) -> None:
        self.state.boards[board].windows.update({instance: {"global"} for instance in instances})
        self.state.note_change(board)

    def due(self, now: int) -> list[tuple[int, str, str, str | None]]:
        return [(due.at, due.board, due.kind.value, due.instance) for due in self.schedule.due(now)]

    def first_due(self, low: int, high: int) -> int:
        """Find the ms at which something becomes due."""
        assert not self.schedule.is_due(low)
        assert self.schedule.is_due(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.schedule.is_due(middle) else (middle, high)
        return high


def test_nothing_is_due_of_boards_that_never_end_and_have_no_places_to_compare() -> None:
    planned = Planned(0, arcade={"windows": ["daily", "hourly"]}, words={"global": False, "scopes": ["country"]})

    assert not planned.schedule.is_due(NEVER - 1)
    assert planned.due(NEVER - 1) == []


def test_a_window_is_due_at_its_end_and_late_by_to_the_millisecond() -> None:
    planned = Planned(ms("2026-05-04"), arcade={"windows": ["daily"]})
    planned.holds("arcade", "daily:2026-05-04")
    end = ms("2026-05-05") + LATE_MS

    assert planned.first_due(ms("2026-05-04"), ms("2026-05-06")) == end
    assert planned.due(end - 1) == []
    assert planned.due(end) == [(end, "arcade", "close", "daily:2026-05-04")]


@pytest.mark.parametrize(
    ("definition", "instance", "end"),
    [
        ({"windows": ["yearly"]}, "yearly:2026", "2027-01-01T00:00"),
        ({"windows": ["monthly"]}, "monthly:2026-12", "2027-01-01T00:00"),
        ({"windows": ["weekly"]}, "weekly:2026-W53", "2027-01-04T00:00"),
        ({"windows": ["weekly"], "week_starts": "sunday"}, "weekly:2026-12-27", "2027-01-03T00:00"),
        ({"windows": ["daily"], "time_zone": "Europe/Berlin"}, "daily:2026-03-29", "2026-03-29T22:00"),
        ({"windows": ["daily"], "time_zone": "Europe/Berlin"}, "daily:2026-10-25", "2026-10-25T23:00"),
        ({"windows": ["hourly"], "time_zone": "Europe/Berlin"}, "hourly:2026-10-25T0000Z", "2026-10-25T01:00"),
        ({"windows": ["hourly"], "time_zone": "Europe/Berlin"}, "hourly:2026-10-25T0100Z", "2026-10-25T02:00"),
        ({"windows": ["daily"], "time_zone": "America/Sao_Paulo"}, "daily:2026-05-04", "2026-05-05T03:00"),
        ({"windows": [{"name": "raid", "reset": "0 18 * * 5"}]}, "raid:2026-05-01T1800Z", "2026-05-08T18:00"),
        (
            {"periods": [{"name": "cup", "start": "2026-05-01T00:00:00Z", "end": "2026-05-02T12:34:56Z"}]},
            "period:cup",
            "2026-05-02T12:34:56",
        ),
    ],
)
def test_every_kind_of_window_ends_by_the_boards_clock(definition: dict[str, object], instance: str, end: str) -> None:
    planned = Planned(NEVER - 3 * DAY_MS, arcade={**definition, "late_by": "7ms"})  # no midnight before the last days
    planned.holds("arcade", instance)

    assert planned.due(ms(end) + 6) == []
    assert planned.due(ms(end) + 7) == [(ms(end) + 7, "arcade", "close", instance)]


def test_what_is_closed_is_not_due_again() -> None:
    planned = Planned(0, arcade={"windows": ["daily"]})
    planned.holds("arcade", "daily:2026-05-04")
    planned.state.boards["arcade"].closed.add("daily:2026-05-04")
    planned.state.note_change("arcade")

    assert not planned.schedule.is_due(NEVER - 1)


@pytest.mark.parametrize(
    ("zone", "defined", "midnight"),
    [
        ("UTC", "2026-05-04T12:00", "2026-05-05T00:00"),
        ("UTC", "2026-05-04T00:00", "2026-05-05T00:00"),
        ("UTC", "2026-12-31T23:59", "2027-01-01T00:00"),
        ("Europe/Berlin", "2026-03-28T22:59", "2026-03-28T23:00"),
        ("Europe/Berlin", "2026-03-28T23:00", "2026-03-29T22:00"),
        ("Europe/Berlin", "2026-10-24T22:00", "2026-10-25T23:00"),
        ("Pacific/Apia", "2011-12-29T12:00", "2011-12-30T10:00"),
        ("Africa/Cairo", "2026-04-23T22:30", "2026-04-24T21:00"),
    ],
)
def test_midnights_are_those_of_the_boards_clock(zone: str, defined: str, midnight: str) -> None:
    planned = Planned(ms(defined), arcade={"time_zone": zone})

    assert next_midnight(planned.boards["arcade"], planned.state.boards["arcade"]) == ms(midnight)
    assert planned.first_due(ms(defined), ms(defined) + 3 * DAY_MS) == ms(midnight)


def test_of_several_midnights_only_the_last_is_done() -> None:
    planned = Planned(ms("2026-05-04T12:00"), arcade={})

    assert planned.due(ms("2026-05-09T07:00")) == [(ms("2026-05-09"), "arcade", "midnight", None)]
    planned.state.boards["arcade"].midnight = ms("2026-05-09")
    assert planned.due(ms("2026-05-09T23:59")) == []


def test_several_boards_and_zones_come_in_the_order_of_time() -> None:
    defined = ms("2026-05-04T12:00")
    planned = Planned(
        defined,
        zulu={"windows": ["weekly", "daily"]},
        tokyo={"windows": ["all_time", "daily"], "time_zone": "Asia/Tokyo", "late_by": "0s"},
        rio={"windows": ["all_time"], "time_zone": "America/Sao_Paulo"},
    )
    planned.holds("zulu", "daily:2026-05-04", "weekly:2026-W19")
    planned.holds("tokyo", "daily:2026-05-04", "all_time")

    assert planned.due(ms("2026-05-05T03:00")) == [
        (ms("2026-05-04T15:00"), "tokyo", "midnight", None),
        (ms("2026-05-04T15:00"), "tokyo", "close", "daily:2026-05-04"),
        (ms("2026-05-05T00:00"), "zulu", "midnight", None),
        (ms("2026-05-05T00:00") + LATE_MS, "zulu", "close", "daily:2026-05-04"),
        (ms("2026-05-05T03:00"), "rio", "midnight", None),
    ]


def test_the_schedule_notices_windows_that_come() -> None:
    planned = Planned(ms("2026-05-04"), arcade={"windows": ["daily"]})
    assert not planned.schedule.is_due(ms("2026-06-01"))
    planned.holds("arcade", "daily:2026-05-04")
    assert planned.schedule.is_due(ms("2026-06-01"))


def test_being_due_and_what_is_due_agree(rng: random.Random) -> None:
    zones = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "Africa/Cairo"]
    for _ in range(30):
        start = ms("2026-01-01") + rng.randrange(365 * DAY_MS)
        planned = Planned(start, arcade={"windows": ["weekly", "daily", "hourly"], "time_zone": rng.choice(zones)})
        board = planned.boards["arcade"]
        for _ in range(4):
            reading = board.read_clock(start + rng.randrange(3 * DAY_MS))
            planned.holds("arcade", *(instance for _, instance in board.instances_of(reading)))
        for _ in range(10):
            now = start + rng.randrange(10 * DAY_MS)
            due = planned.due(now)
            assert planned.schedule.is_due(now) == bool(due)
            assert [item[0] for item in due] == sorted(item[0] for item in due)
            assert all(item[0] <= now for item in due)


def test_roll_overs_are_events_at_the_time_they_were_due(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["weekly", "daily"])
    boards.submit("arcade", "alice", 5)
    clock.set(ms("2026-05-06T09:00"))
    boards.submit("arcade", "alice", 6)

    ledger = embedded_of(boards).writer._ledger
    events = [
        (ledger.context(event_run.context).kind, at)
        for _, event_run, *_ in ledger.read([0], 1_000)
        for at in event_run.at
    ]
    assert events == [
        (EventKind.DEFINE, ms("2026-05-04T12:00")),
        (EventKind.SCORE, ms("2026-05-04T12:00")),
        (EventKind.CLOSE, ms("2026-05-05") + LATE_MS),
        (EventKind.MIDNIGHT, ms("2026-05-06")),
        (EventKind.SCORE, ms("2026-05-06T09:00")),
    ]


def events_of(boards: Boards) -> list[tuple[str, str]]:
    """All events in the ledger: their kinds and boards."""
    ledger = embedded_of(boards).writer._ledger
    contexts = [(ledger.context(run.context), len(run.at)) for _, run, *_ in ledger.read([0], 100_000)]
    return [(context.kind.value, context.board) for context, count in contexts for _ in range(count)]


def test_a_score_and_a_read_append_only_what_is_due_of_their_boards(boards: Boards, clock: ManualClock) -> None:
    boards.define("total")
    boards.define("arcade", feeds=["total"])
    boards.define("puzzle")
    boards.define("words")
    before = len(events_of(boards))
    clock.advance(DAY_MS)

    boards.submit("arcade", "alice", 5)
    assert events_of(boards)[before:] == [("midnight", "arcade"), ("midnight", "total"), ("score", "arcade")]
    boards.top("puzzle")
    assert events_of(boards)[before + 3 :] == [("midnight", "puzzle")]
    boards.reset("words")
    assert events_of(boards)[before + 4 :] == [("midnight", "words"), ("reset", "words")]
    boards.settle()
    assert len(events_of(boards)) == before + 6


def test_roll_overs_of_many_boards_leave_room_for_scores_in_between(boards: Boards, clock: ManualClock) -> None:
    names = [f"board-{number:03}" for number in range(3 * BOARDS_AT_ONCE + 1)]
    for name in names:
        boards.define(name)
    before = len(events_of(boards))
    clock.advance(DAY_MS)
    commits: list[int] = []
    writer = embedded_of(boards).writer
    run_control = writer.run_control

    def run(append: Callable[[], int]) -> int:
        commits.append(run_control(append))
        return commits[-1]

    with patch.object(writer, "run_control", run):
        boards.settle()
    assert commits == [BOARDS_AT_ONCE] * 3 + [1]
    assert sorted(board for _, board in events_of(boards)[before:]) == names


def test_a_read_finds_what_is_due_done(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade")
    boards.submit_many("arcade", [("alice", 5), ("bob", 3)])
    clock.advance(DAY_MS)
    standing = boards.rank("arcade", "alice")
    assert standing is not None
    assert (standing.rank, standing.rank_change) == (1, 0)

    boards.submit("arcade", "bob", 9)
    changes = {player: boards.rank("arcade", player) for player in ("alice", "bob")}
    assert {player: answer.rank_change for player, answer in changes.items() if answer} == {"alice": -1, "bob": 1}


@pytest.mark.parametrize("ranking", ["ordinal", "competition", "dense"])
def test_rank_change_counts_places_whatever_the_ranking(boards: Boards, clock: ManualClock, ranking: str) -> None:
    boards.define("arcade", ties="player")
    boards.submit_many("arcade", [("alice", 5), ("bob", 5), ("carol", 3)])
    clock.advance(DAY_MS)
    boards.submit("arcade", "carol", 5)
    boards.submit("arcade", "aaron", 9)
    standing = boards.rank("arcade", "carol", ranking=ranking)
    newcomer = boards.rank("arcade", "aaron", ranking=ranking)
    assert standing is not None
    assert newcomer is not None
    assert (standing.rank_change, newcomer.rank_change) == (-1, None)


def test_rank_change_is_none_where_there_is_nothing_to_compare(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["weekly", "daily", "all_time"], scopes=["country"])
    boards.submit("arcade", "alice", 5, attributes={"country": "BR"})
    clock.advance(DAY_MS)
    boards.submit("arcade", "alice", 6, attributes={"country": "BR"})

    def change(**about: Any) -> int | None:
        standing = boards.rank("arcade", "alice", **about)
        assert standing is not None
        return standing.rank_change

    assert (change(), change(window="all_time")) == (0, 0)
    assert change(window="daily") is None
    assert change(scope="country:BR") is None
    assert change(window="weekly", scope="country:BR") is None
    clock.advance(7 * DAY_MS)
    assert change(window="weekly:previous") is None

"""Where an event counts, and for how long that holds."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from rankd.domain.board import Board
from rankd.domain.definition import define_board
from rankd.domain.instance import InstanceKey
from rankd.ledger.event import AcceptanceContext, Context, EventKind
from rankd.projection.catalogue import Catalogue
from rankd.projection.placement import Placement, Placements, is_team_scope, team_scope, visible_scopes
from rankd.projection.state import BoardState, State

QUARTER_MS = 900_000
HOUR_MS = 3_600_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


NOON = ms("2026-05-04T12:00")
NOON_DAY = ms("2026-05-04T00:00")


class Placed:
    """Boards as they are defined, and placements of events on them."""

    def __init__(self, **definitions: dict[str, object]) -> None:
        self.catalogue, self.state = Catalogue(), State()
        self.boards: dict[str, Board] = {}
        for board_id, definition in definitions.items():
            self.boards[board_id] = define_board(board_id, definition)
            self.catalogue.add(self.boards[board_id], 1)
            self.state.boards[board_id] = BoardState(version=1, born=1, defined_at=0)

    def context(self, at: int) -> Context:
        accepted = {}
        for board in self.boards.values():
            reading = board.read_clock(at)
            accepted[board.id] = AcceptanceContext(1, reading.utc_offset_s, reading.resets)
        return Context(EventKind.SCORE, next(iter(self.boards)), "local", accepted)

    def at(self, at: int) -> Placement:
        return Placement(self.context(at), at, self.catalogue, self.state)

    def windows(self, at: int, board: str = "arcade") -> list[str]:
        return [target.instance for place in self.at(at).reached if place.board.id == board for target in place.targets]


def test_an_event_counts_in_each_window_at_its_time() -> None:
    placed = Placed(arcade={"windows": ["all_time", "weekly", "daily", "hourly"]})

    assert placed.windows(NOON) == ["all_time", "weekly:2026-W19", "daily:2026-05-04", "hourly:2026-05-04T1200Z"]
    assert set(placed.state.boards["arcade"].windows) == set(placed.windows(NOON))


@pytest.mark.parametrize(
    ("zone", "begins"),
    [
        ("UTC", "2026-05-04T12:00"),
        ("Asia/Kathmandu", "2026-05-04T11:15"),  # 5 hours and 45 minutes ahead
        ("America/St_Johns", "2026-05-04T11:30"),
        ("Asia/Kolkata", "2026-05-04T11:30"),
    ],
)
def test_with_hourly_windows_a_placement_holds_for_a_local_hour_and_not_longer(zone: str, begins: str) -> None:
    placed = Placed(arcade={"windows": ["hourly", "daily"], "time_zone": zone})
    placement = placed.at(NOON + 1)

    assert (placement.valid_from, placement.valid_until) == (ms(begins), ms(begins) + HOUR_MS)


def test_with_longer_windows_it_holds_for_a_local_day() -> None:
    placed = Placed(arcade={"windows": ["all_time", "weekly"], "time_zone": "Asia/Kathmandu"})
    placement = placed.at(NOON)

    assert (placement.valid_from, placement.valid_until) == (ms("2026-05-03T18:15"), ms("2026-05-04T18:15"))


def test_a_fed_board_with_shorter_windows_shortens_it() -> None:
    placed = Placed(arcade={"windows": ["daily"]}, xp={"windows": ["hourly"], "time_zone": "Asia/Kolkata"})

    assert placed.at(NOON).valid_until == NOON + HOUR_MS // 2


def test_an_offset_of_odd_seconds_moves_its_edges() -> None:
    placed = Placed(arcade={"windows": ["hourly"], "time_zone": "Africa/Monrovia"})
    placement = placed.at(ms("1971-06-01T12:00"))  # 44 minutes and 30 seconds behind UTC

    assert placement.valid_from == ms("1971-06-01T11:44:30")


@pytest.mark.parametrize(
    ("at", "holds_from", "holds_until"),
    [
        (NOON, NOON_DAY, NOON + 100),
        (NOON + 99, NOON_DAY, NOON + 100),
        (NOON + 100, NOON + 100, NOON + 350),
        (NOON + 349, NOON + 100, NOON + 350),
        (NOON + 350, NOON + 350, NOON_DAY + 24 * HOUR_MS),
    ],
)
def test_the_edges_of_a_period_cut_it(at: int, holds_from: int, holds_until: int) -> None:
    periods = [{"name": "cup", "start": NOON + 100, "end": NOON + 350}]
    placed = Placed(arcade={"windows": ["daily"], "periods": periods})
    placement = placed.at(at)

    assert (placement.valid_from, placement.valid_until) == (holds_from, holds_until)
    assert ("period:cup" in placed.windows(at)) == (holds_from == NOON + 100)


def test_the_edges_of_a_fed_boards_period_cut_it_too() -> None:
    placed = Placed(arcade={}, cup={"periods": [{"name": "cup", "start": NOON + 7, "end": NOON + 9}]})

    assert placed.at(NOON).valid_until == NOON + 7
    assert placed.windows(NOON + 8, "cup") == ["all_time", "period:cup"]


def test_windows_that_are_closed_or_retired_take_nothing() -> None:
    placed = Placed(arcade={"windows": ["all_time", "daily", "weekly"]})
    live = placed.state.boards["arcade"]
    placed.at(NOON)
    live.closed.add("daily:2026-05-04")
    live.retired.add("weekly:2026-W19")
    live.windows.discard("weekly:2026-W19")

    assert placed.windows(NOON) == ["all_time"]
    assert "weekly:2026-W19" not in live.windows


def test_a_board_that_is_deleted_meanwhile_is_left_out() -> None:
    placed = Placed(arcade={}, xp={})
    del placed.state.boards["xp"]

    assert [place.board.id for place in placed.at(NOON).reached] == ["arcade"]


def test_what_is_remembered_is_what_would_be_worked_out_anew(rng: random.Random) -> None:
    placed = Placed(
        arcade={
            "windows": ["hourly", "daily", {"name": "raid", "reset": "7 18 * * *"}],
            "time_zone": "Europe/Berlin",
            "periods": [{"name": "cup", "start": NOON + 1_234, "end": NOON + 3_600_001}],
        }
    )
    placements = Placements(placed.catalogue, placed.state)
    numbers: dict[bytes, int] = {}
    edges = [NOON, NOON + 1_234, NOON + 3_600_001, ms("2026-05-04T16:07"), ms("2026-05-04T22:00")]
    for _ in range(500):
        at = rng.choice(edges) + rng.choice([-1, 0, 1, rng.randrange(-QUARTER_MS, QUARTER_MS)])
        context = placed.context(at)
        number = numbers.setdefault(context.key, len(numbers) + 1)
        instances = [target.instance for target in placements.at(number, context, at).reached[0].targets]
        assert instances == placed.windows(at), at


def test_they_are_worked_out_anew_when_asked() -> None:
    placed = Placed(arcade={"windows": ["daily"]})
    placements = Placements(placed.catalogue, placed.state)
    context = placed.context(NOON)
    assert placements.at(1, context, NOON).reached[0].targets
    placed.state.boards["arcade"].closed.add("daily:2026-05-04")
    placements.forget()

    assert placements.at(1, context, NOON).reached[0].targets == []


def test_the_hidden_scopes_of_teams_cannot_be_read() -> None:
    hidden = team_scope("country:BR", "reds")

    assert is_team_scope(hidden)
    assert visible_scopes({"global", hidden, "country:BR"}) == ["country:BR", "global"]
    assert InstanceKey.parse(InstanceKey("a", "all_time", hidden).text).scope == hidden

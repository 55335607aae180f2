"""Roll-ups: the longer window adds up what the shorter ones kept, wide, and follows their resets."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from rankd import Boards, ManualClock

if TYPE_CHECKING:
    from tests.unit.conftest import OpenBoards

DAY_MS = 86_400_000
WEEK = {"daily": "first", "weekly": "sum_of_daily"}


def score(boards: Boards, window: str, player: str = "alice", **about: Any) -> int | None:
    standing = boards.rank("arcade", player, window=window, **about)
    return None if standing is None else standing.score


def test_the_week_adds_up_the_first_tries_of_its_days(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["weekly", "daily"], keep=WEEK)
    for day, tries in enumerate([(5, 9), (7, 1), (3,)]):
        for attempt in tries:
            answer = boards.submit("arcade", "alice", attempt)
        clock.advance(DAY_MS)
        assert answer.score == [5, 12, 15][day]

    assert score(boards, "weekly") == 15
    boards.verify()


def test_a_part_that_changes_changes_the_total_by_the_difference(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["weekly", "daily"], keep={"daily": "latest", "weekly": "sum_of_daily"})
    boards.submit("arcade", "alice", 100)
    clock.advance(DAY_MS)
    for points in (30, -5, 40):
        boards.submit("arcade", "alice", points)
        assert score(boards, "weekly") == 100 + points


def test_a_total_is_held_wide_beyond_the_bounds_and_comes_back(open_boards: OpenBoards, clock: ManualClock) -> None:
    boards = open_boards()
    boards.define(
        "arcade", windows=["weekly", "daily"], keep={"daily": "latest", "weekly": "sum_of_daily"}, score_max=100,
        score_min=-100,
    )  # fmt: skip
    for points in (80, 70):
        boards.submit("arcade", "alice", points)
        clock.advance(DAY_MS)
    assert score(boards, "weekly") == 100
    boards.close()

    boards = open_boards()
    boards.submit("arcade", "alice", -60)
    assert score(boards, "weekly") == 90
    boards.submit("arcade", "alice", -100)
    assert score(boards, "weekly") == 50
    boards.verify()


def test_one_batch_may_change_the_same_part_many_times(boards: Boards) -> None:
    boards.define("arcade", windows=["weekly", "daily"], keep={"daily": "best", "weekly": "sum_of_daily"})
    boards.submit_many("arcade", [("alice", 5), ("bob", 1), ("alice", 3), ("alice", 9), ("bob", 2)])

    assert (score(boards, "weekly"), score(boards, "weekly", "bob")) == (9, 2)


def test_resetting_the_day_takes_it_out_of_the_week(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["weekly", "daily"], keep=WEEK)
    boards.submit("arcade", "alice", 10)
    clock.advance(DAY_MS)
    boards.submit("arcade", "alice", 7)
    boards.submit("arcade", "bob", 4)
    boards.reset("arcade", "daily")

    assert (score(boards, "weekly"), score(boards, "weekly", "bob")) == (10, None)
    assert score(boards, "daily") is None
    boards.submit("arcade", "alice", 2)
    assert score(boards, "weekly") == 12
    boards.verify()


def test_a_day_reset_with_nothing_left_but_a_zero_keeps_those_who_have_one(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["weekly", "daily"], keep=WEEK)
    boards.submit("arcade", "alice", 0)
    clock.advance(DAY_MS)
    boards.submit("arcade", "alice", 7)
    boards.submit("arcade", "bob", 7)
    boards.reset("arcade", "daily")

    assert (score(boards, "weekly"), score(boards, "weekly", "bob")) == (0, None)


def test_resetting_the_week_leaves_the_day_which_counts_whole_with_its_next_change(boards: Boards) -> None:
    boards.define("arcade", windows=["weekly", "daily"], keep={"daily": "sum", "weekly": "sum_of_daily"})
    boards.submit("arcade", "alice", 30)
    boards.reset("arcade", "weekly")
    assert (score(boards, "weekly"), score(boards, "daily")) == (None, 30)

    boards.submit("arcade", "alice", 10)
    assert (score(boards, "weekly"), score(boards, "daily")) == (40, 40)
    boards.verify()


def test_resetting_everything_leaves_nothing(boards: Boards) -> None:
    boards.define("arcade", windows=["weekly", "daily", "all_time"], keep=WEEK | {"all_time": "best"})
    boards.submit("arcade", "alice", 30)
    assert boards.reset("arcade").changed
    assert [score(boards, window) for window in ("weekly", "daily", "all_time")] == [None, None, None]
    assert not boards.reset("arcade").changed


def test_removing_a_player_removes_totals_too(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["weekly", "daily"], keep=WEEK, score_max=10)
    for _ in range(3):
        boards.submit("arcade", "alice", 9)
        clock.advance(DAY_MS)
    assert score(boards, "weekly") == 10
    assert boards.remove("arcade", "alice").changed
    assert score(boards, "weekly") is None

    boards.submit("arcade", "alice", 3)
    assert score(boards, "weekly") == 3
    boards.verify()


def test_scopes_have_totals_of_their_own(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["weekly", "daily"], keep=WEEK, scopes=["country"])
    boards.submit("arcade", "alice", 5, attributes={"country": "BR"})
    clock.advance(DAY_MS)
    boards.submit("arcade", "alice", 7, attributes={"country": "PT"})

    assert score(boards, "weekly") == 12
    assert score(boards, "weekly", scope="country:BR") == 5
    assert score(boards, "weekly", scope="country:PT") == 7


@pytest.mark.parametrize("keep", ["best", "latest", "sum", "first"])
def test_totals_are_the_sum_of_the_parts_whatever_happens(
    boards: Boards, clock: ManualClock, keep: str, rng: random.Random
) -> None:
    boards.define(
        "arcade", windows=["monthly", "daily"], keep={"daily": keep, "monthly": "sum_of_daily"}, late_by="40d"
    )
    start = clock.now()
    players = ["alice", "bob", "carol"]
    for _ in range(60):
        match rng.randrange(12):
            case 0:
                boards.remove("arcade", rng.choice(players))
            case 1:
                boards.reset("arcade", "daily")
            case 2 if clock.now() < start + 20 * DAY_MS:
                clock.advance(DAY_MS)
            case _:
                boards.submit("arcade", rng.choice(players), rng.randint(-9, 9), at=rng.randint(start, clock.now()))
    for player in players:
        days = [score(boards, f"daily:2026-05-{day:02}", player) for day in range(4, 25)]
        parts = [day for day in days if day is not None]
        assert score(boards, "monthly", player) == (sum(parts) if parts else None), player
    boards.verify()

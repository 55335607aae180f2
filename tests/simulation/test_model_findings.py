"""What random runs have found, cut to the few steps that show it: the library beside the oracle again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rankd

from .extent import scratch_folder
from .oracle import Oracle, Row
from .reads import ReadAll, ReadPlayer, ReadScore
from .steps import Advance, Define, Delete, Reset, Restart, SetBack, Step, Submit, SubmitMany, World

NOON = 1_777_896_000_000  # 2026-05-04T12:00Z, a Monday
HOUR, DAY = 3_600_000, 86_400_000
HOURS_AND_DAY: dict[str, Any] = {
    "windows": ["daily", "hourly"],
    "keep": {"daily": "sum_of_hourly", "hourly": "sum"},
    "late_by": "1d",
}

Play = Callable[..., World]


@pytest.fixture
def play(request: pytest.FixtureRequest) -> Play:
    """Do steps to the library and to the oracle, each of which must end alike."""

    def played(*steps: Step, scope_values_max: int = 10_000) -> World:
        folder = scratch_folder()
        oracle = Oracle(NOON, scope_values_max)
        world = World(folder.__enter__() / "data", rankd.ManualClock(NOON), oracle)
        request.addfinalizer(lambda: folder.__exit__(None, None, None))
        request.addfinalizer(world.boards.close)
        for step in steps:
            step.do(world)
        return world

    return played


def everybody(board: str = "b", window: str | None = None, scope: str | None = None) -> Step:
    return ReadAll(board, window, scope, None, limit=1_000)


def sent(player: str, score: int, **more: Any) -> Step:
    return Submit("b", Row(player, score, **more))


def test_resetting_the_days_of_teams_that_stand_by_their_best_leaves_the_library_whole(play: Play) -> None:
    team = {"attribute": "guild", "by": "best"}
    keep = {"weekly": "sum_of_daily", "daily": "best"}
    play(
        Define("b", {"windows": ["weekly", "daily"], "keep": keep, "team": team}),
        sent("ann", 2, attributes={"guild": "red"}),
        sent("bob", 3, attributes={"guild": "red"}),
        Reset("b", "daily"),
        everybody(window="weekly"),
        Restart("none"),
        everybody(window="weekly"),
    )


def test_a_repeat_is_answered_whatever_became_of_its_board(play: Play) -> None:
    first = Submit("b", Row("ann", 50), key="k")
    play(
        Define("b", {}),
        first,
        Define("b", {"score_max": 10, "open": False}),
        first,
        Delete("b"),
        first,
    )


def test_a_retired_window_stays_gone_when_its_retention_grows(play: Play) -> None:
    play(
        Define("b", {"windows": ["hourly"], "retention": "0s"}),
        sent("ann", 2),
        Advance(2 * HOUR),
        Define("b", {"windows": ["hourly"]}),
        ReadPlayer("b", ("hourly", NOON), None, None, player="ann"),
    )


def test_later_bounds_do_not_stop_what_is_kept(play: Play) -> None:
    decaying = {"decay": {"factor": 0.5, "every": "1d"}, "ties": "player", "score_min": 1}
    play(Define("b", decaying), sent("ann", 1_000), Define("b", {**decaying, "score_max": 10}), everybody())


def test_metadata_goes_with_the_score_it_came_with(play: Play) -> None:
    play(
        Define("b", HOURS_AND_DAY),
        sent("ann", 5),
        Advance(HOUR),
        sent("ann", 6, metadata={"replay": "r-1"}),
        everybody(),
        Reset("b", "hourly"),
        everybody(),
    )


def test_a_reset_hour_takes_out_of_the_day_only_what_the_day_has_of_it(play: Play) -> None:
    """The day was reset after this hour's score, and since then got one of the hour before."""
    play(
        Define("b", HOURS_AND_DAY),
        sent("ann", 10),
        Reset("b", "daily"),
        sent("ann", 3, at=NOON - HOUR),
        everybody(window="daily"),
        Reset("b", "hourly"),
        everybody(window="daily"),
    )


def test_who_has_nothing_left_in_a_total_does_not_stand_there(play: Play) -> None:
    """The hour before is still in the store, but the day was reset after it."""
    play(
        Define("b", HOURS_AND_DAY),
        sent("ann", 10, at=NOON - HOUR),
        Reset("b", "daily"),
        sent("ann", 7),
        Reset("b", "hourly"),
        everybody(window="daily"),
    )


def test_an_hour_that_left_the_store_still_counts_in_the_day(play: Play) -> None:
    play(
        Define("b", {**HOURS_AND_DAY, "late_by": "0s", "retention": {"hourly": "0s"}}),
        sent("ann", 0),
        Advance(2 * HOUR),
        sent("ann", 7),
        Reset("b", "hourly"),
        everybody(window="daily"),
    )


def test_a_part_that_a_reset_took_out_of_a_total_counts_as_a_whole_when_it_is_set(play: Play) -> None:
    play(
        Define("b", {"windows": ["all_time", "hourly"], "keep": {"all_time": "sum_of_hourly", "hourly": "sum"}}),
        sent("ann", -5),
        Reset("b", "all_time"),
        sent("ann", 5, at=NOON - 60_000),
        sent("ann", 1),
        everybody(),
    )


def test_a_final_part_from_before_a_reset_holds_nobody_in_the_total(play: Play) -> None:
    play(
        Define("b", {"windows": ["all_time", "hourly"], "keep": {"all_time": "sum_of_hourly", "hourly": "sum"}}),
        sent("ann", 5),
        Advance(DAY),
        Reset("b", "all_time"),
        sent("ann", 7),
        Reset("b", "hourly"),
        everybody(),
    )


def test_a_newcomer_is_placed_by_the_time_the_ledger_would_give(play: Play) -> None:
    play(
        Define("b", {"ties": "earliest"}),
        sent("ann", 5),
        SetBack(HOUR, "b"),
        ReadScore("b", None, None, "ordinal", score=5, tiebreak=0),
    )


def test_a_row_that_does_not_count_takes_no_value_of_a_scope(play: Play) -> None:
    rows = (Row("ann", 1, attributes={"country": "BR"}), Row("bob", 2, attributes={"country": "AR", "guild": "red"}))
    play(
        Define("b", {"scopes": ["country"], "team": {"attribute": "guild", "by": "sum"}}),
        SubmitMany("b", rows),
        everybody(scope="country:AR"),
        scope_values_max=1,
    )


def test_the_last_page_names_no_next_one(play: Play) -> None:
    world = play(Define("b", {}), SubmitMany("b", (Row("ann", 2), Row("bob", 1))))

    assert [world.boards.top("b", limit).next is None for limit in (1, 2, 3)] == [False, True, True]

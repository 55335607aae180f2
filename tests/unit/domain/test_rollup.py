"""Longer windows that add up what shorter ones kept."""

from __future__ import annotations

import pytest

from rankd.domain.board import Board
from rankd.domain.definition import define_board
from rankd.domain.order import Keep
from rankd.domain.rollup import RollUp, rolled_up, why_not_nested
from rankd.domain.score import clamped
from rankd.domain.window import WindowKind
from rankd.errors import InvalidValue

from .clocks import ms

EVERY = ["all_time", "yearly", "monthly", "weekly", "daily", "hourly", {"name": "raid", "reset": "0 18 * * 5"}]


def _nests(part: str, whole: str, **definition: object) -> bool:
    windows = define_board("any", {"windows": EVERY, **definition}).all_windows
    return why_not_nested(windows[part], windows[whole]) is None


@pytest.mark.parametrize(
    ("part", "wholes"),
    [
        ("hourly", {"daily", "weekly", "monthly", "yearly", "all_time"}),
        ("daily", {"weekly", "monthly", "yearly", "all_time"}),
        ("weekly", {"all_time"}),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "Australia/Lord_Howe"])
def test_hours_nest_in_days_days_in_weeks_months_and_years_and_weeks_in_all_time_only(
    part: str, wholes: set[str], zone: str
) -> None:
    names = ["all_time", "yearly", "monthly", "weekly", "daily", "hourly", "raid"]
    assert {whole for whole in names if _nests(part, whole, time_zone=zone)} == wholes


@pytest.mark.parametrize(
    ("part", "whole", "reason"),
    [
        ("weekly", "monthly", "a week may begin in one month and end in the next"),
        ("weekly", "yearly", "a week may begin in one year and end in the next"),
        ("daily", "raid", "raid resets by a cron expression"),
        ("daily", "daily", "daily is not longer than daily"),
        ("weekly", "daily", "daily is not longer than weekly"),
    ],
)
def test_a_roll_up_that_does_not_nest_is_refused_with_the_reason(part: str, whole: str, reason: str) -> None:
    with pytest.raises(InvalidValue, match=f"keep.{whole}: cannot be sum_of_{part}: {reason}"):
        define_board("any", {"windows": EVERY, "keep": {whole: f"sum_of_{part}"}})


def _season(start: str, end: str) -> Board:
    return define_board(
        "any",
        {
            "windows": ["all_time", "daily"],
            "time_zone": "Europe/Berlin",
            "periods": [{"name": "season", "start": start, "end": end}],
            "keep": {"period": "sum_of_daily", "daily": "first"},
        },
    )


def test_days_nest_in_a_period_that_begins_and_ends_at_local_midnights() -> None:
    board = _season("2026-03-01T00:00:00+01:00", "2026-06-01T00:00:00+02:00")
    assert board.keep["period:season"] is RollUp.SUM_OF_DAILY


@pytest.mark.parametrize(
    ("start", "end", "edge"),
    [
        ("2026-03-01T00:00:00Z", "2026-06-01T00:00:00+02:00", "start"),
        ("2026-03-01T00:00:00+01:00", "2026-06-01T00:00:00+01:00", "end"),
    ],
)
def test_days_do_not_nest_in_a_period_that_cuts_one(start: str, end: str, edge: str) -> None:
    with pytest.raises(InvalidValue, match=f"the {edge} of period:season falls inside one of the daily windows"):
        _season(start, end)


def test_the_shorter_window_must_be_declared_too() -> None:
    with pytest.raises(InvalidValue, match=r'keep.weekly: sum_of_daily adds up daily windows; declare "daily"'):
        define_board("any", {"windows": ["weekly"], "keep": {"weekly": "sum_of_daily"}})


def test_a_roll_up_of_a_roll_up_is_refused_with_the_rule_to_use() -> None:
    with pytest.raises(InvalidValue, match="cannot add up weekly, itself a sum_of_daily; use sum_of_daily here"):
        define_board("any", {"windows": EVERY, "keep": {"weekly": "sum_of_daily", "all_time": "sum_of_weekly"}})


def test_a_roll_up_ranks_totals_of_which_the_newest_holds() -> None:
    keep = {"daily": "first", "weekly": "sum_of_daily"}
    board = define_board("any", {"windows": ["weekly", "daily"], "keep": keep})
    assert board.rules_for(board.all_windows["weekly"]).keep is Keep.LATEST
    assert board.rules_for(board.all_windows["daily"]).keep is Keep.FIRST


def test_every_roll_up_names_its_part() -> None:
    assert [rule.part for rule in RollUp] == [WindowKind.HOURLY, WindowKind.DAILY, WindowKind.WEEKLY]


def test_a_total_is_held_wide_so_that_a_replaced_part_leaves_no_trace() -> None:
    total = 0
    for before, after in [(None, 80), (None, 70), (80, 10), (70, None)]:
        total = rolled_up(total, before, after)
    assert total == 10
    assert clamped(rolled_up(total, None, 500), 0, 100) == 100


def test_a_week_of_first_tries_adds_its_days_up_and_ends_on_sunday() -> None:
    board = define_board("any", {"windows": ["weekly", "daily"], "keep": {"daily": "first", "weekly": "sum_of_daily"}})
    sunday, monday = ms("2026-05-03T12:00:00Z"), ms("2026-05-04T12:00:00Z")
    assert [name for _, name in board.instances_of(board.read_clock(sunday))] == ["weekly:2026-W18", "daily:2026-05-03"]
    assert [name for _, name in board.instances_of(board.read_clock(monday))] == ["weekly:2026-W19", "daily:2026-05-04"]

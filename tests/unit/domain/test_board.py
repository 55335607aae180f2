"""What follows from a definition for each event: windows, rules, tie fields."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd.domain.board import Board
from rankd.domain.definition import define_board
from rankd.domain.instant import AT_MS_END
from rankd.domain.order import TIE_FIELD_MAX, Keep, Order, Rules, Ties
from rankd.domain.score import TIEBREAK_MAX
from rankd.domain.window import ClockReading
from rankd.errors import InvalidValue

from .clocks import ms


def _board(**definition: object) -> Board:
    return define_board("arcade", definition)


def test_an_event_counts_in_every_window_that_holds_its_at() -> None:
    board = _board(
        windows=["all_time", "yearly", "monthly", "weekly", "daily", "hourly", {"name": "raid", "reset": "0 18 * * 5"}],
        periods=[
            {"name": "spring", "start": "2026-03-01T00:00:00Z", "end": "2026-06-01T00:00:00Z"},
            {"name": "autumn", "start": "2026-09-01T00:00:00Z", "end": "2026-12-01T00:00:00Z"},
        ],
    )
    reading = board.read_clock(ms("2026-05-04T12:30:00Z"))
    assert [instance for _, instance in board.instances_of(reading)] == [
        "all_time",
        "yearly:2026",
        "monthly:2026-05",
        "weekly:2026-W19",
        "daily:2026-05-04",
        "hourly:2026-05-04T1200Z",
        "raid:2026-05-01T1800Z",
        "period:spring",
    ]


def test_an_event_counts_in_every_period_that_lasts_and_in_no_other() -> None:
    spans = {f"s{index}": (index * 7 % 50, index * 7 % 50 + 1 + index % 13) for index in range(40)}
    board = _board(periods=[{"name": name, "start": start, "end": end} for name, (start, end) in spans.items()])
    for at in range(70):
        lasting = {f"period:{name}" for name, (start, end) in spans.items() if start <= at < end}
        assert {name for _, name in board.instances_of(ClockReading(at))} == {"all_time"} | lasting


def test_the_clock_read_at_an_event_holds_the_offset_and_the_start_of_each_cron_window() -> None:
    board = _board(windows=["daily", {"name": "raid", "reset": "0 18 * * 5"}], time_zone="Europe/Berlin")
    at = ms("2026-10-26T12:00:00Z")
    assert board.read_clock(at) == ClockReading(at, 3600, {"raid": ms("2026-10-23T16:00:00Z")})


def test_a_stored_reading_names_windows_without_time_zone_data() -> None:
    board = _board(windows=["daily"], time_zone="UTC")
    at = ms("2026-05-04T23:00:00Z")
    assert [name for _, name in board.instances_of(ClockReading(at, 7_200))] == ["daily:2026-05-05"]


def test_rules_are_those_of_the_definition_per_window() -> None:
    board = _board(
        windows=["all_time", "daily"], keep={"daily": "first"}, order="asc", ties="value", score_min=-5, score_max=5
    )
    assert board.rules_for(board.all_windows["daily"]) == Rules(Keep.FIRST, Order.ASC, Ties.VALUE, -5, 5)
    assert board.rules_for(board.all_windows["all_time"]) == Rules(Keep.BEST, Order.ASC, Ties.VALUE, -5, 5)


def test_scores_are_checked_against_the_boards_bounds() -> None:
    board = _board(score_min=0, score_max=300)
    assert board.check_score(300) == 300
    with pytest.raises(InvalidValue, match=r"events\[2\].score: must be from 0 to 300"):
        board.check_score(301, "events[2].score")


@pytest.mark.parametrize("ties", ["earliest", "latest"])
def test_times_break_ties_in_steps_and_are_shown_floored(ties: str) -> None:
    board = _board(ties=ties, tie_resolution="1m")
    tie = board.tie_field(ms("2026-05-04T12:30:59Z"), tiebreak=7)
    assert board.reached_at(tie) == ms("2026-05-04T12:30:00Z")
    assert board.tiebreak(tie) is None


def test_values_break_ties_as_they_were_sent_and_no_time_is_shown() -> None:
    board = _board(ties="value")
    assert board.tie_field(5, tiebreak=TIEBREAK_MAX) == TIEBREAK_MAX
    assert board.tie_field(5) == 0
    assert board.tiebreak(7) == 7
    assert board.reached_at(7) is None


def test_where_only_the_id_decides_there_is_nothing_to_show() -> None:
    board = _board(ties="player")
    assert board.tie_field(5, tiebreak=7) == 0
    assert board.reached_at(0) is board.tiebreak(0) is None


@given(
    st.sampled_from(["earliest", "latest", "value", "player"]),
    st.sampled_from(["1ms", "7ms", "1s", "1d"]),
    st.integers(0, AT_MS_END - 1),
    st.integers(0, TIEBREAK_MAX),
)
def test_a_tie_field_always_fits_and_gives_back_what_made_it(ties: str, step: str, at: int, tiebreak: int) -> None:
    board = _board(ties=ties, tie_resolution=step)
    tie = board.tie_field(at, tiebreak)
    assert 0 <= tie <= TIE_FIELD_MAX
    reached_at = board.reached_at(tie)
    if reached_at is not None:
        assert reached_at <= at < reached_at + board.tie_resolution_ms
        assert board.tie_field(reached_at) == tie
    assert board.tiebreak(tie) == (tiebreak if ties == "value" else None)


def test_the_local_midnights_that_rank_change_is_measured_from_are_known() -> None:
    board = _board(time_zone="Europe/Berlin")
    assert board.zone.midnights_around(ms("2026-10-25T12:00:00Z")) == (
        ms("2026-10-25T00:00:00+02:00"),
        ms("2026-10-26T00:00:00+01:00"),
    )

"""Durations are whole numbers with a unit, and equal ones read alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd.domain.duration import DURATION_MS_MAX, format_duration, parse_duration
from rankd.errors import InvalidValue


@pytest.mark.parametrize(
    ("written", "duration_ms"),
    [("1ms", 1), ("1s", 1_000), ("5m", 300_000), ("24h", 86_400_000), ("30d", 2_592_000_000), ("0s", 0), ("0d", 0)],
)
def test_a_duration_is_a_whole_number_of_milliseconds_seconds_minutes_hours_or_days(
    written: str, duration_ms: int
) -> None:
    assert parse_duration("late_by", written) == duration_ms


@pytest.mark.parametrize(
    "nonsense",
    ["", "5", "m", "5 m", " 5m", "5m ", "5m\n", "-5m", "+5m", "1.5h", "05m", "5M", "5w", "5min", "\u0665m", "1h30m"],
)
def test_anything_else_is_refused_with_an_example(nonsense: str) -> None:
    with pytest.raises(InvalidValue, match=r'late_by: must be .*"5m"'):
        parse_duration("late_by", nonsense)


@pytest.mark.parametrize("value", [5, 5.0, True, None, ["5m"], b"5m"])
def test_a_bare_number_is_refused_since_its_unit_would_be_a_guess(value: object) -> None:
    with pytest.raises(InvalidValue, match='must be text such as "5m"'):
        parse_duration("late_by", value)


def test_a_duration_out_of_its_limits_is_refused_with_them() -> None:
    with pytest.raises(InvalidValue, match="must be from 1s to 36500d; got 1ms"):
        parse_duration("every", "1ms", at_least_ms=1_000)
    with pytest.raises(InvalidValue, match="must be from 0s to 36500d"):
        parse_duration("late_by", "999999999999d")


@pytest.mark.parametrize(
    ("duration_ms", "written"), [(86_400_000, "1d"), (90_000, "90s"), (1_500, "1500ms"), (0, "0s"), (7_200_000, "2h")]
)
def test_a_duration_is_written_in_its_largest_whole_unit(duration_ms: int, written: str) -> None:
    assert format_duration(duration_ms) == written


@given(st.integers(0, DURATION_MS_MAX))
def test_what_is_written_reads_back_the_same(duration_ms: int) -> None:
    assert parse_duration("any", format_duration(duration_ms)) == duration_ms

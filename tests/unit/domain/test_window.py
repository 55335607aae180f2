"""The window that never ends, and periods with a declared start and end."""

from __future__ import annotations

import pytest

from rankd.domain.window import AllTime, ClockReading, Period, Span
from rankd.errors import InvalidValue

SUMMER = Period("summer-26", 1_000, 2_000)


def test_all_time_holds_every_instant_and_has_no_neighbours() -> None:
    window = AllTime()
    assert window.instance_at(0) == window.instance_of(ClockReading(5)) == window.parse("all_time") == "all_time"
    assert window.span("all_time") == Span(None, None)
    assert window.span("all_time").holds(-(2**60))
    assert window.previous("all_time") is window.following("all_time") is None


@pytest.mark.parametrize("name", ["all_time:2026", "all_time:", "all-time"])
def test_all_time_has_one_instance_only(name: str) -> None:
    with pytest.raises(InvalidValue, match="names no instance of all_time; write one such as all_time"):
        AllTime().parse(name)


def test_a_period_holds_its_start_and_not_its_end() -> None:
    assert SUMMER.instance_at(999) is None
    assert SUMMER.instance_at(1_000) == "period:summer-26"
    assert SUMMER.instance_at(1_999) == "period:summer-26"
    assert SUMMER.instance_at(2_000) is None


def test_an_event_belongs_to_a_period_by_its_at_alone() -> None:
    assert SUMMER.instance_of(ClockReading(1_500, utc_offset_s=86_400)) == "period:summer-26"
    assert SUMMER.instance_of(ClockReading(2_500)) is None


def test_a_period_happens_once() -> None:
    assert SUMMER.span("period:summer-26") == (1_000, 2_000)
    assert SUMMER.previous("period:summer-26") is SUMMER.following("period:summer-26") is None
    assert SUMMER.begins_at(1_000)
    assert not SUMMER.begins_at(1_500)
    assert not SUMMER.begins_at(2_000)
    with pytest.raises(InvalidValue, match="names no instance of period:summer-26"):
        SUMMER.parse("period:winter-26")

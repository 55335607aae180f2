"""Windows cover time with no gap and no overlap, in every zone and around every change of clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankd.domain.calendar import Calendar, WeekStarts
from rankd.domain.instant import AT_MS_END
from rankd.domain.reset import Hourly, ResetSchedule
from rankd.domain.window import ClockReading, Window, WindowKind
from rankd.domain.zone import zone_named

from .clocks import ZONES

CRONS = ["0 18 * * 5", "30 2 * * *", "*/20 * * * *", "30 * * * *", "0 */6 * * *", "0 0 1 * *", "15,45 0-3 * * *"]


@cache  # to find all changes of a zone takes a while
def every_window(zone_name: str) -> list[Window]:
    zone = zone_named(zone_name)
    calendars: list[Window] = [
        Calendar(kind, zone) for kind in (WindowKind.YEARLY, WindowKind.MONTHLY, WindowKind.WEEKLY, WindowKind.DAILY)
    ]
    resetting = [ResetSchedule(f"cron{index}", expression, zone) for index, expression in enumerate(CRONS)]
    return [*calendars, Calendar(WindowKind.WEEKLY, zone, WeekStarts.SUNDAY), Hourly(zone), *resetting]


@st.composite
def zones_and_instants(draw: st.DrawFn) -> tuple[str, int]:
    """Anywhere in time, and often within a day and a half of a change of clocks or of a year's end."""
    zone = draw(st.sampled_from(ZONES))
    changes = [period.start * 1000 for period in zone_named(zone).wall[1:] if 0 < period.start * 1000 < AT_MS_END]
    year_ends = [int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000 for year in range(1971, 2199)]
    near = draw(st.sampled_from(changes + year_ends[:: 1 if not changes else 8]))
    close = draw(st.integers(-130_000_000, 130_000_000))
    anywhere = draw(st.integers(0, AT_MS_END - 1))
    return zone, min(max(0, draw(st.sampled_from([near, near + close, anywhere]))), AT_MS_END - 1)


@settings(max_examples=120, deadline=None)
@given(zones_and_instants())
def test_each_instant_is_in_exactly_one_instance_and_its_neighbours_touch_it(zone_and_at: tuple[str, int]) -> None:
    zone, at = zone_and_at
    for window in every_window(zone):
        instance = window.instance_at(at)
        assert instance is not None
        start, end = window.span(instance)
        assert start is not None
        assert end is not None
        assert start <= at < end
        assert window.instance_at(start) == window.instance_at(end - 1) == instance
        assert window.parse(instance) == instance
        following, previous = window.following(instance), window.previous(instance)
        assert following is not None
        assert previous is not None
        assert len({instance, following, previous}) == 3
        assert window.span(following).start == end
        assert window.span(previous).end == start
        assert window.following(previous) == window.previous(following) == instance


@settings(max_examples=120, deadline=None)
@given(zones_and_instants())
def test_what_is_stored_with_an_event_names_the_same_instance(zone_and_at: tuple[str, int]) -> None:
    zone, at = zone_and_at
    for window in every_window(zone):
        resets = {window.name: window.start_at(at)} if isinstance(window, ResetSchedule) else {}
        reading = ClockReading(at, zone_named(zone).offset_at(at), resets)
        assert window.instance_of(reading) == window.instance_at(at)


@settings(max_examples=120, deadline=None)
@given(zones_and_instants())
def test_each_hour_lies_in_one_day_and_each_day_in_one_week_month_and_year(zone_and_at: tuple[str, int]) -> None:
    zone, at = zone_and_at
    yearly, monthly, weekly, daily, sundays, hourly, *_ = every_window(zone)
    for part, wholes in (
        (hourly, (daily, weekly, sundays, monthly, yearly)),
        (daily, (weekly, sundays, monthly, yearly)),
    ):
        instance = part.instance_at(at)
        assert instance is not None
        start, end = part.span(instance)
        assert start is not None
        assert end is not None
        for whole in wholes:
            assert whole.instance_at(start) == whole.instance_at(end - 1)


@pytest.mark.parametrize("zone", ZONES)
def test_two_years_of_days_follow_each_other_without_a_seam(zone: str) -> None:
    daily = every_window(zone)[3]
    at = int(datetime(2010, 12, 30, tzinfo=UTC).timestamp()) * 1000
    instance = daily.instance_at(at)
    lengths_h = set()
    for _ in range(2 * 365):
        assert instance is not None
        start, end = daily.span(instance)
        assert start is not None
        assert end is not None
        lengths_h.add((end - start) / 3_600_000)
        following = daily.following(instance)
        assert following is not None
        assert daily.previous(following) == instance
        instance = following
    assert lengths_h <= {23, 23.5, 24, 24.5, 25} | {21.0, 27.0}


def test_an_event_keeps_its_windows_when_time_zone_data_changes() -> None:
    # As if Berlin had been found to be two hours further east after the event was stored.
    daily, hourly = Calendar(WindowKind.DAILY, zone_named("Europe/Berlin")), Hourly(zone_named("Europe/Berlin"))
    at = int(datetime(2026, 5, 4, 20, 30, tzinfo=UTC).timestamp()) * 1000
    stored = ClockReading(at, utc_offset_s=4 * 3600)
    assert daily.instance_at(at) == "daily:2026-05-04"
    assert daily.instance_of(stored) == "daily:2026-05-05"
    assert hourly.instance_of(stored) == "hourly:2026-05-04T2000Z"


def test_a_reset_named_under_older_time_zone_data_can_still_be_read() -> None:
    raid = ResetSchedule("raid", "0 18 * * 5", zone_named("Europe/Berlin"))
    now_named = raid.instance_at(int(datetime(2026, 5, 2, tzinfo=UTC).timestamp()) * 1000)
    assert now_named == "raid:2026-05-01T1600Z"
    assert raid.parse("raid:2026-05-01T1500Z") == "raid:2026-05-01T1500Z"
    start, end = raid.span("raid:2026-05-01T1500Z")
    assert start is not None
    assert end == start + timedelta(hours=1) // timedelta(milliseconds=1)

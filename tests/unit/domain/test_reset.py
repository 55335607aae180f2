"""Hours and cron windows, named by their start in UTC."""

from __future__ import annotations

import pytest

from rankd.domain.reset import Hourly, ResetSchedule
from rankd.domain.window import ClockReading
from rankd.domain.zone import zone_named
from rankd.errors import InvalidValue

from .clocks import ms


def test_the_repeated_hour_of_a_25_hour_day_is_two_instances() -> None:
    hourly = Hourly(zone_named("Europe/Berlin"))
    first = hourly.instance_at(ms("2026-10-25T02:30:00+02:00"))
    second = hourly.instance_at(ms("2026-10-25T02:30:00+01:00"))
    assert (first, second) == ("hourly:2026-10-25T0000Z", "hourly:2026-10-25T0100Z")
    assert hourly.following("hourly:2026-10-25T0000Z") == second


def test_the_skipped_hour_is_no_instance_of_its_own() -> None:
    hourly = Hourly(zone_named("Europe/Berlin"))
    assert hourly.following("hourly:2026-03-29T0000Z") == "hourly:2026-03-29T0100Z"


@pytest.mark.parametrize(
    ("zone", "at", "instance"),
    [
        ("Asia/Kolkata", "2026-05-04T09:00:00+05:30", "hourly:2026-05-04T0330Z"),
        ("Asia/Kathmandu", "2026-05-04T09:59:59+05:45", "hourly:2026-05-04T0315Z"),
        ("Pacific/Chatham", "2026-05-04T09:00:00+12:45", "hourly:2026-05-03T2015Z"),
    ],
)
def test_hours_of_zones_that_are_not_whole_hours_off_begin_at_their_own_full_hour(
    zone: str, at: str, instance: str
) -> None:
    assert Hourly(zone_named(zone)).instance_at(ms(at)) == instance


def test_half_an_hour_of_summer_time_makes_two_half_hours_each_named_by_its_start() -> None:
    hourly = Hourly(zone_named("Australia/Lord_Howe"))
    assert hourly.following("hourly:2026-04-04T1400Z") == "hourly:2026-04-04T1500Z"
    assert hourly.following("hourly:2026-04-04T1500Z") == "hourly:2026-04-04T1530Z"
    assert hourly.span("hourly:2026-04-04T1500Z") == (ms("2026-04-04T15:00:00Z"), ms("2026-04-04T15:30:00Z"))


def test_hours_of_an_offset_with_seconds_carry_them_in_their_names() -> None:
    hourly = Hourly(zone_named("Africa/Monrovia"))
    assert hourly.instance_at(0) == "hourly:1969-12-31T234430Z"
    assert hourly.parse("hourly:1969-12-31T234430Z") == "hourly:1969-12-31T234430Z"


@pytest.mark.parametrize(
    "name",
    [
        "hourly:2026-10-25T01Z",
        "hourly:2026-10-25T0117Z",
        "hourly:2026-10-25T0100",
        "hourly:2026-10-25T01:00Z",
        "hourly:2026-10-25",
        "hourly:2026-10-25T2400Z",
        "hourly:9999-10-25T0100Z",
        "hourly:2026-10-25T010000Z",
    ],
)
def test_an_hour_that_begins_at_no_hour_is_nonsense(name: str) -> None:
    with pytest.raises(InvalidValue, match=r"names no instance of hourly; write one such as hourly:2026-"):
        Hourly(zone_named("UTC")).parse(name)


def test_a_cron_window_lasts_from_one_reset_to_the_next() -> None:
    raid = ResetSchedule("raid", "0 18 * * 5", zone_named("UTC"))
    assert raid.instance_at(ms("2026-05-01T18:00:00Z")) == "raid:2026-05-01T1800Z"
    assert raid.instance_at(ms("2026-05-01T17:59:59Z")) == "raid:2026-04-24T1800Z"
    assert raid.span("raid:2026-05-01T1800Z") == (ms("2026-05-01T18:00:00Z"), ms("2026-05-08T18:00:00Z"))
    assert raid.previous("raid:2026-05-01T1800Z") == "raid:2026-04-24T1800Z"


def test_a_cron_window_over_a_change_of_clocks_is_an_hour_longer_or_shorter() -> None:
    raid = ResetSchedule("raid", "0 18 * * 5", zone_named("Europe/Berlin"))
    start, end = raid.span("raid:2026-10-23T1600Z")
    assert (start, end) == (ms("2026-10-23T18:00:00+02:00"), ms("2026-10-30T18:00:00+01:00"))


@pytest.mark.parametrize(
    "name",
    [
        "raid:2026-05-01T1801Z",
        "raid:2026-05-02T1800Z",
        "raid:2026-05-01",
        "raid:",
        "raid:now",
        "raids:2026-05-01T1800Z",
    ],
)
def test_a_name_at_which_nothing_resets_is_nonsense(name: str) -> None:
    with pytest.raises(InvalidValue, match=r"names no instance of raid; write one such as raid:2026-0\d-\d\dT1800Z"):
        ResetSchedule("raid", "0 18 * * 5", zone_named("UTC")).parse(name)


def test_a_cron_window_is_named_from_the_stored_start_alone() -> None:
    raid = ResetSchedule("raid", "0 18 * * 5", zone_named("UTC"))
    at = ms("2026-05-03T00:00:00Z")
    assert raid.instance_of(ClockReading(at, 0, {"raid": ms("2026-05-01T17:00:00Z")})) == "raid:2026-05-01T1700Z"


def test_an_event_older_than_the_window_belongs_to_none_of_its_instances() -> None:
    raid = ResetSchedule("raid", "0 18 * * 5", zone_named("UTC"))
    assert raid.instance_of(ClockReading(ms("2026-05-03T00:00:00Z"))) is None

"""The oracle's calendar against days that were looked up by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from .oracle_calendar import Window, instance_at, last_midnight_ms, previous_instance

BERLIN, NEW_YORK, LORD_HOWE, APIA = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"
ST_JOHNS = "America/St_Johns"


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1000


def named(kind: str, at: str, zone: str, week_starts: str = "monday") -> str:
    """Say name, start and end of the instance that holds an instant, in UTC."""
    window = Window("cron", "raid", reset=kind) if " " in kind else Window(kind, kind)
    instance = instance_at(window, zone, week_starts, ms(at))
    assert instance is not None
    assert instance.start is not None
    assert instance.end is not None
    start, end = (datetime.fromtimestamp(edge / 1000, UTC) for edge in (instance.start, instance.end))
    return f"{instance.name} from {start:%Y-%m-%dT%H:%M} to {end:%Y-%m-%dT%H:%M}"


@pytest.mark.parametrize(
    ("kind", "at", "zone", "expected"),
    [
        ("yearly", "2026-05-04T10:00Z", "UTC", "yearly:2026 from 2026-01-01T00:00 to 2027-01-01T00:00"),
        ("monthly", "2026-02-10T10:00Z", BERLIN, "monthly:2026-02 from 2026-01-31T23:00 to 2026-02-28T23:00"),
        ("weekly", "2026-05-03T10:00Z", "UTC", "weekly:2026-W18 from 2026-04-27T00:00 to 2026-05-04T00:00"),
        ("weekly", "2027-01-02T10:00Z", "UTC", "weekly:2026-W53 from 2026-12-28T00:00 to 2027-01-04T00:00"),
        ("daily", "2026-03-29T10:00Z", BERLIN, "daily:2026-03-29 from 2026-03-28T23:00 to 2026-03-29T22:00"),
        ("daily", "2026-10-25T10:00Z", BERLIN, "daily:2026-10-25 from 2026-10-24T22:00 to 2026-10-25T23:00"),
        # The day that Samoa skipped to change sides of the date line.
        ("daily", "2011-12-30T10:00Z", APIA, "daily:2011-12-31 from 2011-12-30T10:00 to 2011-12-31T10:00"),
        ("daily", "2011-12-30T09:59Z", APIA, "daily:2011-12-29 from 2011-12-29T10:00 to 2011-12-30T10:00"),
        # At one minute past midnight the clocks of Newfoundland went back into a day that was over.
        ("daily", "2010-11-07T03:00Z", ST_JOHNS, "daily:2010-11-07 from 2010-11-07T02:30 to 2010-11-08T03:30"),
        # 02:00 to 03:00 in Berlin happens twice: once until 01:00 UTC and once after it.
        ("hourly", "2026-10-25T00:30Z", BERLIN, "hourly:2026-10-25T0000Z from 2026-10-25T00:00 to 2026-10-25T01:00"),
        ("hourly", "2026-10-25T01:30Z", BERLIN, "hourly:2026-10-25T0100Z from 2026-10-25T01:00 to 2026-10-25T02:00"),
        # Lord Howe goes back by half an hour, from 02:00 to 01:30.
        ("hourly", "2026-04-04T14:40Z", LORD_HOWE, "hourly:2026-04-04T1400Z from 2026-04-04T14:00 to 2026-04-04T15:00"),
        ("hourly", "2026-04-04T15:10Z", LORD_HOWE, "hourly:2026-04-04T1500Z from 2026-04-04T15:00 to 2026-04-04T15:30"),
        ("0 18 * * 5", "2026-05-04T10:00Z", "UTC", "raid:2026-05-01T1800Z from 2026-05-01T18:00 to 2026-05-08T18:00"),
        # Half past two is skipped in March: the reset comes with the change at 01:00 UTC.
        ("30 2 * * *", "2026-03-29T10:00Z", BERLIN, "raid:2026-03-29T0100Z from 2026-03-29T01:00 to 2026-03-30T00:30"),
        # It is repeated in October: only the first one resets.
        ("30 2 * * *", "2026-10-25T01:45Z", BERLIN, "raid:2026-10-25T0030Z from 2026-10-25T00:30 to 2026-10-26T01:30"),
        # With a star, both do.
        ("30 * * * *", "2026-10-25T01:45Z", BERLIN, "raid:2026-10-25T0130Z from 2026-10-25T01:30 to 2026-10-25T02:30"),
    ],
)
def test_an_instant_is_in_the_instance_a_person_would_name(kind: str, at: str, zone: str, expected: str) -> None:
    assert named(kind, at, zone) == expected


def test_weeks_may_begin_on_sunday() -> None:
    assert named("weekly", "2026-05-03T10:00Z", "UTC", "sunday") == (
        "weekly:2026-05-03 from 2026-05-03T00:00 to 2026-05-10T00:00"
    )


def test_a_period_has_one_instance_while_it_lasts() -> None:
    period = Window("period", "period:cup", start=1_000, end=2_000)

    instances = [instance_at(period, "UTC", "monday", at) for at in (999, 1_000, 1_999, 2_000)]

    assert [instance and instance.name for instance in instances] == [None, "period:cup", "period:cup", None]


def test_the_last_midnight_is_that_of_the_boards_clock() -> None:
    assert last_midnight_ms(NEW_YORK, ms("2026-03-08T03:00Z")) == ms("2026-03-07T05:00Z")
    assert last_midnight_ms(NEW_YORK, ms("2026-03-09T03:59Z")) == ms("2026-03-08T05:00Z")
    assert last_midnight_ms(NEW_YORK, ms("2026-03-09T04:00Z")) == ms("2026-03-09T04:00Z")


def test_the_instance_before_ends_where_this_one_begins() -> None:
    week = Window("weekly", "weekly")
    this = instance_at(week, "UTC", "monday", ms("2027-01-04T00:00Z"))
    assert this is not None

    before = previous_instance(week, "UTC", "monday", this)

    assert before is not None
    assert (before.name, before.end) == ("weekly:2026-W53", this.start)

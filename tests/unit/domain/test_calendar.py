"""Years, months, weeks and days: their names and their limits."""

from __future__ import annotations

import pytest

from rankd.domain.calendar import Calendar, WeekStarts
from rankd.domain.window import WindowKind
from rankd.domain.zone import zone_named
from rankd.errors import InvalidValue

from .clocks import ms

UTC = zone_named("UTC")
YEARLY, MONTHLY, WEEKLY, DAILY = (
    Calendar(kind, UTC) for kind in (WindowKind.YEARLY, WindowKind.MONTHLY, WindowKind.WEEKLY, WindowKind.DAILY)
)
SUNDAYS = Calendar(WindowKind.WEEKLY, UTC, WeekStarts.SUNDAY)


@pytest.mark.parametrize(
    ("window", "instance", "start", "end"),
    [
        (YEARLY, "yearly:2026", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        (MONTHLY, "monthly:2026-05", "2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z"),
        (MONTHLY, "monthly:2024-02", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"),
        (MONTHLY, "monthly:2026-12", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        (WEEKLY, "weekly:2026-W18", "2026-04-27T00:00:00Z", "2026-05-04T00:00:00Z"),
        (SUNDAYS, "weekly:2026-05-03", "2026-05-03T00:00:00Z", "2026-05-10T00:00:00Z"),
        (DAILY, "daily:2026-05-04", "2026-05-04T00:00:00Z", "2026-05-05T00:00:00Z"),
        (DAILY, "daily:2024-02-29", "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z"),
    ],
)
def test_an_instance_is_named_by_its_date_and_lasts_until_the_next(
    window: Calendar, instance: str, start: str, end: str
) -> None:
    assert window.span(instance) == (ms(start), ms(end))
    assert window.instance_at(ms(start)) == window.instance_at(ms(end) - 1) == instance
    assert window.instance_at(ms(end)) == window.following(instance) != instance


def test_a_week_of_iso_53_exists_in_long_years_and_holds_the_first_days_of_the_next() -> None:
    assert WEEKLY.instance_at(ms("2027-01-01T12:00:00Z")) == "weekly:2026-W53"
    assert WEEKLY.instance_at(ms("2021-01-03T23:59:59Z")) == "weekly:2020-W53"
    assert WEEKLY.following("weekly:2026-W53") == "weekly:2027-W01"
    with pytest.raises(InvalidValue, match="names no instance of weekly"):
        WEEKLY.parse("weekly:2025-W53")


def test_the_first_iso_week_may_begin_in_the_year_before() -> None:
    assert WEEKLY.instance_at(ms("2025-12-29T00:00:00Z")) == "weekly:2026-W01"
    assert WEEKLY.instance_at(0) == "weekly:1970-W01"


def test_a_sunday_week_is_named_by_its_sunday_and_by_no_other_day() -> None:
    assert SUNDAYS.instance_at(ms("2026-05-09T23:59:59Z")) == "weekly:2026-05-03"
    assert SUNDAYS.instance_at(ms("2026-05-03T00:00:00Z")) == "weekly:2026-05-03"
    assert SUNDAYS.previous("weekly:2026-05-03") == "weekly:2026-04-26"
    with pytest.raises(InvalidValue, match="is no Sunday; that week is weekly:2026-05-03"):
        SUNDAYS.parse("weekly:2026-05-04")
    with pytest.raises(InvalidValue, match="write one such as weekly:2026-05-03"):
        SUNDAYS.parse("weekly:2026-W18")


def test_the_local_date_of_the_boards_zone_counts() -> None:
    at = ms("2026-05-04T23:30:00Z")
    assert Calendar(WindowKind.DAILY, zone_named("Europe/Berlin")).instance_at(at) == "daily:2026-05-05"
    assert Calendar(WindowKind.DAILY, zone_named("America/New_York")).instance_at(at) == "daily:2026-05-04"
    assert Calendar(WindowKind.DAILY, zone_named("America/New_York")).instance_at(0) == "daily:1969-12-31"


def test_a_skipped_day_can_be_read_is_empty_and_lies_between_no_others() -> None:
    apia = Calendar(WindowKind.DAILY, zone_named("Pacific/Apia"))
    start, end = apia.span(apia.parse("daily:2011-12-30"))
    assert start == end
    assert apia.following("daily:2011-12-29") == "daily:2011-12-31"
    assert apia.previous("daily:2011-12-31") == "daily:2011-12-29"


@pytest.mark.parametrize(
    ("window", "name"),
    [
        (YEARLY, "yearly:26"),
        (YEARLY, "yearly:20266"),
        (YEARLY, "yearly:2026-01"),
        (YEARLY, "yearly:"),
        (YEARLY, "yearly"),
        (MONTHLY, "monthly:2026-13"),
        (MONTHLY, "monthly:2026-00"),
        (MONTHLY, "monthly:2026-5"),
        (WEEKLY, "weekly:2026-W00"),
        (WEEKLY, "weekly:2026-W54"),
        (WEEKLY, "weekly:2026-w18"),
        (WEEKLY, "weekly:2026-05-03"),
        (DAILY, "daily:2026-02-29"),
        (DAILY, "daily:2026-02-30"),
        (DAILY, "daily:2026-5-4"),
        (DAILY, "daily:2026-05-04 "),
        (DAILY, "daily:٢٠٢٦-05-04"),
        (DAILY, "daily:yesterday"),
        (DAILY, "weekly:2026-05-04"),
    ],
)
def test_nonsense_is_refused_with_an_example(window: Calendar, name: str) -> None:
    with pytest.raises(InvalidValue, match=f"names no instance of {window.name}; write one such as {window.name}:2026"):
        window.parse(name)


@pytest.mark.parametrize("name", ["daily:0026-05-04", "daily:1899-12-31", "daily:2300-01-01", "daily:9999-12-31"])
def test_years_far_from_any_score_are_refused_with_the_range(name: str) -> None:
    with pytest.raises(InvalidValue, match="years go from 1900 to 2299"):
        DAILY.parse(name)

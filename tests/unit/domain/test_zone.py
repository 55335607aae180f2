"""The board's clock: the wall clock, made orderly where it goes back over midnight or changes inside an hour."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankd.domain.instant import AT_MS_END
from rankd.domain.zone import DAY_S, check_time_zone, hour_start, local_day, zone_named
from rankd.errors import InvalidValue

from .clocks import ZONES, day_of, ms


def wall_offset(zone: str, at: int) -> int:
    offset = datetime.fromtimestamp(at // 1000, ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return offset // timedelta(seconds=1)


@pytest.mark.parametrize("zone", ZONES)
def test_away_from_changes_the_board_uses_the_offset_of_the_wall_clock(zone: str) -> None:
    changes = [period.start for period in zone_named(zone).wall]
    for seconds in range(0, AT_MS_END // 1000, 1_000_003 * 7):
        if all(not change <= seconds < change + DAY_S for change in changes):
            assert zone_named(zone).offset_at(seconds * 1000) == wall_offset(zone, seconds * 1000)


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kolkata"]
)
def test_where_clocks_change_on_the_hour_the_board_uses_the_wall_clock_always(zone: str) -> None:
    for period in zone_named(zone).wall[1:]:
        for seconds in (period.start - 1, period.start, period.start + 1, period.start + 1800):
            assert zone_named(zone).offset_at(seconds * 1000) == wall_offset(zone, seconds * 1000)


@settings(max_examples=300)
@given(st.sampled_from(ZONES), st.data())
def test_local_dates_never_go_back(zone: str, data: st.DataObject) -> None:
    clock = zone_named(zone)
    near = data.draw(st.sampled_from(clock.wall)).start % (AT_MS_END // 1000)
    at = (near + data.draw(st.integers(-2 * DAY_S, 2 * DAY_S))) * 1000
    later = at + data.draw(st.integers(0, 2 * DAY_S)) * 1000
    assert local_day(at, clock.offset_at(at)) <= local_day(later, clock.offset_at(later))
    assert hour_start(at, clock.offset_at(at)) <= at
    assert hour_start(at, clock.offset_at(at)) <= hour_start(later, clock.offset_at(later))


def test_a_day_of_23_and_one_of_25_hours_lie_between_their_midnights() -> None:
    berlin = zone_named("Europe/Berlin")
    assert berlin.midnight(day_of("2026-03-30")) - berlin.midnight(day_of("2026-03-29")) == 23 * 3_600_000
    assert berlin.midnight(day_of("2026-10-26")) - berlin.midnight(day_of("2026-10-25")) == 25 * 3_600_000


@pytest.mark.parametrize(
    ("zone", "day", "begins"),
    [
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04T01:00:00-02:00"),
        ("Africa/Cairo", "2024-04-26", "2024-04-26T01:00:00+03:00"),
        ("America/Nuuk", "2026-03-29", "2026-03-29T00:00:00-01:00"),
        ("Asia/Pyongyang", "2018-05-05", "2018-05-05T00:00:00+09:00"),
    ],
)
def test_a_day_whose_midnight_does_not_exist_begins_where_the_clock_jumps(zone: str, day: str, begins: str) -> None:
    assert zone_named(zone).midnight(day_of(day)) == ms(begins)


def test_a_skipped_day_begins_with_the_next_and_holds_nothing() -> None:
    apia = zone_named("Pacific/Apia")
    assert apia.midnight(day_of("2011-12-30")) == apia.midnight(day_of("2011-12-31")) == ms("2011-12-31T00:00:00+14:00")


def test_midnights_around_an_instant_skip_a_day_that_did_not_happen() -> None:
    apia = zone_named("Pacific/Apia")
    change = ms("2011-12-31T00:00:00+14:00")
    assert apia.midnights_around(change - 1) == (change - 24 * 3_600_000, change)
    assert apia.midnights_around(change) == (change, change + 24 * 3_600_000)


def test_a_clock_that_goes_back_over_midnight_does_not_enter_the_old_day_again() -> None:
    # At 00:01 the clocks of Newfoundland went back to 23:01 of the day before.
    newfoundland = zone_named("America/St_Johns")
    change = ms("2010-11-07T02:31:00+00:00")
    for minutes in (0, 30, 58):
        at = change + minutes * 60_000
        assert newfoundland.offset_at(at) == -9_000
        assert local_day(at, newfoundland.offset_at(at)) == day_of("2010-11-07")
    assert newfoundland.offset_at(change + 59 * 60_000) == -12_600
    assert newfoundland.midnight(day_of("2010-11-07")) == ms("2010-11-07T00:00:00-02:30")


def test_three_hours_back_over_midnight_stay_in_the_day_that_had_begun() -> None:
    casey = zone_named("Antarctica/Casey")
    change = ms("2010-03-05T02:00:00+11:00")
    assert casey.offset_at(change + 3_599_000) == 11 * 3_600
    assert casey.offset_at(change + 3_600_000) == 8 * 3_600
    assert casey.midnight(day_of("2010-03-05")) == ms("2010-03-05T00:00:00+11:00")


def test_an_hour_cut_by_half_an_hour_of_summer_time_begins_at_the_change() -> None:
    lord_howe = zone_named("Australia/Lord_Howe")
    back = ms("2026-04-05T02:00:00+11:00")
    assert lord_howe.hour_around(back - 1) == (back - 3_600_000, back)
    assert lord_howe.hour_around(back) == (back, back + 1_800_000)
    assert lord_howe.hour_around(back + 1_800_000) == (back + 1_800_000, back + 5_400_000)
    forward = ms("2026-10-04T02:00:00+10:30")
    assert lord_howe.hour_around(forward) == (forward, forward + 1_800_000)


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/Argentina/Buenos_Aires", "Etc/GMT+12"]
)
def test_zones_of_the_iana_database_are_known(zone: str) -> None:
    assert check_time_zone("time_zone", zone) == zone


@pytest.mark.parametrize(
    "zone",
    ["", "Mars/Olympus", "../UTC", "/etc/passwd", "America", "localtime", "right/UTC", "UTC\0", 5, None, "x" * 5000],
)
def test_what_is_no_zone_is_refused(zone: object) -> None:
    with pytest.raises(InvalidValue, match=r"time_zone: (is no time zone|must be the name)"):
        check_time_zone("time_zone", zone)


def test_a_misspelled_zone_is_answered_with_the_nearest() -> None:
    with pytest.raises(InvalidValue, match=r"did you mean Europe/Berlin\?"):
        check_time_zone("time_zone", "Europe/Berln")

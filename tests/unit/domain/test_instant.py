"""Instants are milliseconds since 1970; an event's own `at` lies near now."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd.domain.instant import (
    AT_MS_END,
    check_at,
    check_sent_at,
    compact_utc,
    parse_compact_utc,
    parse_instant,
)
from rankd.domain.order import TIE_FIELD_MAX
from rankd.errors import InvalidValue

NOW = 1_777_658_400_000


def test_at_goes_from_1970_to_2199() -> None:
    assert datetime.fromtimestamp(AT_MS_END / 1000, UTC) == datetime(2200, 1, 1, tzinfo=UTC)
    assert check_at(0) == 0
    assert check_at(AT_MS_END - 1) == AT_MS_END - 1


@pytest.mark.parametrize("value", [-1, AT_MS_END, 10**30, True, 1.0, "0", None])
def test_any_other_at_is_refused(value: object) -> None:
    with pytest.raises(InvalidValue, match="at: must be"):
        check_at(value)


def test_every_step_of_one_millisecond_fits_the_tie_field() -> None:
    assert AT_MS_END - 1 <= TIE_FIELD_MAX


def test_a_sent_at_may_be_five_seconds_ahead_and_late_by_behind() -> None:
    assert check_sent_at(NOW + 5_000, NOW, late_by_ms=300_000) == NOW + 5_000
    assert check_sent_at(NOW - 300_000, NOW, late_by_ms=300_000) == NOW - 300_000
    with pytest.raises(InvalidValue, match="at: is 5001 ms ahead"):
        check_sent_at(NOW + 5_001, NOW, late_by_ms=300_000)
    with pytest.raises(InvalidValue, match="at: is 300001 ms ago"):
        check_sent_at(NOW - 300_001, NOW, late_by_ms=300_000)


def test_an_import_may_go_back_to_1970_but_not_into_the_future() -> None:
    assert check_sent_at(0, NOW, late_by_ms=None) == 0
    with pytest.raises(InvalidValue, match="ahead"):
        check_sent_at(NOW + 5_001, NOW, late_by_ms=None)


@pytest.mark.parametrize(
    "written",
    [
        1_780_264_800_000,
        "2026-05-31T22:00:00Z",
        "2026-06-01T00:00:00+02:00",
        "2026-05-31t22:00:00.000z",
        "2026-05-31 22:00:00.0-00:00",
        datetime(2026, 5, 31, 22, tzinfo=UTC),
        datetime(2026, 6, 1, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_an_instant_is_given_as_milliseconds_or_rfc_3339_or_a_toml_date_time(written: object) -> None:
    assert parse_instant("start", written) == 1_780_264_800_000


@pytest.mark.parametrize("fraction", [".123", ".123000"])
def test_milliseconds_of_an_instant_count(fraction: str) -> None:
    assert parse_instant("start", f"2026-05-31T22:00:00{fraction}Z") == 1_780_264_800_123


@pytest.mark.parametrize(
    "written",
    [
        "2026-06-01",
        "2026-06-01T00:00:00",
        "2026-06-01T00:00Z",
        "20260601T000000Z",
        "2026-W23-1T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-06-01T24:00:01Z",
        "2026-06-01T00:00:60Z",
        "2026-06-01T00:00:00.0001Z",
        "1969-12-31T23:59:59Z",
        "2200-01-01T00:00:00Z",
        "",
        datetime(2026, 6, 1),
        date(2026, 6, 1),
        1.5,
        None,
        True,
    ],
)
def test_an_instant_without_offset_or_sense_is_refused(written: object) -> None:
    with pytest.raises(InvalidValue, match="start: "):
        parse_instant("start", written)


def test_names_show_seconds_only_where_there_are_some() -> None:
    assert compact_utc(1_792_890_000_000) == "2026-10-25T0100Z"
    assert compact_utc(1_792_890_030_000) == "2026-10-25T010030Z"


@given(st.integers(-(2**31), 2**33))
def test_names_read_back_to_the_same_instant(seconds: int) -> None:
    assert parse_compact_utc(compact_utc(seconds * 1000)) == seconds * 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-10-25",
        "2026-10-25T01Z",
        "2026-10-25T0100",
        "2026-10-25T010000Z",
        "2026-10-25T2500Z",
        "0026-01-01T0000Z",
    ],
)
def test_other_spellings_of_an_instant_are_not_names(text: str) -> None:
    assert parse_compact_utc(text) is None

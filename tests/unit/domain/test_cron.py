"""Cron expressions on a wall clock that skips and repeats hours."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd.domain.cron import Cron, check_cron
from rankd.domain.zone import zone_named
from rankd.errors import InvalidValue

from .clocks import ms

MINUTE = timedelta(minutes=1)
MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("written", "uniform"),
    [
        ("0 18 * * 5", "0 18 * * 5"),
        ("  0  18 * *\tfri ", "0 18 * * FRI"),
        ("*/15 0-6,12 1,L 1-6 *", "*/15 0-6,12 1,L 1-6 *"),
        ("0 0 29 2 *", "0 0 29 2 *"),
        ("@weekly", "0 0 * * 0"),
        (" @Hourly ", "0 * * * *"),
        ("0 18 * january,jun friday-saturday", "0 18 * JAN,JUN FRI-SAT"),
        ("3-3/2,10-12/2 * * * *", "3,10-12/2 * * * *"),
        ("03-3/2 3-003 * * *", "03 3 * * *"),
        ("0 0 * jan-january/2 fri-fri/2,sat-6/2", "0 0 * JAN FRI,SAT"),
        ("0 0 1-1/2 1-jan/2 7-7/3", "0 0 1 1 7"),
        ("*/59 */23 */31 */12 */7", "*/59 */23 */31 */12 */7"),
    ],
)
def test_an_expression_of_five_fields_is_made_uniform(written: str, uniform: str) -> None:
    assert check_cron("reset", written) == uniform


@pytest.mark.parametrize(
    "written",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "0 24 * * *",
        "0 0 0 * *",
        "0 0 30 2 *",
        "a b c d e",
        "@reboot",
        "@",
        "*/61 * * * *",
        "*/0 * * * *",
        "2/60 * * * *",
        "0 */24 * * *",
        "0 0 * * fridays",
        "3-3/2/2 * * * *",
        "0 0 * * fri-fri-fri",
        5,
        None,
        "0 0 1 1 " + "1," * 200,
    ],
)
def test_what_is_no_expression_is_refused_under_its_fields_name(written: object) -> None:
    with pytest.raises(InvalidValue, match=r"windows\[1\].reset: "):
        check_cron("windows[1].reset", written)


@given(st.text("0123456789*/,-#LW ", max_size=24))
def test_no_text_does_worse_than_be_refused(text: str) -> None:
    with suppress(InvalidValue):
        uniform = check_cron("reset", text)
        assert check_cron("reset", uniform) == uniform


class Resets(NamedTuple):
    """An expression and what it means, spelled out."""

    expression: str
    hours: set[int]
    minutes: set[int]
    every_time: bool

    def match(self, reading: datetime) -> bool:
        return reading.hour in self.hours and reading.minute in self.minutes


def _brute_force(zone: str, expected: Resets, first: int, last: int) -> list[int]:
    """Walk minute by minute: what is read for the first time counts; skipped readings count at the jump."""
    resets: list[int] = []
    seen: set[datetime] = set()
    before: datetime | None = None
    for at in range(first, last, MINUTE_MS):
        reading = datetime.fromtimestamp(at // 1000, ZoneInfo(zone)).replace(tzinfo=None, fold=0)
        counts = expected.match(reading) and (expected.every_time or reading not in seen)
        if not expected.every_time and before is not None and reading > before:
            skipped = range(1, (reading - before) // MINUTE)
            between = [before + MINUTE * step for step in skipped]
            counts = counts or any(map(expected.match, between))
        if counts:
            resets.append(at)
        seen.add(reading)
        before = reading
    return resets


@pytest.mark.parametrize(
    ("zone", "around"),
    [
        ("Europe/Berlin", "2026-03-29T01:00:00Z"),
        ("Europe/Berlin", "2026-10-25T01:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
        ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
        ("America/St_Johns", "2010-11-07T02:31:00Z"),
        ("Pacific/Apia", "2011-12-30T10:00:00Z"),
        ("Asia/Kolkata", "2026-05-04T00:00:00Z"),
    ],
)
@pytest.mark.parametrize(
    "expected",
    [
        Resets("30 2 * * *", {2}, {30}, every_time=False),
        Resets("30 0 * * *", {0}, {30}, every_time=False),
        Resets("0 2 * * *", {2}, {0}, every_time=False),
        Resets("0,45 1-3 * * *", {1, 2, 3}, {0, 45}, every_time=False),
        Resets("45 1,23 * * *", {1, 23}, {45}, every_time=False),
        Resets("*/20 * * * *", set(range(24)), {0, 20, 40}, every_time=True),
        Resets("30 * * * *", set(range(24)), {30}, every_time=True),
        Resets("15 */2 * * *", set(range(0, 24, 2)), {15}, every_time=True),
    ],
    ids=lambda expected: expected.expression,
)
def test_resets_around_a_change_of_clocks_are_those_of_a_minute_by_minute_walk(
    zone: str, around: str, expected: Resets
) -> None:
    first, last = ms(around) - 36 * 3_600_000, ms(around) + 36 * 3_600_000
    walked = _brute_force(zone, expected, first, last)
    cron = Cron(expected.expression, zone_named(zone))
    resets, at = [], first - 1
    while (at := cron.next(at)) < last:
        resets.append(at)
    assert resets == walked
    for at in range(walked[0], last, 7 * MINUTE_MS + 1_001):
        assert cron.last(at) == max(reset for reset in walked if reset <= at)


def test_a_rare_date_is_found_over_many_changes_of_clocks() -> None:
    cron = Cron("0 12 29 2 *", zone_named("Europe/Berlin"))
    assert cron.last(ms("2028-02-29T10:59:59Z")) == ms("2024-02-29T11:00:00Z")
    assert cron.next(ms("2024-02-29T11:00:00Z")) == ms("2028-02-29T11:00:00Z")
    assert cron.last(0) == ms("1968-02-29T11:00:00Z")

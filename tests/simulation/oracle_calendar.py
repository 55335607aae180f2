"""The oracle's calendar: which instance of a window an instant is in, searched for instead of computed.

Everything is asked of zoneinfo and cronsim; where the rules of a board's clock say "the first instant at which …", the
code looks for that instant. Slow, and meant to be believed on reading. Instants are milliseconds; inside, seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

HOUR_S = 3_600
DAY_S = 86_400
REACH_S = 27 * HOUR_S  # no clock is farther from UTC, and no change of clocks is larger
BACK_S = 4 * HOUR_S  # no clock goes back by more
YEARS = range(2005, 2040)  # in which runs take place

EPOCH_DAY = date(1970, 1, 1)
LOCAL_ZERO = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Instance:
    """One instance of a window: its full name, start and end in ms, end exclusive."""

    name: str
    start: int | None
    end: int | None

    def holds(self, at: int) -> bool:
        return (self.start is None or self.start <= at) and not self.is_over(at)

    def is_over(self, now: int) -> bool:
        return self.end is not None and self.end <= now


@dataclass(frozen=True)
class Window:
    """A window as a definition declares it; `name` is `period:summer` for a period."""

    kind: str
    name: str
    reset: str = ""
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class Change:
    """An instant (s) at which a wall clock was put on or back, with its offsets from UTC before and after."""

    when: int
    before: int
    after: int


def first_second(reached: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first second at which something that stays true is true."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle + 1, high)
    return low


@cache
def wall_offset(zone: str, second: int) -> int:
    offset = datetime.fromtimestamp(second, ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


@cache
def changes(zone: str) -> list[Change]:
    """Return every change of a wall clock in the years of the runs; no zone changes twice in a day."""
    clock_changes = []
    first = int(datetime(YEARS.start - 1, 1, 1, tzinfo=UTC).timestamp())
    last = int(datetime(YEARS.stop + 1, 1, 1, tzinfo=UTC).timestamp())
    for day in range(first, last, DAY_S):
        before, after = wall_offset(zone, day), wall_offset(zone, day + DAY_S)
        if before != after:
            when = first_second(lambda second, old=before: wall_offset(zone, second) != old, day, day + DAY_S)  # type: ignore[misc]
            clock_changes.append(Change(when, before, after))
    return clock_changes


@cache
def changes_near(zone: str, day: int) -> list[Change]:
    return [change for change in changes(zone) if abs(change.when - day * DAY_S) <= 3 * DAY_S]


def past_changes(zone: str, second: int) -> list[Change]:
    return [change for change in changes_near(zone, second // DAY_S) if change.when <= second]


def used_offset(zone: str, second: int) -> int:
    """Return the offset the board's clock uses: the old one while the new one reads a day that is already over."""
    for change in past_changes(zone, second):
        day_reached = (change.when - 1 + change.before) // DAY_S
        if (second + change.after) // DAY_S < day_reached:
            return change.before
    return wall_offset(zone, second)


@cache
def local_date(zone: str, second: int) -> date:
    return EPOCH_DAY + timedelta(days=(second + used_offset(zone, second)) // DAY_S)


@cache
def midnight(zone: str, day: date) -> int:
    """Return the first second at which the board's clock reads this day or a later one."""
    utc = (day - EPOCH_DAY).days * DAY_S
    return first_second(lambda second: local_date(zone, second) >= day, utc - REACH_S, utc + REACH_S)


def last_midnight_ms(zone: str, at: int) -> int:
    return midnight(zone, local_date(zone, at // 1000)) * 1000


def hour(zone: str, second: int) -> tuple[int, int]:
    """Return the local hour: between whole hours of the board's clock, cut where its offset changes."""
    offset = used_offset(zone, second)
    start = (second + offset) // HOUR_S * HOUR_S - offset
    end = start + HOUR_S
    if used_offset(zone, start) != offset:
        start = first_second(lambda at: used_offset(zone, at) == offset, start, second)
    if used_offset(zone, end - 1) != offset:
        end = first_second(lambda at: used_offset(zone, at) != offset, second, end - 1)
    return start, end


def first_of(kind: str, day: date, week_starts: str) -> date:
    match kind:
        case "yearly":
            return day.replace(month=1, day=1)
        case "monthly":
            return day.replace(day=1)
        case "weekly":
            while day.strftime("%A").lower() != week_starts:
                day -= timedelta(days=1)
            return day
        case _:
            return day


def first_of_next(kind: str, first: date, week_starts: str) -> date:
    day = first + timedelta(days=1)
    while first_of(kind, day, week_starts) == first:
        day += timedelta(days=1)
    return day


def calendar_label(kind: str, first: date, week_starts: str) -> str:
    match kind:
        case "yearly":
            return first.strftime("%Y")
        case "monthly":
            return first.strftime("%Y-%m")
        case "weekly" if week_starts == "monday":
            return first.strftime("%G-W%V")
        case _:
            return first.strftime("%Y-%m-%d")


def utc_label(second: int) -> str:
    moment = datetime.fromtimestamp(second, UTC)
    return moment.strftime("%Y-%m-%dT%H%M%SZ" if moment.second else "%Y-%m-%dT%H%MZ")


@cache
def calendar_instance(kind: str, day: date, zone: str, week_starts: str) -> Instance:
    first = first_of(kind, day, week_starts)
    following = first_of_next(kind, first, week_starts)
    label = calendar_label(kind, first, week_starts)
    return Instance(f"{kind}:{label}", midnight(zone, first) * 1000, midnight(zone, following) * 1000)


def instance_at(window: Window, zone: str, week_starts: str, at: int) -> Instance | None:
    """Return the instance of a window that holds an instant; None outside a period."""
    match window.kind:
        case "all_time":
            return Instance("all_time", None, None)
        case "period":
            return Instance(window.name, window.start, window.end) if window.start <= at < window.end else None
        case "hourly":
            start, end = hour(zone, at // 1000)
        case "cron":
            start, end = resets_around(window.reset, zone, at // 1000)
        case _:
            return calendar_instance(window.kind, local_date(zone, at // 1000), zone, week_starts)
    return Instance(f"{window.name}:{utc_label(start)}", start * 1000, end * 1000)


def previous_instance(window: Window, zone: str, week_starts: str, current: Instance) -> Instance | None:
    return None if current.start is None else instance_at(window, zone, week_starts, current.start - 1)


# Windows that reset by a cron expression


def furthest_reading(zone: str, second: int) -> int:
    """Return the latest time that the wall clock has shown until then."""
    shown = [change.when - 1 + change.before for change in past_changes(zone, second)]
    return max([second + wall_offset(zone, second), *shown])


@cache
def first_shown(zone: str, reading: int) -> int:
    """Return the first second at which the wall clock shows a time or has gone past it."""
    return first_second(lambda at: furthest_reading(zone, at) >= reading, reading - REACH_S, reading + REACH_S)


def resets_of_reading(expression: str, zone: str, reading: int) -> list[int]:
    """Return when a time of the wall clock resets: a fixed one once, one with a `*` whenever the clock shows it."""
    minute, hour_of_day, *_ = expression.split()
    if not minute.startswith("*") and not hour_of_day.startswith("*"):
        return [first_shown(zone, reading)]
    near = changes_near(zone, reading // DAY_S)
    offsets = {wall_offset(zone, reading)} | {offset for change in near for offset in (change.before, change.after)}
    return sorted(reading - offset for offset in offsets if wall_offset(zone, reading - offset) == offset)


@cache
def resets_around(expression: str, zone: str, second: int) -> tuple[int, int]:
    """Return the last reset up to an instant and the next one after it."""
    reading = furthest_reading(zone, second)
    last = max(_resets(expression, zone, _readings(expression, reading + 1, back=True), lambda at: at <= second))
    start = second + wall_offset(zone, second) - BACK_S
    following = min(_resets(expression, zone, _readings(expression, start, back=False), lambda at: at > second))
    return last, following


def _readings(expression: str, start: int, back: bool) -> Iterator[int]:
    for moment in CronSim(expression, LOCAL_ZERO + timedelta(seconds=start), reverse=back):
        yield int((moment - LOCAL_ZERO).total_seconds())


def _resets(expression: str, zone: str, readings: Iterator[int], wanted: Callable[[int], bool]) -> list[int]:
    """Return resets on the wanted side, going on as long as a clock that goes back might bring a nearer one."""
    resets: list[int] = []
    for reading in readings:
        resets += [at for at in resets_of_reading(expression, zone, reading) if wanted(at)]
        if resets and abs(reading - (resets[0] + wall_offset(zone, resets[0]))) > BACK_S:
            break
    return resets

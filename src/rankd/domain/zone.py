"""The board's clock: the UTC offset at each instant, chosen so that local days and hours tile time.

A wall clock goes back, sometimes over midnight, and may change within an hour. Windows must not overlap, so two rules
turn the wall clock into the board's clock; both affect at most a day around a change:
- Where the clock goes back over a midnight that has passed, the old offset stays in use until the new one reaches
  that midnight again: no day is left and entered a second time.
- Where a change falls inside an hour of the new clock, that hour is read as beginning at the change: its offset is
  smaller by the minutes already gone. So each hour begins on a whole hour of the board's clock, at one instant.
Hence at + offset alone gives the local date and the start of the hour, and the offset stored with an event names its
windows without time-zone data.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from rankd.domain.instant import EPOCH
from rankd.errors import InvalidValue
from rankd.shortening import NAME_CHARACTERS_MAX, shorten

HOUR_S = 3_600
DAY_S = 86_400
OFFSET_S_MAX = 26 * HOUR_S  # farther from UTC than any clock has been
# The shortest offset period in the data is a week; probing finds every one longer than a step.
_PROBE_S = 2 * DAY_S
_TABLE_FIRST_S = -366 * DAY_S
_TABLE_LAST_S = 84_400 * DAY_S
_BEFORE_ALL_S, _AFTER_ALL_S = -(2**40), 2**40
_MACHINE_DEPENDENT = ("localtime", "posixrules", "Factory")


class OffsetPeriod(NamedTuple):
    """A time span, in seconds since 1970 and end exclusive, with one offset from UTC."""

    start: int
    end: int
    offset: int


class Zone:
    """One time zone as wall clock and as board's clock. Outside 1969 to 2200 it uses the nearest offset."""

    def __init__(self, name: str) -> None:
        """Use `zone_named`, which makes each zone once."""
        changes = [(_BEFORE_ALL_S, 0)] if name == "UTC" else _changes(ZoneInfo(name))
        self.name = name
        self.wall = _periods(changes)
        self._used = _periods(_board_changes(changes))
        self._starts = [period.start for period in self._used]
        self._latest = self._used[-1]

    def offset_at(self, at: int) -> int:
        """Return the UTC offset in seconds at an instant: the number to store with an event."""
        seconds = at // 1000
        period = self._latest
        if not period.start <= seconds < period.end:
            period = self._latest = self._used[self._index(seconds)]
        return period.offset

    def offset_holds(self, at: int) -> tuple[int, int]:
        """Return the span (ms, end exclusive) around an instant that has its offset."""
        period = self._used[self._index(at // 1000)]
        return period.start * 1000, period.end * 1000

    def midnight(self, day: int) -> int:
        """Return the first instant (ms) of a local day, given as days since 1970-01-01.

        A skipped midnight is the instant of the change; a skipped day begins with the next one.
        """
        local = day * DAY_S
        for period in self._used[self._index(local - OFFSET_S_MAX) :]:
            if period.end + period.offset > local:
                return max(period.start, local - period.offset) * 1000
        raise AssertionError("the last offset period has no end")

    def midnights_around(self, at: int) -> tuple[int, int]:
        """Return the last local midnight up to an instant and the next one after it, both in ms."""
        day = local_day(at, self.offset_at(at))
        following = day + 1
        while (end := self.midnight(following)) <= at:
            following += 1
        return self.midnight(day), end

    def hour_around(self, at: int) -> tuple[int, int]:
        """Return start and end (ms) of the local hour that holds an instant; one cut by a change is shorter."""
        period = self._used[self._index(at // 1000)]
        start = hour_start(at, period.offset)
        return start, min(start + HOUR_S * 1000, period.end * 1000)

    def _index(self, seconds: int) -> int:
        return max(0, bisect_right(self._starts, seconds) - 1)


def local_day(at: int, utc_offset_s: int) -> int:
    """Return the local date as days since 1970-01-01, from an instant and the offset stored with it."""
    return (at // 1000 + utc_offset_s) // DAY_S


def hour_start(at: int, utc_offset_s: int) -> int:
    """Return the start (ms) of the local hour, from an instant and the offset stored with it."""
    return ((at // 1000 + utc_offset_s) // HOUR_S * HOUR_S - utc_offset_s) * 1000


def check_time_zone(field: str, value: object) -> str:
    """Return the name of a time zone of the IANA database, such as `Europe/Berlin`."""
    if not isinstance(value, str):
        raise InvalidValue(
            field, f'must be the name of a time zone such as "Europe/Berlin"; got {type(value).__name__}'
        )
    try:
        if len(value) > NAME_CHARACTERS_MAX or value in _MACHINE_DEPENDENT or value.startswith(("right/", "posix/")):
            raise KeyError
        ZoneInfo(value)
    # Depending on the text, zoneinfo finds no file, a folder, or a path outside its own folder.
    except (KeyError, ValueError, OSError):
        near = get_close_matches(shorten(value), available_timezones(), n=1)
        hint = f"did you mean {near[0]}?" if near else 'write one such as "Europe/Berlin" or "UTC"'
        raise InvalidValue(field, f"is no time zone of the IANA database; {hint}") from None
    return value


@lru_cache(maxsize=1024)
def zone_named(name: str) -> Zone:
    """Return the zone of a checked name, cached: finding its changes takes some 20 ms."""
    return Zone(name)


def _changes(zone: ZoneInfo) -> list[tuple[int, int]]:
    changes = [(_BEFORE_ALL_S, _offset(zone, _TABLE_FIRST_S))]
    for low in range(_TABLE_FIRST_S, _TABLE_LAST_S, _PROBE_S):
        if _offset(zone, low + _PROBE_S) != changes[-1][1]:
            change = _first_with_other_offset(zone, low, low + _PROBE_S)
            changes.append((change, _offset(zone, change)))
    return changes


def _first_with_other_offset(zone: ZoneInfo, low: int, high: int) -> int:
    before = _offset(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
    return high


def _offset(zone: ZoneInfo, seconds: int) -> int:
    offset = (EPOCH + timedelta(seconds=seconds)).astimezone(zone).utcoffset()
    return offset // timedelta(seconds=1) if offset is not None else 0


def _board_changes(wall: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    yield wall[0]
    for (_, before), (change, after) in pairwise(wall):
        day_reached = (change - 1 + before) // DAY_S
        minutes_gone_s = (change + after) % HOUR_S
        if (change + after) // DAY_S < day_reached:
            yield day_reached * DAY_S - after, after
        elif minutes_gone_s:
            yield change, after - minutes_gone_s
            yield change + HOUR_S - minutes_gone_s, after
        else:
            yield change, after


def _periods(changes: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> list[OffsetPeriod]:
    ended = [*changes, (_AFTER_ALL_S, 0)]
    return [OffsetPeriod(start, end, offset) for (start, offset), (end, _) in pairwise(ended)]

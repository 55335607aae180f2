"""Calendar windows: years, months, weeks and days of the board's clock, named by local dates."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from enum import StrEnum
from functools import lru_cache

from rankd.domain.instant import YEAR_MAX, YEAR_MIN
from rankd.domain.window import FIELD, ClockReading, Span, Window, WindowKind
from rankd.domain.zone import Zone, local_day
from rankd.errors import InvalidValue

_DAY_ZERO = date(1970, 1, 1).toordinal()
_LABEL = {
    WindowKind.YEARLY: re.compile(r"(\d{4})", re.ASCII),
    WindowKind.MONTHLY: re.compile(r"(\d{4})-(\d\d)", re.ASCII),
    WindowKind.DAILY: re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII),
}
_ISO_WEEK = re.compile(r"(\d{4})-W(\d\d)", re.ASCII)


class WeekStarts(StrEnum):
    """The first day of a week."""

    MONDAY = "monday"
    SUNDAY = "sunday"


class Calendar(Window):
    """Years, months, weeks or days. Every instance begins at a local midnight."""

    def __init__(self, kind: WindowKind, zone: Zone, week_starts: WeekStarts = WeekStarts.MONDAY) -> None:
        """`kind` is one of yearly, monthly, weekly and daily."""
        self.kind = kind
        self.name = kind.value
        self._zone = zone
        self._sunday = kind is WindowKind.WEEKLY and week_starts is WeekStarts.SUNDAY
        self._first: Callable[[date], date] = {
            WindowKind.YEARLY: lambda day: day.replace(month=1, day=1),
            WindowKind.MONTHLY: lambda day: day.replace(day=1),
            WindowKind.WEEKLY: self._first_of_week,
            WindowKind.DAILY: lambda day: day,
        }[kind]
        self._latest: tuple[int, int, str] = (0, 0, "")
        # A batch has few distinct days.
        self._instance_on = lru_cache(maxsize=4096)(self._name_of_day)

    def instance_at(self, at: int) -> str | None:
        """Return the instance that holds an instant."""
        start, end, instance = self._latest
        if not start <= at < end:
            instance = self._instance_on(local_day(at, self._zone.offset_at(at)))
            span = self.span(instance)
            if span.start is not None and span.end is not None:
                self._latest = (span.start, span.end, instance)
        return instance

    def instance_of(self, reading: ClockReading) -> str | None:
        """Return the instance of the local date at + offset."""
        return self._instance_on(local_day(reading.at, reading.utc_offset_s))

    def parse(self, instance: str) -> str:
        """Return the name if it is a date of the calendar: week 53 only in years that have one."""
        self._first_date(instance)
        return instance

    def span(self, instance: str) -> Span:
        """Return the instants of the first local midnight and of the first one after; equal for a skipped day."""
        first = self._first_date(instance)
        return Span(self._midnight(first), self._midnight(self._first_of_next(first)))

    def _first_of_week(self, day: date) -> date:
        return day - timedelta(days=day.isoweekday() % 7 if self._sunday else day.weekday())

    def _first_of_next(self, first: date) -> date:
        # So many days after its first date an instance has ended, and the next has not.
        longest = {WindowKind.YEARLY: 366, WindowKind.MONTHLY: 31, WindowKind.WEEKLY: 7, WindowKind.DAILY: 1}[self.kind]
        return self._first(first + timedelta(days=longest))

    def _midnight(self, day: date) -> int:
        return self._zone.midnight(day.toordinal() - _DAY_ZERO)

    def _name_of_day(self, day: int) -> str:
        first = self._first(date.fromordinal(day + _DAY_ZERO))
        return f"{self.name}:{self._label(first)}"

    def _label(self, first: date) -> str:
        if self.kind is WindowKind.YEARLY:
            return f"{first.year:04}"
        if self.kind is WindowKind.MONTHLY:
            return f"{first.year:04}-{first.month:02}"
        if self.kind is WindowKind.DAILY or self._sunday:
            return first.isoformat()
        year, week, _ = first.isocalendar()
        return f"{year:04}-W{week:02}"

    def _first_date(self, instance: str) -> date:
        window, _, label = instance.partition(":")
        pattern = _LABEL[WindowKind.DAILY] if self._sunday else _LABEL.get(self.kind, _ISO_WEEK)
        written = pattern.fullmatch(label)
        if window != self.name or written is None:
            self.refuse(instance, self._example())
        parts = [int(part) for part in written.groups()]
        if not YEAR_MIN <= parts[0] <= YEAR_MAX:
            raise InvalidValue(FIELD, f"{instance!r} is out of range: years go from {YEAR_MIN} to {YEAR_MAX}")
        try:
            named = date.fromisocalendar(parts[0], parts[1], 1) if pattern is _ISO_WEEK else date(*[*parts, 1, 1][:3])
        except ValueError:
            self.refuse(instance, self._example())
        first = self._first(named)
        if first != named:
            raise InvalidValue(FIELD, f"{instance!r} is no Sunday; that week is {self.name}:{self._label(first)}")
        return first

    def _example(self) -> str:
        return f"{self.name}:{self._label(self._first(date(2026, 5, 4)))}"

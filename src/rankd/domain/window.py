"""A window: the time spans that scores count in, each a named instance.

    all_time   yearly:2026   monthly:2026-05   weekly:2026-W18   daily:2026-05-04   hourly:2026-10-25T0100Z
    raid:2026-05-01T1800Z (resets by a cron expression)          period:summer-26 (declared start and end)

The instances of a window, other than a period's, tile time: each instant is in exactly one of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import NamedTuple, NoReturn

import msgspec

from rankd.errors import InvalidValue
from rankd.shortening import quote

FIELD = "window"


class WindowKind(StrEnum):
    """The kind of a window: where its instances begin."""

    ALL_TIME = "all_time"
    YEARLY = "yearly"
    MONTHLY = "monthly"
    WEEKLY = "weekly"
    DAILY = "daily"
    HOURLY = "hourly"
    CRON = "cron"
    PERIOD = "period"


NAMED_BY_KIND = (
    WindowKind.ALL_TIME,
    WindowKind.YEARLY,
    WindowKind.MONTHLY,
    WindowKind.WEEKLY,
    WindowKind.DAILY,
    WindowKind.HOURLY,
)


class ClockReading(msgspec.Struct, frozen=True):
    """The board's clock reading at an event: stored with the event, it names its windows for ever.

    `utc_offset_s` is the offset of `Zone.offset_at`; with `at` it names the calendar windows and the hour. A cron
    window cannot be named from them, since the clock may change between its start and the event: `resets` holds the
    start (ms) of its instance, by the window's name. Periods need `at` only. A replay needs no time-zone data.
    """

    at: int
    utc_offset_s: int = 0
    resets: dict[str, int] = {}


class Span(NamedTuple):
    """Start and end of an instance in ms, end exclusive; None where it has none."""

    start: int | None
    end: int | None

    def holds(self, at: int) -> bool:
        """Return whether start ≤ at < end."""
        return (self.start is None or self.start <= at) and (self.end is None or at < self.end)


class Window(ABC):
    """One declared window. Instance names are full names, such as `weekly:2026-W18`."""

    kind: WindowKind
    name: str

    @abstractmethod
    def instance_at(self, at: int) -> str | None:
        """Return the instance that holds an instant, by present time-zone data; None outside a period."""

    @abstractmethod
    def instance_of(self, reading: ClockReading) -> str | None:
        """Return the instance an event belongs to, from its stored clock reading; None when it belongs to none."""

    @abstractmethod
    def parse(self, instance: str) -> str:
        """Return the name if it names an instance, past, future or empty; refuse any other."""

    @abstractmethod
    def span(self, instance: str) -> Span:
        """Return when an instance begins and ends, by present time-zone data."""

    def previous(self, instance: str) -> str | None:
        """Return the instance before, or None where there is none."""
        start = self.span(instance).start
        return None if start is None else self.instance_at(start - 1)

    def following(self, instance: str) -> str | None:
        """Return the instance after, or None where there is none."""
        end = self.span(instance).end
        return None if end is None else self.instance_at(end)

    def begins_at(self, at: int) -> bool:
        """Return whether an instance begins exactly at an instant."""
        instance = self.instance_at(at)
        return instance is not None and self.span(instance).start == at

    def refuse(self, instance: str, example: str) -> NoReturn:
        """Refuse a name that is no instance of this window."""
        raise InvalidValue(FIELD, f"{quote(instance)} names no instance of {self.name}; write one such as {example}")


class AllTime(Window):
    """The window that never ends."""

    kind = WindowKind.ALL_TIME
    name = WindowKind.ALL_TIME.value

    def instance_at(self, at: int) -> str | None:
        """Return `all_time`."""
        return self.name

    def instance_of(self, reading: ClockReading) -> str | None:
        """Return `all_time`."""
        return self.name

    def parse(self, instance: str) -> str:
        """Return `all_time`; it has no other instance."""
        if instance != self.name:
            self.refuse(instance, self.name)
        return instance

    def span(self, instance: str) -> Span:
        """Return a span without beginning and end."""
        self.parse(instance)
        return Span(None, None)


class Period(Window):
    """A tournament or a season: one named instance with start ≤ at < end."""

    kind = WindowKind.PERIOD

    def __init__(self, name: str, start: int, end: int) -> None:
        """`name` is the period's own, such as `summer-26`; the window's is `period:summer-26`."""
        self.name = f"{WindowKind.PERIOD}:{name}"
        self._span = Span(start, end)

    def instance_at(self, at: int) -> str | None:
        """Return the period while it lasts."""
        return self.name if self._span.holds(at) else None

    def instance_of(self, reading: ClockReading) -> str | None:
        """Return the period when the event's `at` lies in it."""
        return self.instance_at(reading.at)

    def parse(self, instance: str) -> str:
        """Return the period's name; it has no other instance."""
        if instance != self.name:
            self.refuse(instance, self.name)
        return instance

    def span(self, instance: str) -> Span:
        """Return the declared start and end."""
        self.parse(instance)
        return self._span

    def previous(self, instance: str) -> str | None:
        """Return None: a period happens once."""
        self.parse(instance)
        return None

    def following(self, instance: str) -> str | None:
        """Return None: a period happens once."""
        self.parse(instance)
        return None

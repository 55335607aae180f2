"""Windows named by their start in UTC: hours of the board's clock, and windows with a cron expression."""

from __future__ import annotations

from abc import abstractmethod

from rankd.domain.cron import Cron
from rankd.domain.instant import compact_utc, parse_compact_utc
from rankd.domain.window import ClockReading, Span, Window, WindowKind
from rankd.domain.zone import Zone, hour_start

# Older time-zone data, under which a window was named, may differ by at most this.
_CLOCK_SHIFTS_MS = range(-3 * 3_600_000, 3 * 3_600_000 + 1, 900_000)
_EXAMPLE_MS = 1_777_658_400_000


class StartNamed(Window):
    """A window whose instances carry their start, so that a repeated hour is two instances."""

    name: str
    _latest: tuple[int, int, str] = (0, 0, "")

    @abstractmethod
    def bounds_at(self, at: int) -> tuple[int, int]:
        """Return start and end (ms) of the instance that holds an instant."""

    def instance_at(self, at: int) -> str | None:
        """Return the instance that holds an instant."""
        return self._located(at)[2]

    def start_at(self, at: int) -> int:
        """Return the start (ms) of the instance that holds an instant."""
        return self._located(at)[0]

    def parse(self, instance: str) -> str:
        """Return the name if an instance begins then, or could under other time-zone data."""
        self._start(instance)
        return instance

    def span(self, instance: str) -> Span:
        """Return the start in the name and the next start after it."""
        start = self._start(instance)
        return Span(start, self.bounds_at(start)[1])

    def _located(self, at: int) -> tuple[int, int, str]:
        located = self._latest
        if not located[0] <= at < located[1]:
            start, end = self.bounds_at(at)
            located = self._latest = (start, end, self._named(start))
        return located

    def _named(self, start: int) -> str:
        return f"{self.name}:{compact_utc(start)}"

    def _start(self, instance: str) -> int:
        window, _, label = instance.partition(":")
        start = parse_compact_utc(label)
        if window != self.name or start is None or not self._could_begin(start):
            near = self.instance_at(_EXAMPLE_MS if start is None else start)
            self.refuse(instance, near or self.name)
        return start

    def _could_begin(self, start: int) -> bool:
        if self.bounds_at(start)[0] == start:
            return True
        return any(self.bounds_at(start + shift)[0] == start + shift for shift in _CLOCK_SHIFTS_MS)


class Hourly(StartNamed):
    """The hours of the board's clock; where the zone is half an hour off, they begin at half past in UTC."""

    kind = WindowKind.HOURLY
    name = WindowKind.HOURLY.value

    def __init__(self, zone: Zone) -> None:
        self._zone = zone

    def bounds_at(self, at: int) -> tuple[int, int]:
        """Return start and end of the local hour."""
        return self._zone.hour_around(at)

    def instance_of(self, reading: ClockReading) -> str | None:
        """Return the hour of at + offset."""
        return self._named(hour_start(reading.at, reading.utc_offset_s))


class ResetSchedule(StartNamed):
    """A window that resets by a cron expression."""

    kind = WindowKind.CRON

    def __init__(self, name: str, reset: str, zone: Zone) -> None:
        """`reset` is a result of `check_cron`."""
        self.name = name
        self._cron = Cron(reset, zone)

    def bounds_at(self, at: int) -> tuple[int, int]:
        """Return the last reset up to an instant and the next one after it."""
        return self._cron.last(at), self._cron.next(at)

    def instance_of(self, reading: ClockReading) -> str | None:
        """Return the instance whose start was stored; None for an event older than the window."""
        start = reading.resets.get(self.name)
        return None if start is None else self._named(start)

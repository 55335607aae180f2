"""The system's clock, and one that is set by hand."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from rankd.domain.instant import check_at


class Clock(Protocol):
    """Returns the time in ms since 1970; it may jump, since the ledger's own time never goes back."""

    def now(self) -> int:
        """Return the time in ms since 1970."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Return the time in ms since 1970."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until it is set, for tests.

    >>> clock = ManualClock(1_777_900_000_000)
    >>> clock.advance(86_400_000)
    1777986400000
    """

    def __init__(self, ms: int = 0) -> None:
        """Start at `ms` since 1970."""
        self._now = check_at(ms, "ms")
        self._lock = threading.Lock()

    def now(self) -> int:
        """Return the time the clock was set to."""
        return self._now

    def set(self, ms: int) -> int:
        """Set the clock, forward or back, and return the time."""
        with self._lock:
            self._now = check_at(ms, "ms")
        return self._now

    def advance(self, ms: int) -> int:
        """Move the clock forward and return the time."""
        with self._lock:
            self._now = check_at(self._now + ms, "ms")
        return self._now

"""The bound of a load: one that nobody stops, or that outruns what it loads, ends by itself."""

from __future__ import annotations

import time
from itertools import count

LOAD_S_MAX = 240.0  # a test has 300 s
ROUNDS_MAX = 100_000_000  # of readers in a process, which make some 100,000 a second
REQUESTS_MAX = 100_000  # of a load over HTTP, or on a database


class LoadBound:
    """How many rounds the threads of a load make together, and until when."""

    def __init__(self, rounds_max: int = ROUNDS_MAX, seconds_max: float = LOAD_S_MAX) -> None:
        """The time begins now."""
        self._rounds = count()
        self._rounds_max = rounds_max
        self._seconds_max = seconds_max
        self.renew()

    def renew(self) -> None:
        """Begin the time anew: the test that uses the load goes on."""
        self._ends_s = time.monotonic() + self._seconds_max

    def take(self) -> bool:
        """Count a round, from any thread; False where the load shall end."""
        return next(self._rounds) < self._rounds_max and time.monotonic() < self._ends_s

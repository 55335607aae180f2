"""Warnings that would come again and again while something is away: told when they begin, and now and then."""

from __future__ import annotations

import logging
from time import monotonic

AGAIN_S = 10.0


class Complaints:
    """Tells what is wrong once in a while; used by one thread."""

    def __init__(self, log: logging.Logger, again_s: float = AGAIN_S) -> None:
        """The same complaint is told again after `again_s`."""
        self._log = log
        self._again_s = again_s
        self._told: dict[tuple[str, str], float] = {}  # by what is said and of which kind of problem

    def tell(self, message: str, problem: Exception) -> None:
        """Warn of a problem, unless that was done a moment ago."""
        key, now = (message, type(problem).__name__), monotonic()
        if now - self._told.get(key, -self._again_s) >= self._again_s:
            self._told[key] = now
            self._log.warning(message, problem)

"""Warnings that would repeat while something is unavailable: logged when they begin, and now and then."""

from __future__ import annotations

import logging
from time import monotonic

AGAIN_S = 10.0


class ThrottledWarnings:
    """Logs a repeated warning at most once in a while; used by one thread."""

    def __init__(self, log: logging.Logger, again_s: float = AGAIN_S) -> None:
        """The same warning is logged again after `again_s`."""
        self._log = log
        self._again_s = again_s
        self._logged_at: dict[tuple[str, str], float] = {}  # by message and type of problem

    def warn(self, message: str, problem: Exception) -> None:
        """Log a problem, unless that was done a moment ago."""
        key, now = (message, type(problem).__name__), monotonic()
        if now - self._logged_at.get(key, -self._again_s) >= self._again_s:
            self._logged_at[key] = now
            self._log.warning(message, problem)

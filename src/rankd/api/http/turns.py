"""Spread bursts of work over turns of the event loop, so that no turn takes long.

    reads of unfinished requests, first requests of connections, overdue connections → TurnQueue → a few in each turn

A connection that was answered before and sends a complete request never waits here: a thousand others that begin, or
send bodies, delay it by a few of their steps only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

PER_TURN_MAX = 16  # some 0.1 ms each at most
_log = logging.getLogger("rankd")


class TurnQueue:
    """Deferrable work, in order of arrival; on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """It runs on this loop."""
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def add(self, work: Callable[[], None]) -> None:
        """Run it in the next turn with room."""
        self._waiting.append(work)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        for _ in range(min(PER_TURN_MAX, len(self._waiting))):
            try:
                self._waiting.popleft()()
            except Exception:  # of one connection: the others continue
                _log.exception("a connection failed")
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self._loop.call_soon(self._run)

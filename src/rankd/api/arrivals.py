"""Whoever waits until something is ranked waits here, and holds no thread: one question after the other asks for all.

    waiters, by board → [a thread: how far are these boards?, one round trip] → those who have what they wait for

A position that the ledger has not given out is refused as soon as the ledger was looked at after somebody asked for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from rankd.domain.position import is_upto
from rankd.errors import Overloaded
from rankd.parts import Remote

WAITERS_MAX = 10_000
POLL_MIN_S, POLL_MAX_S = 0.002, 0.02
POLL_SHARE = 0.25  # of the time that the last who came has waited
_log = logging.getLogger("rankd")


class _Waiter:
    """Somebody who waits for positions of a board."""

    __slots__ = ("ranked", "since_s", "timer", "wanted")

    def __init__(self, wanted: Mapping[int, int], ranked: asyncio.Future[bool], timer: asyncio.TimerHandle) -> None:
        self.wanted = wanted
        self.ranked = ranked  # whether it is; False when it was waited for in vain
        self.timer = timer
        self.since_s = monotonic()


class Arrivals:
    """Everybody of a process who waits for ranks; on the event loop."""

    def __init__(self, remote: Remote, waiters_max: int = WAITERS_MAX) -> None:
        """Nobody waits."""
        self._remote = remote
        self._waiters_max = waiters_max
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, list[_Waiter]] = {}  # by board
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rankd-arrivals")
        self._polling: asyncio.Task[None] | None = None
        self.waiting = 0

    async def wait(self, wanted: Mapping[int, int], board: str, wait_ms: int) -> bool:
        """Wait until positions are ranked on a board; tell whether they are."""
        if self.waiting >= self._waiters_max:
            raise Overloaded("more wait for ranks than the server takes; ask again in a moment")
        ranked: asyncio.Future[bool] = self._loop.create_future()
        timer = self._loop.call_later(wait_ms / 1_000, _settle, ranked, False)
        waiter = _Waiter(wanted, ranked, timer)
        self._waiting.setdefault(board, []).append(waiter)
        self.waiting += 1
        if self._polling is None:
            self._polling = self._loop.create_task(self._poll())
        try:
            return await ranked
        finally:
            timer.cancel()
            ranked.cancel()  # of one who went away; the next look passes over it
            self.waiting -= 1

    def stop(self) -> None:
        """Let everybody go; blocks, so not for the event loop."""
        self._loop.call_soon_threadsafe(self._let_go)
        self._thread.shutdown()

    def _let_go(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
        for waiters in self._waiting.values():
            for waiter in waiters:
                _settle(waiter.ranked, False)

    async def _poll(self) -> None:
        """Ask for everybody, again and again while somebody waits."""
        try:
            while self._waiting:
                try:
                    upto = await self._loop.run_in_executor(self._thread, self._remote.ranked_upto, [*self._waiting])
                except Exception:
                    _log.exception("how far boards are ranked could not be asked")
                    upto = {}
                self._wake(upto)
                if self._waiting:
                    await asyncio.sleep(self._pause_s())
        finally:
            self._polling = None

    def _pause_s(self) -> float:
        """Return when to look again: soon for who has just come, and not as often for who has waited long."""
        youngest_s = monotonic() - max(waiters[-1].since_s for waiters in self._waiting.values())
        return min(max(youngest_s * POLL_SHARE, POLL_MIN_S), POLL_MAX_S)

    def _wake(self, upto: Mapping[str, Mapping[int, int]]) -> None:
        looked_at_s, ledger = self._remote.ledger_seen
        for board in [*self._waiting]:
            ranked, still = upto.get(board, {}), []
            for waiter in self._waiting[board]:
                if waiter.ranked.done():
                    continue
                if is_upto(ranked, waiter.wanted):
                    waiter.ranked.set_result(True)
                elif looked_at_s > waiter.since_s and not is_upto(ledger, waiter.wanted):
                    waiter.ranked.set_result(False)  # nobody was given this position
                else:
                    still.append(waiter)
            if still:
                self._waiting[board] = still
            else:
                del self._waiting[board]


def _settle(ranked: asyncio.Future[bool], is_ranked: bool) -> None:
    if not ranked.done():
        ranked.set_result(is_ranked)

"""Refresh the API keys that other processes created or revoked, on a timer and before a key is refused.

    unknown key → KeyLookup.finds → Credentials.refresh, in a thread → all callers that came before it began

One refresh answers all waiting callers, and at most `REFRESHES_PER_S_MAX` begin in a second: clients that keep sending
unknown keys cost the store no more than that. A known key never comes here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from rankd.api.http.eager import in_task
from rankd.errors import LedgerUnavailable, Overloaded

REFRESH_EVERY_S = 0.25  # how soon a revoked key is noticed
REFRESHES_PER_S_MAX = 20
WAITING_MAX = 1_000
WAIT_S_MAX = 2.0  # for a store that does not answer
UNKNOWN_REMEMBERED_S = 1.0
UNKNOWN_REMEMBERED_MAX = 1_000

_log = logging.getLogger("rankd")


class KeyLookup:
    """Refreshes credentials at a bounded rate; on the event loop."""

    def __init__(self, refresh: Callable[[], None]) -> None:
        """`refresh` reads what other processes changed; it runs in a thread, once at a time."""
        self._refresh = refresh
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._waiting: list[asyncio.Future[bool]] = []
        self._unknown: dict[bytes, float] = {}  # digest → until when it is cached, oldest first
        self._running = self._loop.create_task(self._run())

    async def finds(self, digest: bytes, is_known: Callable[[bytes], bool]) -> bool:
        """Tell whether the store has a key that memory lacked; raises LedgerUnavailable where it cannot be read."""
        if self._unknown.get(digest, 0.0) > self._loop.time():
            return False
        if len(self._waiting) >= WAITING_MAX:
            raise Overloaded("too many unknown API keys are being looked up; try again in a moment")
        refreshed: asyncio.Future[bool] = self._loop.create_future()
        self._waiting.append(refreshed)
        self._wanted.set()
        await in_task()  # wait_for needs one from Python 3.12 on
        is_read = False
        with suppress(TimeoutError):
            is_read = await asyncio.wait_for(refreshed, WAIT_S_MAX)
        if is_known(digest):
            return True
        if not is_read:
            raise LedgerUnavailable("the API key is not known here, and the key store cannot be read; try again")
        self._remember(digest)
        return False

    def stop(self) -> None:
        """Stop refreshing."""
        self._running.cancel()

    def _remember(self, digest: bytes) -> None:
        self._unknown.pop(digest, None)
        self._unknown[digest] = self._loop.time() + UNKNOWN_REMEMBERED_S
        if len(self._unknown) > UNKNOWN_REMEMBERED_MAX:
            del self._unknown[next(iter(self._unknown))]

    async def _run(self) -> None:
        was_read = True
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), REFRESH_EVERY_S)
            self._wanted.clear()
            waiting, self._waiting = self._waiting, []
            next_at = self._loop.time() + 1 / REFRESHES_PER_S_MAX
            is_read = True
            try:
                await self._loop.run_in_executor(None, self._refresh)
            except Exception as problem:
                is_read = False
                if was_read:
                    _log.warning("credentials cannot be refreshed: %s", problem)
            was_read = is_read
            for refreshed in waiting:
                if not refreshed.done():  # else its client has left
                    refreshed.set_result(is_read)
            await asyncio.sleep(next_at - self._loop.time())

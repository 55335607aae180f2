"""How long a sender may take for a body.

A timer for each request would cost more than reading it does. Whoever waits is noted instead, and somebody looks four
times a second for those who have waited too long.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

LOOK_EVERY_S = 0.25
PIECES = 6  # the whole may take as long as so many pieces


class _Waiting:
    """One request whose body is awaited."""

    __slots__ = ("_patience", "ends_at", "is_over", "task", "whole_ends_at")

    def __init__(self, patience: Patience, now: float) -> None:
        self._patience = patience
        self.task = asyncio.current_task()
        self.ends_at = now + patience.piece_s
        self.whole_ends_at = now + patience.piece_s * PIECES
        self.is_over = False

    def goes_on(self) -> None:
        """A piece has come."""
        self.ends_at = min(self._patience.now() + self._patience.piece_s, self.whole_ends_at)

    def __enter__(self) -> _Waiting:
        self._patience.waiting.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patience.waiting.discard(self)
        if self.is_over and kind is asyncio.CancelledError:
            if self.task is not None:
                self.task.uncancel()
            raise TimeoutError from None


class Patience:
    """Everybody whose body is awaited; on the event loop."""

    def __init__(self, piece_ms: int) -> None:
        """`piece_ms` may pass between two pieces of a body."""
        self.piece_s = piece_ms / 1_000
        self.now = asyncio.get_running_loop().time
        self.waiting: set[_Waiting] = set()

    def of(self) -> _Waiting:
        """Begin to wait for the body of the request that this task answers."""
        return _Waiting(self, self.now())

    async def run(self) -> None:
        """End what has been waited for too long, again and again."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now = self.now()
            for waiting in [one for one in self.waiting if one.ends_at <= now]:
                waiting.is_over = True
                if waiting.task is not None:
                    waiting.task.cancel()

"""What a request's body may cost: how long its sender may take, and how much memory all unfinished bodies share.

A timer for each request would cost more than reading it does: unfinished bodies are kept in a set, and a sweep four
times a second ends those that are overdue. A body that arrives in one piece needs neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from rankd.errors import Overloaded

SWEEP_EVERY_S = 0.25
PIECES = 6  # the whole may take as long as so many pieces


class BodyBudget:
    """The bytes that all unfinished bodies of one kind of sender may hold together; on the event loop."""

    __slots__ = ("bytes_max", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        """Nothing is held yet."""
        self.bytes_max = bytes_max
        self.held_bytes = 0

    def take(self, size: int) -> None:
        """Hold some more, or refuse it."""
        if self.held_bytes + size > self.bytes_max:
            raise Overloaded("the server holds as many unfinished bodies as it may; send it again in a moment")
        self.held_bytes += size

    def give_back(self, size: int) -> None:
        """Hold less."""
        self.held_bytes -= size


class UnfinishedBody:
    """A body of which a piece has come, and not the last one."""

    __slots__ = ("_budget", "_timeouts", "ends_at", "held_bytes", "is_overdue", "task", "whole_ends_at")

    def __init__(self, timeouts: BodyTimeouts, budget: BodyBudget) -> None:
        """Its time begins now; it is read by the current task."""
        self._timeouts = timeouts
        self._budget = budget
        self.task = asyncio.current_task()
        now = timeouts.now()
        self.ends_at = now + timeouts.piece_s
        self.whole_ends_at = now + timeouts.piece_s * PIECES
        self.is_overdue = False
        self.held_bytes = 0

    def hold(self, piece: bytes) -> bytes:
        """Count a piece that has come; the next one has its own time."""
        self._budget.take(len(piece))
        self.held_bytes += len(piece)
        self.ends_at = min(self._timeouts.now() + self._timeouts.piece_s, self.whole_ends_at)
        return piece

    def __enter__(self) -> UnfinishedBody:
        """Begin to wait for it."""
        self._timeouts.unfinished.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what it held; a body that was overdue ends with TimeoutError."""
        self._timeouts.unfinished.discard(self)
        self._budget.give_back(self.held_bytes)
        if self.is_overdue and kind is asyncio.CancelledError:
            if self.task is not None:
                self.task.uncancel()
            raise TimeoutError from None


class BodyTimeouts:
    """All unfinished bodies; on the event loop."""

    def __init__(self, piece_ms: int, now: Callable[[], float] | None = None) -> None:
        """`piece_ms` may pass between two pieces of a body."""
        self.piece_s = piece_ms / 1_000
        self.now = now or asyncio.get_running_loop().time
        self.unfinished: set[UnfinishedBody] = set()

    async def run(self) -> None:
        """End what is overdue, again and again."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            now = self.now()
            for body in [body for body in self.unfinished if body.ends_at <= now]:
                body.is_overdue = True
                if body.task is not None:
                    body.task.cancel()

"""Limits of request bodies: how slowly a client may send one, and how much memory all of them may take.

A timer for each request would cost more than reading it: unfinished bodies are in a set, and a sweep four times a
second ends those that are overdue. A body's memory counts until its request ends, while it waits for a thread or for
a commit too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from types import TracebackType

from rankd.errors import Overloaded

SWEEP_EVERY_S = 0.25
SWEPT_AT_ONCE = 32
PIECES = 6  # the time limit of a whole body, in time limits of a piece
HOLDERS_MIN = 4  # at least so many senders share a budget: each may hold this part of it
UNCOUNTED_BYTES_MAX = 16 * 1024  # of a body in one piece; `limits.requests_max` bounds their number


class BodyBudget:
    """The memory of all bodies of one kind of sender; on the event loop."""

    __slots__ = ("_bytes_max", "_holder_bytes_max", "by_holder", "held_bytes")

    def __init__(self, bytes_max: int, body_bytes_max: int) -> None:
        """One sender may always hold one body of the largest size, and at most its part of the budget."""
        self._bytes_max = bytes_max
        self._holder_bytes_max = max(bytes_max // HOLDERS_MIN, body_bytes_max)
        self.held_bytes = 0
        self.by_holder: dict[Hashable, int] = {}

    def take(self, holder: Hashable, size: int) -> None:
        """Reserve bytes for an account or an address, or raise Overloaded."""
        held = self.by_holder.get(holder, 0) + size
        if held > self._holder_bytes_max:
            raise Overloaded("this sender's requests take their maximum of memory; send it again in a moment")
        if self.held_bytes + size > self._bytes_max:
            raise Overloaded("all requests together take their maximum of memory; send it again in a moment")
        self.held_bytes += size
        self.by_holder[holder] = held

    def give_back(self, holder: Hashable, size: int) -> None:
        """Release bytes."""
        self.held_bytes -= size
        left = self.by_holder[holder] - size
        if left:
            self.by_holder[holder] = left
        else:
            del self.by_holder[holder]


class HeldBody:
    """A request's body, from its first piece until the request ends."""

    __slots__ = ("_budget", "_held_bytes", "_holder", "_timeouts", "ends_at", "is_overdue", "task", "whole_ends_at")

    def __init__(self, timeouts: BodyTimeouts, budget: BodyBudget, holder: Hashable) -> None:
        """Its time limit starts now; the current task reads it."""
        self._timeouts = timeouts
        self._budget = budget
        self._holder = holder
        self._held_bytes = 0
        self.task = asyncio.current_task(timeouts.loop)  # which Python would look up by a system call
        now = timeouts.now()
        self.ends_at = now + timeouts.piece_s
        self.whole_ends_at = now + timeouts.piece_s * PIECES
        self.is_overdue = False

    def hold(self, piece: bytes) -> None:
        """Count a piece; the time limit of the next one starts."""
        if piece:
            self._budget.take(self._holder, len(piece))
            self._held_bytes += len(piece)
        self.ends_at = min(self._timeouts.now() + self._timeouts.piece_s, self.whole_ends_at)

    def release(self) -> None:
        """Release its memory at the end of the request."""
        if self._held_bytes:
            self._budget.give_back(self._holder, self._held_bytes)
            self._held_bytes = 0

    def __enter__(self) -> HeldBody:
        """Start the time limit."""
        self._timeouts.unfinished.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the time limit; raises TimeoutError for a body that was overdue."""
        self._timeouts.unfinished.discard(self)
        if self.is_overdue and kind is asyncio.CancelledError:
            if self.task is not None:
                self.task.uncancel()
            raise TimeoutError from None


class BodyTimeouts:
    """All unfinished bodies; on the event loop."""

    def __init__(self, piece_ms: int, now: Callable[[], float] | None = None) -> None:
        """`piece_ms` is the time limit between two pieces of a body."""
        self.piece_s = piece_ms / 1_000
        self.loop = asyncio.get_running_loop()
        self.now = now or self.loop.time
        self.unfinished: set[HeldBody] = set()

    async def run(self) -> None:
        """End overdue bodies until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            now = self.now()
            overdue = [body for body in self.unfinished if body.ends_at <= now]
            for count, body in enumerate(overdue, start=1):
                if body not in self.unfinished or body.ends_at > now:
                    continue  # it was completed or continued meanwhile
                body.is_overdue = True
                if body.task is not None:
                    body.task.cancel()
                if count % SWEPT_AT_ONCE == 0:
                    await asyncio.sleep(0)  # each is answered: other tasks run in between

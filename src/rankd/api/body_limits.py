"""What a request's body may cost: how long its sender may take, and how much memory all bodies share.

A timer for each request would cost more than reading it does: unfinished bodies are kept in a set, and a sweep four
times a second ends those that are overdue. A body's memory counts until its request ends: what waits for a thread or
for a commit is held as well as what has not arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from types import TracebackType

from rankd.errors import Overloaded

SWEEP_EVERY_S = 0.25
SWEPT_AT_ONCE = 32
PIECES = 6  # the whole may take as long as so many pieces
HOLDERS_MIN = 4  # so many senders at least share a budget: each may hold this part of it
UNCOUNTED_BYTES_MAX = 16 * 1024  # of a body in one piece; `limits.requests_max` bounds how many there are


class BodyBudget:
    """The bytes that all bodies of one kind of sender may hold together; on the event loop."""

    __slots__ = ("_bytes_max", "_holder_bytes_max", "by_holder", "held_bytes")

    def __init__(self, bytes_max: int, body_bytes_max: int) -> None:
        """One sender may always hold one body of the largest size, and at most a part of the budget."""
        self._bytes_max = bytes_max
        self._holder_bytes_max = max(bytes_max // HOLDERS_MIN, body_bytes_max)
        self.held_bytes = 0
        self.by_holder: dict[Hashable, int] = {}

    def take(self, holder: Hashable, size: int) -> None:
        """Hold some more for an account or an address, or refuse it."""
        held = self.by_holder.get(holder, 0) + size
        if held > self._holder_bytes_max:
            raise Overloaded("one sender's requests hold as many bytes as they may; send it again in a moment")
        if self.held_bytes + size > self._bytes_max:
            raise Overloaded("the server holds as many bytes of requests as it may; send it again in a moment")
        self.held_bytes += size
        self.by_holder[holder] = held

    def give_back(self, holder: Hashable, size: int) -> None:
        """Hold less."""
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
        """Its time begins now; it is read by the current task."""
        self._timeouts = timeouts
        self._budget = budget
        self._holder = holder
        self._held_bytes = 0
        self.task = asyncio.current_task()
        now = timeouts.now()
        self.ends_at = now + timeouts.piece_s
        self.whole_ends_at = now + timeouts.piece_s * PIECES
        self.is_overdue = False

    def hold(self, piece: bytes) -> None:
        """Count a piece that has come; the next one has its own time."""
        if piece:
            self._budget.take(self._holder, len(piece))
            self._held_bytes += len(piece)
        self.ends_at = min(self._timeouts.now() + self._timeouts.piece_s, self.whole_ends_at)

    def release(self) -> None:
        """Give back what it held: its request has ended."""
        if self._held_bytes:
            self._budget.give_back(self._holder, self._held_bytes)
            self._held_bytes = 0

    def __enter__(self) -> HeldBody:
        """Begin to wait for it."""
        self._timeouts.unfinished.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait no longer; a body that was overdue ends with TimeoutError."""
        self._timeouts.unfinished.discard(self)
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
        self.unfinished: set[HeldBody] = set()

    async def run(self) -> None:
        """End what is overdue, again and again."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            now = self.now()
            overdue = [body for body in self.unfinished if body.ends_at <= now]
            for count, body in enumerate(overdue, start=1):
                if body not in self.unfinished or body.ends_at > now:
                    continue  # it came to its end, or goes on, while others were ended
                body.is_overdue = True
                if body.task is not None:
                    body.task.cancel()
                if count % SWEPT_AT_ONCE == 0:
                    await asyncio.sleep(0)  # each is answered: others have their turn

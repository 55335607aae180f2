"""Reads leave the event loop here: those that are ready in one turn of it are made together, and come back together.

    handlers (event loop) → Reader.begin → [a lane: one round trip for all of them] → `done` of each (event loop)

What a lane cannot make without holding the others up is made in a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from rankd.backend import Read, Remote
from rankd.errors import Overloaded

Result = TypeVar("Result")
READS_MAX = 4_096  # under way at a time
Drop = Callable[[], None]  # makes a read unwanted: one that has not begun is not made
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Reader:
    """Hands reads from the event loop to a lane, and those that need one to a thread."""

    def __init__(self, remote: Remote, in_thread: InThread, reads_max: int = READS_MAX) -> None:
        """`in_thread` raises Overloaded where too much waits for a thread."""
        self._loop = asyncio.get_running_loop()
        self._in_thread = in_thread
        self._reads_max = reads_max
        self._next: list[Read] = []  # those that go to the lane in this turn of the loop
        self._alone: dict[Read, asyncio.Task[None]] = {}
        self.under_way = 0
        self._lane = remote.lane(self._made)

    def begin(self, work: Callable[[], Any], done: Callable[[Read], None]) -> Drop:
        """Make a read with others; `done` is called on the event loop, once it has its result or its error."""
        self._count()
        if not self._next:
            self._loop.call_soon(self._go)
        read = Read(work, done)
        self._next.append(read)
        return partial(self._drop, read)

    def begin_alone(self, work: Callable[[], Any], done: Callable[[Read], None]) -> Drop:
        """Make a read that takes milliseconds, in a thread of its own."""
        self._count()
        read = Read(work, done)
        self._start_alone(read)
        return partial(self._drop, read)

    async def read(self, work: Callable[[], Result]) -> Result:
        """Make a read with others and return what it returns."""
        waiting: asyncio.Future[Result] = self._loop.create_future()
        drop = self.begin(work, lambda read: settle(waiting, read))
        try:
            return await waiting
        except asyncio.CancelledError:
            drop()
            raise

    def stop(self) -> None:
        """Make what has begun; blocks, so not for the event loop."""
        self._lane.close()

    def _count(self) -> None:
        if self.under_way >= self._reads_max:
            raise Overloaded("the server has more reads under way than it takes; ask again in a moment")
        self.under_way += 1

    def _drop(self, read: Read) -> None:
        read.is_wanted = False
        if (task := self._alone.get(read)) is not None:
            task.cancel()

    def _go(self) -> None:
        reads, self._next = self._next, []
        self._lane.put(reads)

    def _made(self, made: list[Read]) -> None:
        self._loop.call_soon_threadsafe(self._take, made)

    def _take(self, made: list[Read]) -> None:
        for read in made:
            if read.needs_thread and read.is_wanted:
                read.needs_thread = False
                self._start_alone(read)
            else:
                self.under_way -= 1
                read.done(read)

    def _start_alone(self, read: Read) -> None:
        task = self._alone[read] = self._loop.create_task(self._make_alone(read))
        task.add_done_callback(partial(self._end_alone, read))  # also where it is cancelled before its first step

    async def _make_alone(self, read: Read) -> None:
        try:
            read.result = await self._in_thread(read.work)
        except Exception as problem:
            read.error = problem

    def _end_alone(self, read: Read, task: asyncio.Task[None]) -> None:
        self.under_way -= 1
        del self._alone[read]
        if not task.cancelled():
            read.done(read)


def settle(waiting: asyncio.Future[Any], read: Read) -> None:
    """Give a read's result or error to whoever waits for it, unless they went away."""
    if waiting.done():
        return
    if read.error is not None:
        waiting.set_exception(read.error)
    else:
        waiting.set_result(read.result)

"""Batch reads: those that begin in one turn of the event loop go to the batcher together, and come back together.

    handlers (event loop) → ReadDispatcher.begin → [ReadBatcher: one round trip for all] → `done` of each

A read that would delay the others of its batch runs in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from rankd.backend import Read, Remote
from rankd.errors import Overloaded
from rankd.push.hub import ThreadRunner

Result = TypeVar("Result")
READS_MAX = 4_096  # concurrent
Drop = Callable[[], None]  # cancels a read that has not begun


class ReadDispatcher:
    """Passes reads from the event loop to a batcher, and those that need one to a thread."""

    def __init__(self, remote: Remote, in_thread: ThreadRunner, reads_max: int = READS_MAX) -> None:
        """`in_thread` raises Overloaded where too much work waits for a thread."""
        self._loop = asyncio.get_running_loop()
        self._in_thread = in_thread
        self._reads_max = reads_max
        self._next: list[Read] = []  # for the batcher, in this turn of the loop
        self._alone: dict[Read, asyncio.Task[None]] = {}
        self.under_way = 0
        self._batcher = remote.read_batcher(self._made)

    def begin(self, work: Callable[[], Any], done: Callable[[Read], None]) -> Drop:
        """Batch a read with others; `done` is called on the event loop, with its result or its error."""
        self._count()
        if not self._next:
            self._loop.call_soon(self._go)
        read = Read(work, done)
        self._next.append(read)
        return partial(self._drop, read)

    def begin_alone(self, work: Callable[[], Any], done: Callable[[Read], None]) -> Drop:
        """Make a read that takes milliseconds in a thread."""
        self._count()
        read = Read(work, done)
        self._start_alone(read)
        return partial(self._drop, read)

    async def read(self, work: Callable[[], Result]) -> Result:
        """Batch a read with others and return its result."""
        waiting: asyncio.Future[Result] = self._loop.create_future()
        drop = self.begin(work, lambda read: settle(waiting, read))
        try:
            return await waiting
        except asyncio.CancelledError:
            drop()
            raise

    def stop(self) -> None:
        """Finish the pending reads; blocks, so not for the event loop."""
        self._batcher.close()

    def _count(self) -> None:
        if self.under_way >= self._reads_max:
            raise Overloaded("too many reads are running; try again in a moment")
        self.under_way += 1

    def _drop(self, read: Read) -> None:
        read.is_wanted = False
        if (task := self._alone.get(read)) is not None:
            task.cancel()

    def _go(self) -> None:
        reads, self._next = self._next, []
        self._batcher.put(reads)

    def _made(self, reads: list[Read]) -> None:
        self._loop.call_soon_threadsafe(self._take, reads)

    def _take(self, reads: list[Read]) -> None:
        for read in reads:
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
    """Set a read's result or error on a future, unless that was cancelled."""
    if waiting.done():
        return
    if read.error is not None:
        waiting.set_exception(read.error)
    else:
        waiting.set_result(read.result)

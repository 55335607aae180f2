"""A few threads for work that would block the event loop, and a bounded queue for them.

    handler (event loop) → WorkQueue.run → [a thread] → the handler's future

The queue is on the event loop, and the pool only gets work when a thread is free. So the work of a cancelled caller is
dropped at once, and stopping only waits for work that is running.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rankd.errors import Overloaded

Result = TypeVar("Result")
Work = Callable[[], Any]


class WorkQueue:
    """A bounded number of threads and of waiting callers; on the event loop."""

    def __init__(self, name: str, threads_max: int, waiting_max: int) -> None:
        """`name` is the prefix of its threads' names."""
        self._loop = asyncio.get_running_loop()
        self._threads_max = threads_max
        self._waiting_max = waiting_max
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix=name)
        self._waiting: dict[asyncio.Future[Any], Work] = {}  # in the order of arrival
        self._is_stopping = False
        self.running = 0

    @property
    def waiting(self) -> int:
        """How many callers wait for a thread."""
        return len(self._waiting)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run work in a thread and return its result; dropped if the caller is cancelled before it begins."""
        if self._is_stopping:
            raise Overloaded("the server is stopping; try again in a moment")
        if len(self._waiting) >= self._waiting_max:
            raise Overloaded("the server is overloaded; try again in a moment")
        done: asyncio.Future[Result] = self._loop.create_future()
        self._waiting[done] = work
        self._begin()
        try:
            return await done
        finally:
            self._waiting.pop(done, None)
            del done, work  # an error holds this frame, which must not hold the error, nor a body

    def stop(self) -> None:
        """Refuse waiting work, finish running work and end the threads; blocks, so not for the event loop."""
        is_empty = threading.Event()
        self._loop.call_soon_threadsafe(self._refuse_waiting, is_empty)
        is_empty.wait()
        self._pool.shutdown()

    def _begin(self) -> None:
        while self._waiting and self.running < self._threads_max and not self._is_stopping:
            done = next(iter(self._waiting))
            work = self._waiting.pop(done)
            if not done.done():  # a cancelled caller leaves the queue only when its task runs again
                self.running += 1
                self._pool.submit(self._do, [(work, done)])

    def _do(self, asked: list[tuple[Work, asyncio.Future[Any]]]) -> None:
        work, done = asked.pop()  # the pool keeps its arguments
        result, error = None, None
        try:
            result = work()
        except BaseException as problem:  # the caller must get it
            error = problem
        self._loop.call_soon_threadsafe(self._finish, done, result, error)
        del work, done, error  # as in `run`

    def _finish(self, done: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
        self.running -= 1
        self._begin()  # first, so that the thread works while this answer is sent
        if done.done():  # the caller was cancelled
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)

    def _refuse_waiting(self, is_empty: threading.Event) -> None:
        self._is_stopping = True
        for done in self._waiting:
            if not done.done():
                done.set_exception(Overloaded("the server is stopping; try again in a moment"))
        self._waiting.clear()
        is_empty.set()

"""Run a coroutine at once, and give it a task only when it first waits.

Most requests are answered without waiting: a task, and a turn of the event loop for it, would be a tenth of their cost.
There is no current task until then, so code that needs one awaits `in_task` first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


def run_eagerly(coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> asyncio.Task[None] | None:
    """Run a coroutine until it first waits; return the task that continues it, None if it has ended."""
    try:
        awaited = coroutine.send(None)
    except StopIteration:
        return None
    return loop.create_task(_Continued(coroutine, awaited))


async def in_task() -> None:
    """Continue in a task."""
    if asyncio.current_task() is None:
        await asyncio.sleep(0)


class _Continued(Coroutine[Any, Any, None]):
    """The rest of a coroutine that waits. A task that is cancelled before its first step cancels it too."""

    __slots__ = ("_awaited", "_coroutine", "_has_begun")

    def __init__(self, coroutine: Coroutine[Any, Any, None], awaited: asyncio.Future[Any] | None) -> None:
        self._coroutine = coroutine
        self._awaited = awaited
        self._has_begun = False

    def send(self, value: None) -> Any:
        """Let it go on; the first time, return what it waits for already."""
        if self._has_begun:
            return self._coroutine.send(value)
        self._has_begun = True
        awaited, self._awaited = self._awaited, None  # kept, it would be a cycle that a collection has to free
        return awaited

    def throw(self, *problem: Any) -> Any:
        """Raise an error where it waits."""
        if not self._has_begun:
            awaited = self.send(None)
            if awaited is not None and awaited.cancel():
                return awaited  # it gets the cancellation from what it waits for, as in any task
        try:
            return self._coroutine.throw(*problem)
        finally:
            del problem  # its traceback has this frame: a cycle too

    def close(self) -> None:
        """End it where it waits."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._coroutine.__await__()

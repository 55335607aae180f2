"""Run a coroutine at once, and give it a task only when it first waits.

Most requests are answered without waiting: a task, and a turn of the event loop for it, would be a tenth of their cost.
There is no current task until then, so code that needs one awaits `in_task` first.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any


def run_eagerly(coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> asyncio.Task[None] | None:
    """Run a coroutine until it first waits; return the task that continues it, None if it has ended."""
    try:
        awaited = coroutine.send(None)
    except StopIteration:
        return None
    return loop.create_task(_continue(coroutine, awaited))


async def in_task() -> None:
    """Continue in a task."""
    if asyncio.current_task() is None:
        await asyncio.sleep(0)


async def _continue(coroutine: Coroutine[Any, Any, None], awaited: object) -> None:
    await _drive(coroutine, awaited)


@types.coroutine
def _drive(coroutine: Coroutine[Any, Any, None], awaited: object) -> Generator[object, None, None]:
    """Pass on what a coroutine waits for, and what happens to its task meanwhile."""
    while True:
        try:
            try:
                yield awaited
            except BaseException as problem:
                awaited = coroutine.throw(problem)
            else:
                awaited = coroutine.send(None)
        except StopIteration:
            return

"""A coroutine that is run at once, and continues in a task: it sees a cancellation wherever it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rankd.api.http.eager import in_task, run_eagerly

from ..event_loop import next_turn

DEADLINE_S = 60


class Request:
    """Waits for something, and writes down what happened to it."""

    def __init__(self) -> None:
        self.happened: list[str] = []

    async def run(self, awaited: Awaitable[object]) -> None:
        self.happened.append("begun")
        try:
            await awaited
            self.happened.append("continued")
        except asyncio.CancelledError:
            self.happened.append("cancelled")
            await next_turn()  # cleaning up may wait too
            self.happened.append("cleaned up")
            raise


async def something_else() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("wait", [next_turn, something_else])
@pytest.mark.parametrize("is_begun", [False, True])
def test_a_cancelled_coroutine_cleans_up(wait: Callable[[], Awaitable[object]], *, is_begun: bool) -> None:
    request = Request()

    async def test() -> None:
        loop = asyncio.get_running_loop()
        task = run_eagerly(request.run(wait()), loop)
        assert task is not None
        if is_begun:
            loop.call_soon(task.cancel)  # after the task's first step
        else:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(DEADLINE_S):
                await task

    asyncio.run(test())
    assert request.happened == ["begun", "cancelled", "cleaned up"]


def test_what_it_waits_for_is_cancelled_too() -> None:
    async def test() -> None:
        awaited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request = Request()
        task = run_eagerly(request.run(awaited), asyncio.get_running_loop())
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert awaited.cancelled()
        assert request.happened == ["begun", "cancelled", "cleaned up"]

    asyncio.run(test())


def test_a_coroutine_that_does_not_wait_has_no_task() -> None:
    async def answer() -> None: ...

    async def test() -> None:
        assert run_eagerly(answer(), asyncio.get_running_loop()) is None

    asyncio.run(test())


def test_it_has_a_task_where_it_needs_one() -> None:
    tasks: list[asyncio.Task[None] | None] = []

    async def answer() -> None:
        tasks.append(asyncio.current_task())
        await in_task()
        tasks.append(asyncio.current_task())

    async def test() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: started.append(run_eagerly(answer(), loop)))  # outside of any task
        async with asyncio.timeout(DEADLINE_S):
            while len(tasks) < 2:
                await next_turn()

    started: list[asyncio.Task[None] | None] = []
    asyncio.run(test())
    assert tasks == [None, *started]

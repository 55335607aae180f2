"""Work beside the event loop: bounded, dropped with whoever asked for it, and refused at the end."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rankd.api.work_queue import WorkQueue
from rankd.errors import Overloaded

DEADLINE_S = 60
WAITING_MAX = 8


class Gate:
    """Work that waits until it is let through, and notes that it was done."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.done: list[int] = []

    def work(self, number: int) -> Callable[[], int]:
        def wait() -> int:
            assert self.opened.wait(DEADLINE_S)
            self.done.append(number)
            return number

        return wait


def queueing(test: Callable[[WorkQueue, Gate], Awaitable[Any]], threads_max: int = 1) -> Any:
    """Run a test with a queue, and stop that as the server does."""

    async def run() -> Any:
        work_queue, gate = WorkQueue("rankd-test", threads_max, WAITING_MAX), Gate()
        try:
            return await asyncio.wait_for(test(work_queue, gate), DEADLINE_S)
        finally:
            gate.opened.set()
            await asyncio.to_thread(work_queue.stop)

    return asyncio.run(run())


async def turns() -> None:
    """Let the event loop do what is ready."""
    await asyncio.to_thread(int)


def ask(work_queue: WorkQueue, gate: Gate, count: int) -> list[asyncio.Task[int]]:
    return [asyncio.ensure_future(work_queue.run(gate.work(number))) for number in range(count)]


def test_work_is_done_in_order_in_threads_of_that_name() -> None:
    async def test(work_queue: WorkQueue, gate: Gate) -> None:
        asked = ask(work_queue, gate, 5)
        gate.opened.set()
        assert await asyncio.gather(*asked) == gate.done == [0, 1, 2, 3, 4]
        assert (await work_queue.run(lambda: threading.current_thread().name)).startswith("rankd-test")

    queueing(test)


def test_no_more_threads_are_busy_than_there_may_be() -> None:
    async def test(work_queue: WorkQueue, gate: Gate) -> None:
        asked = ask(work_queue, gate, 5)
        await turns()
        assert (work_queue.running, work_queue.waiting) == (3, 2)
        gate.opened.set()
        assert sorted(await asyncio.gather(*asked)) == [0, 1, 2, 3, 4]
        assert (work_queue.running, work_queue.waiting) == (0, 0)

    queueing(test, threads_max=3)


def test_more_than_may_wait_are_refused_and_room_is_made_by_those_who_leave() -> None:
    async def test(work_queue: WorkQueue, gate: Gate) -> None:
        asked = ask(work_queue, gate, 1 + WAITING_MAX)
        await turns()
        with pytest.raises(Overloaded):
            await work_queue.run(int)
        asked[-1].cancel()
        await turns()
        assert work_queue.waiting == WAITING_MAX - 1
        last = asyncio.ensure_future(work_queue.run(int))
        await turns()
        assert work_queue.waiting == WAITING_MAX
        gate.opened.set()
        assert await last == 0

    queueing(test)


def test_the_work_of_those_who_left_is_not_done() -> None:
    async def test(work_queue: WorkQueue, gate: Gate) -> None:
        asked = ask(work_queue, gate, 6)
        await turns()
        for gone in asked[1:5]:
            gone.cancel()
        await asyncio.wait(asked[1:5])
        assert work_queue.waiting == 1
        gate.opened.set()
        assert await asked[0] == 0
        assert await asked[5] == 5
        assert gate.done == [0, 5]

    queueing(test)


def test_work_is_not_begun_for_one_who_was_cancelled_a_moment_ago() -> None:
    async def test(work_queue: WorkQueue, gate: Gate) -> None:
        first, second = ask(work_queue, gate, 2)
        await turns()
        second.cancel()  # its task has not run since, so it is still in the queue
        work_queue.running = 0
        work_queue._begin()
        assert (work_queue.running, work_queue.waiting) == (0, 0)
        work_queue.running = 1
        gate.opened.set()
        assert await first == 0
        assert gate.done == [0]

    queueing(test)


def test_who_leaves_while_the_work_is_being_done_keeps_its_thread_busy_until_it_ends() -> None:
    async def test(work_queue: WorkQueue, gate: Gate) -> None:
        first, second = ask(work_queue, gate, 2)
        await turns()
        first.cancel()
        await asyncio.wait([first])
        assert (work_queue.running, work_queue.waiting) == (1, 1)
        gate.opened.set()
        assert await second == 1
        assert work_queue.running == 0

    queueing(test)


def test_errors_come_back_to_whoever_asked() -> None:
    def fail() -> None:
        raise OSError("the disk is full")

    async def test(work_queue: WorkQueue, _gate: Gate) -> None:
        with pytest.raises(OSError, match="the disk is full"):
            await work_queue.run(fail)
        assert work_queue.running == 0

    queueing(test)


def test_the_end_waits_for_what_has_begun_and_refuses_what_waits() -> None:
    async def test(work_queue: WorkQueue, gate: Gate) -> None:
        asked = ask(work_queue, gate, 4)
        await turns()
        stopping = asyncio.ensure_future(asyncio.to_thread(work_queue.stop))
        await asyncio.wait(asked[1:])
        assert all(isinstance(task.exception(), Overloaded) for task in asked[1:])
        assert not stopping.done()
        with pytest.raises(Overloaded):
            await work_queue.run(int)
        gate.opened.set()
        await stopping
        assert await asked[0] == 0
        assert gate.done == [0]

    queueing(test)


class Body:
    """What a caller's work reads."""


def test_an_error_leaves_no_cycle_that_holds_what_was_worked_on() -> None:
    """Else bodies that were refused stay in memory until Python's collector comes by."""

    async def refused(work_queue: WorkQueue) -> weakref.ref[Body]:
        body = Body()

        def work() -> None:
            raise ValueError(f"{body} is refused")

        with pytest.raises(ValueError, match="refused") as raised:
            await work_queue.run(work)
        del raised
        return weakref.ref(body)

    async def test(work_queue: WorkQueue, _gate: Gate) -> None:
        gc.disable()
        try:
            body = await asyncio.ensure_future(refused(work_queue))
            await turns()
            assert body() is None
        finally:
            gc.enable()

    queueing(test)

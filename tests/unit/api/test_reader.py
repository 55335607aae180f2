"""Reads on their way from the event loop to a batcher and back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.servers.waiting import join_all

from rankd.api.http.request import Response
from rankd.api.reader import ReadDispatcher
from rankd.api.remote import RemoteReads
from rankd.api.work_queue import WorkQueue
from rankd.backend import BatchedReads, Read, Remote
from rankd.errors import Overloaded, RanksUnavailable
from rankd.push.hub import ThreadRunner


class Batcher:
    """Makes each group of reads in a thread, when it is let."""

    def __init__(self, on_done: Callable[[list[Read]], None]) -> None:
        self._tell = on_done
        self.groups: list[int] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.refuses = False
        self._threads: list[threading.Thread] = []

    def put(self, reads: list[Read]) -> None:
        self.groups.append(len(reads))
        self._threads.append(threading.Thread(target=self._make, args=(reads,)))
        self._threads[-1].start()

    def _make(self, reads: list[Read]) -> None:
        self.may_go_on.wait(10)
        for read in reads:
            if not read.is_wanted:
                continue
            if self.refuses:
                read.needs_thread = True
                continue
            try:
                read.result = read.work()
            except Exception as problem:
                read.error = problem
        self._tell(reads)

    def close(self) -> None:
        join_all(self._threads)


class OtherProcess:
    """Where the batcher comes from, in place of the boards."""

    def __init__(self) -> None:
        self.opened: list[Batcher] = []

    def read_batcher(self, on_done: Callable[[list[Read]], None]) -> BatchedReads:
        self.opened.append(Batcher(on_done))
        return self.opened[0]


def reading(reads_max: int = 100, in_thread: ThreadRunner = asyncio.to_thread) -> tuple[ReadDispatcher, Batcher]:
    other_process = OtherProcess()
    reader = ReadDispatcher(cast(Remote, other_process), in_thread, reads_max)
    return reader, other_process.opened[0]


def answer(text: str) -> Callable[[], Response]:
    return lambda: Response(text.encode(), [])


def test_what_is_ready_in_one_turn_of_the_loop_goes_together() -> None:
    async def run() -> tuple[list[int], list[int]]:
        reader, batcher = reading()
        results = await asyncio.gather(*(reader.read(lambda number=number: number) for number in range(7)))  # type: ignore[misc]
        await asyncio.to_thread(reader.stop)
        assert reader.under_way == 0
        return results, batcher.groups

    assert asyncio.run(run()) == ([0, 1, 2, 3, 4, 5, 6], [7])


def test_what_the_batcher_will_not_make_is_made_in_a_thread() -> None:
    async def run() -> str:
        reader, batcher = reading()
        batcher.refuses = True
        thread_name = await reader.read(lambda: threading.current_thread().name)
        assert reader.under_way == 0
        await asyncio.to_thread(reader.stop)
        return thread_name

    assert asyncio.run(run()).startswith("asyncio")


def test_errors_come_back_to_whoever_asked() -> None:
    async def run(*, refuses: bool) -> None:
        reader, batcher = reading()
        batcher.refuses = refuses

        def fail() -> None:
            raise RanksUnavailable("away")

        with pytest.raises(RanksUnavailable):
            await reader.read(fail)
        assert reader.under_way == 0
        await asyncio.to_thread(reader.stop)

    asyncio.run(run(refuses=False))
    asyncio.run(run(refuses=True))


def test_more_than_may_be_under_way_is_refused() -> None:
    async def run() -> None:
        reader, batcher = reading(reads_max=1)
        batcher.may_go_on.clear()
        first = asyncio.ensure_future(reader.read(lambda: 1))
        await asyncio.to_thread(int)
        with pytest.raises(Overloaded):
            await reader.read(lambda: 2)
        batcher.may_go_on.set()
        assert await first == 1
        await asyncio.to_thread(reader.stop)

    asyncio.run(run())


def test_those_who_ask_the_same_share_an_answer_and_one_who_goes_away_takes_nothing() -> None:
    async def run() -> list[bytes]:
        reader, batcher = reading()
        remote = RemoteReads(cache_ms=0)
        batcher.may_go_on.clear()
        key = ("rank", "arcade", 1)

        def ask(text: str) -> Any:
            return asyncio.ensure_future(remote.answer(key, lambda done: reader.begin(answer(text), done)))

        first, second, third = ask("first"), ask("second"), ask("third")
        await asyncio.to_thread(int)
        first.cancel()
        remote.wrote("arcade")
        after = ask("after")
        await asyncio.to_thread(int)
        batcher.may_go_on.set()
        bodies = [(await task).body for task in (second, third, after)]
        await asyncio.to_thread(reader.stop)
        return bodies

    assert asyncio.run(run()) == [b"first", b"first", b"after"]


@pytest.mark.parametrize("alone", [False, True])
def test_a_shared_read_is_dropped_with_the_last_of_those_who_asked_for_it(alone: bool) -> None:
    async def run() -> list[str]:
        threads = WorkQueue("rankd-test", 1, 10)
        reader, batcher = reading(in_thread=threads.run)
        remote = RemoteReads(cache_ms=60_000)
        batcher.may_go_on.clear()
        busy = asyncio.ensure_future(threads.run(lambda: batcher.may_go_on.wait(10)))  # with something else
        key, made = ("top", "arcade", 1), []

        def ask(text: str) -> Any:
            def read() -> Response:
                made.append(text)
                return Response(text.encode(), [])

            begin = reader.begin_alone if alone else reader.begin
            return asyncio.ensure_future(remote.answer(key, lambda done: begin(read, done)))

        gone = [ask("nobody's") for _ in range(3)]
        await asyncio.to_thread(int)
        for task in gone[:2]:
            task.cancel()
        await asyncio.wait(gone[:2])
        assert reader.under_way == 1
        gone[2].cancel()
        await asyncio.wait(gone)
        stays = ask("somebody's")
        batcher.may_go_on.set()
        assert (await asyncio.wait_for(stays, 10)).body == b"somebody's"
        await asyncio.to_thread(reader.stop)
        assert await busy
        await asyncio.to_thread(threads.stop)
        assert (reader.under_way, remote._shared) == (0, {})
        return made

    assert asyncio.run(run()) == ["somebody's"]


def test_a_read_that_nobody_shares_is_dropped_with_who_asked_for_it() -> None:
    async def run() -> list[int]:
        reader, batcher = reading()
        batcher.may_go_on.clear()
        made: list[int] = []
        gone = asyncio.ensure_future(reader.read(lambda: made.append(1)))
        stays = asyncio.ensure_future(reader.read(lambda: made.append(2)))
        await asyncio.to_thread(int)
        gone.cancel()
        await asyncio.wait([gone])
        batcher.may_go_on.set()
        await asyncio.wait_for(stays, 10)
        await asyncio.to_thread(reader.stop)
        assert reader.under_way == 0
        return made

    assert asyncio.run(run()) == [2]


def test_errors_are_not_kept() -> None:
    async def run() -> bytes:
        reader, _ = reading()
        remote = RemoteReads(cache_ms=60_000)
        key = ("rank", "arcade", 1)

        def fail() -> Response:
            raise RanksUnavailable("away")

        with pytest.raises(RanksUnavailable):
            await remote.answer(key, lambda done: reader.begin(fail, done))
        response = await remote.answer(key, lambda done: reader.begin(answer("back"), done))
        again = await remote.answer(key, lambda done: reader.begin(fail, done))
        await asyncio.to_thread(reader.stop)
        assert again.body == response.body
        return response.body

    assert asyncio.run(run()) == b"back"

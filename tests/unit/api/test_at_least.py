"""Reads that wait for a position, with a thousand of them beside those that do not."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.timing import BUSY_MACHINE

from rankd.config.model import Config, RanksConfig

from .in_process import InProcess, in_process

WAITERS = 1_000
READS = 200
LONG = Config(ranks=RanksConfig(at_least_wait_ms=60_000))
BRIEF = Config(ranks=RanksConfig(at_least_wait_ms=20))


async def waiting(app: InProcess, positions: range) -> list[asyncio.Task[int]]:
    """Begin reads that wait for these positions."""

    async def read(position: int) -> int:
        return (await app.get(f"/v1/boards/arcade/top?at_least=0-{position}")).status

    tasks = [asyncio.ensure_future(read(position)) for position in positions]
    while app.service.positions.waiting < len(positions):
        await asyncio.to_thread(int)
    return tasks


async def cost_s(app: InProcess) -> float:
    """Return the processor time of healthy reads and of the commits between them."""
    costs = []
    for _ in range(5):
        began = time.process_time()
        for number in range(READS):
            assert (await app.get("/v1/boards/arcade/top")).status == 200
            if number % 50 == 0:
                await asyncio.to_thread(app.boards.submit, "arcade", "bob", number)
        costs.append(time.process_time() - began)
    return min(costs)


@pytest.mark.timed
def test_a_thousand_waiters_cost_a_healthy_read_next_to_nothing(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        app.boards.define("arcade")
        app.boards.submit("arcade", "alice", 5)
        alone_s = await cost_s(app)
        tasks = await waiting(app, range(10**9, 10**9 + WAITERS))
        assert await cost_s(app) < 2 * alone_s + 0.01 * BUSY_MACHINE
        began, nothing = time.process_time(), asyncio.Event()
        await asyncio.wait([asyncio.ensure_future(nothing.wait())], timeout=0.5)
        assert time.process_time() - began < 0.1 * BUSY_MACHINE, "waiting is no work"
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert app.service.positions.waiting == 0

    in_process(tmp_path, test, LONG)


def test_each_commit_wakes_those_who_waited_for_it(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        app.boards.define("arcade")
        tasks = await waiting(app, range(2, 12))
        for position in range(2, 12):
            match position % 3:  # whatever is committed, and by whomever
                case 0:
                    await asyncio.to_thread(app.boards.submit, "arcade", "bob", position)
                case 1:
                    await asyncio.to_thread(app.boards.define, f"board-{position}")
                case 2:
                    await asyncio.to_thread(app.boards.reset, "arcade")
            assert await asyncio.wait_for(tasks[position - 2], 10) == 200
            assert [task.done() for task in tasks].count(True) == position - 1

    in_process(tmp_path, test, LONG)


def test_what_does_not_come_in_time_is_503_and_what_is_there_is_answered_at_once(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        app.boards.define("arcade")
        position = app.boards.submit("arcade", "alice", 5).position
        assert (await app.get(f"/v1/boards/arcade/top?at_least={position}")).status == 200
        late = await app.get("/v1/boards/arcade/top?at_least=0-99")
        assert (late.status, late.json()["code"]) == (503, "behind")
        assert (await app.get("/v1/boards/arcade/top?at_least=never")).status == 422
        assert app.service.positions.waiting == 0

    in_process(tmp_path, test, BRIEF)


def test_nobody_waits_for_a_board_that_does_not_exist(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        answer = await app.get("/v1/boards/made-up/top?at_least=0-99")
        assert (answer.status, answer.json()["code"]) == (404, "board_unknown")

    in_process(tmp_path, test, BRIEF)

"""Whoever waits until something is ranked: woken together, let go in time, and never in a thread."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Any, cast

import pytest

from rankd.api.live.position_waiter import EVERY_BOARD, CommitNotifier, PositionWaiter, RankPoller
from rankd.backend import LedgerFreshness, Remote
from rankd.errors import Overloaded, RanksUnavailable

LONG_MS = 60_000
WAITERS = 2_000


class Ranks:
    """How far boards are ranked, as a test says."""

    def __init__(self) -> None:
        self.upto: dict[str, Mapping[int, int]] = {}
        self.ledger_seen = LedgerFreshness(0.0, {})
        self.asked: list[list[str]] = []
        self.problem: Exception | None = None

    def ranked_upto(self, boards: Sequence[str]) -> dict[str, Mapping[int, int]]:
        self.asked.append([*boards])
        if self.problem is not None:
            problem, self.problem = self.problem, None
            raise problem
        return {board: self.upto[board] for board in boards if board in self.upto}


class Polled(PositionWaiter):
    """A waiter with a poller that asks for it."""

    def __init__(self, ranks: Ranks, waiters_max: int = WAITERS) -> None:
        super().__init__(waiters_max)
        self.poller = RankPoller(self, cast(Remote, ranks))


def waiting(test: Callable[[Ranks, Polled], Awaitable[Any]], waiters_max: int = WAITERS) -> Any:
    """Run a test on an event loop, and stop as the server does."""

    async def run() -> Any:
        ranks = Ranks()
        waiter = Polled(ranks, waiters_max)
        try:
            return await asyncio.wait_for(test(ranks, waiter), LONG_MS / 1_000)
        finally:
            waiter.stop()
            await asyncio.to_thread(waiter.poller.stop)

    return asyncio.run(run())


def leaves_nothing(waiter: PositionWaiter) -> bool:
    return (waiter.waiting, waiter.boards, waiter._queues, waiter._timer) == (0, [], {}, None)


async def asked_again(ranks: Ranks) -> None:
    before = len(ranks.asked)
    while len(ranks.asked) < before + 2:
        await asyncio.to_thread(int)


def test_everybody_is_woken_by_the_same_question() -> None:
    async def test(ranks: Ranks, waiter: Polled) -> None:
        all_of_them = asyncio.gather(
            *(waiter.wait({number % 8: number}, f"b{number % 3}", LONG_MS) for number in range(WAITERS))
        )
        await asked_again(ranks)
        assert len([thread for thread in threading.enumerate() if thread.name.startswith("rankd-positions")]) == 1
        ranks.upto = {f"b{number}": dict.fromkeys(range(8), WAITERS) for number in range(3)}
        asked = len(ranks.asked)
        assert all(await all_of_them)
        assert len(ranks.asked) <= asked + 2
        assert all(sorted(boards) == ["b0", "b1", "b2"] for boards in ranks.asked[1:])

    waiting(test)


def test_each_is_woken_when_what_it_waits_for_is_ranked() -> None:
    async def test(ranks: Ranks, waiter: Polled) -> None:
        near = asyncio.ensure_future(waiter.wait({0: 5}, "arcade", LONG_MS))
        far = asyncio.ensure_future(waiter.wait({0: 5, 1: 1}, "arcade", LONG_MS))
        other = asyncio.ensure_future(waiter.wait({0: 5}, "words", LONG_MS))
        ranks.upto = {"arcade": {0: 5, 1: 0}, "words": {0: 4}}
        assert await near
        await asked_again(ranks)
        assert not far.done()
        assert not other.done()
        ranks.upto = {"arcade": {0: 5, 1: 1}, "words": {0: 5}}
        assert await far
        assert await other

    waiting(test)


def test_who_has_waited_long_enough_is_let_go_and_nobody_asks_any_more() -> None:
    async def test(ranks: Ranks, waiter: Polled) -> None:
        assert not await waiter.wait({0: 5}, "arcade", 1)
        assert waiter.waiting == 0
        while waiter.poller._polling is not None:
            await asyncio.to_thread(int)
        asked = len(ranks.asked)
        ranks.upto = {"arcade": {0: 5}}
        assert await waiter.wait({0: 5}, "arcade", LONG_MS)
        assert len(ranks.asked) == asked + 1

    waiting(test)


def test_a_position_that_the_ledger_has_not_given_out_is_refused_once_the_ledger_was_looked_at() -> None:
    async def test(ranks: Ranks, waiter: Polled) -> None:
        ranks.upto = {"arcade": {0: 5}}
        ranks.ledger_seen = LedgerFreshness(monotonic(), {0: 5, 1: 0})
        beyond = asyncio.ensure_future(waiter.wait({0: 6}, "arcade", LONG_MS))
        nowhere = asyncio.ensure_future(waiter.wait({9: 1}, "arcade", LONG_MS))
        await asked_again(ranks)
        assert not beyond.done()  # it may have been given out since
        ranks.ledger_seen = LedgerFreshness(monotonic(), {0: 6, 1: 0})
        assert not await nowhere
        assert not beyond.done()
        ranks.upto = {"arcade": {0: 6}}
        assert await beyond

    waiting(test)


def test_a_question_that_fails_is_asked_again() -> None:
    async def test(ranks: Ranks, waiter: Polled) -> None:
        ranks.problem = RanksUnavailable("away")
        ranks.upto = {"arcade": {0: 5}}
        assert await waiter.wait({0: 5}, "arcade", LONG_MS)

    waiting(test)


def test_who_goes_away_leaves_the_others_waiting() -> None:
    async def test(ranks: Ranks, waiter: Polled) -> None:
        gone = asyncio.ensure_future(waiter.wait({0: 5}, "arcade", LONG_MS))
        stays = asyncio.ensure_future(waiter.wait({0: 5}, "arcade", LONG_MS))
        await asked_again(ranks)
        gone.cancel()
        await asyncio.wait([gone])
        assert waiter.waiting == 1
        ranks.upto = {"arcade": {0: 5}}
        assert await stays

    waiting(test)


def test_more_than_may_wait_are_refused() -> None:
    async def test(ranks: Ranks, waiter: Polled) -> None:
        first = asyncio.ensure_future(waiter.wait({0: 5}, "arcade", LONG_MS))
        await asked_again(ranks)
        with pytest.raises(Overloaded):
            await waiter.wait({0: 5}, "arcade", LONG_MS)
        ranks.upto = {"arcade": {0: 5}}
        assert await first

    waiting(test, waiters_max=1)


def test_stopping_lets_everybody_go() -> None:
    async def test(ranks: Ranks, waiter: Polled) -> None:
        waits = asyncio.ensure_future(waiter.wait({0: 5}, "arcade", LONG_MS))
        await asked_again(ranks)
        waiter.stop()
        assert await waits is False
        assert await waiter.wait({0: 5}, "arcade", LONG_MS) is False
        assert leaves_nothing(waiter)

    waiting(test)


# In one process


class Commits:
    """A position that a test moves, from any thread."""

    def __init__(self, waiter: PositionWaiter) -> None:
        self.position = 0
        self.looks = 0
        self.notifier = CommitNotifier(waiter, self._ranked)

    def _ranked(self) -> dict[int, int]:
        self.looks += 1
        return {0: self.position}

    def commit(self, position: int) -> None:
        self.position = position
        self.notifier.committed()


def committing(test: Callable[[PositionWaiter, Commits], Awaitable[Any]]) -> None:
    async def run() -> None:
        waiter = PositionWaiter()
        await asyncio.wait_for(test(waiter, Commits(waiter)), LONG_MS / 1_000)
        assert leaves_nothing(waiter)

    asyncio.run(run())


async def all_begun(waiter: PositionWaiter, count: int) -> None:
    while waiter.waiting < count:
        await asyncio.to_thread(int)


def test_a_commit_wakes_those_whose_position_has_come_and_no_others() -> None:
    async def test(waiter: PositionWaiter, commits: Commits) -> None:
        order = [*range(1, WAITERS + 1)]
        random.Random(7).shuffle(order)
        tasks = {target: asyncio.ensure_future(waiter.wait({0: target}, EVERY_BOARD, LONG_MS)) for target in order}
        await all_begun(waiter, WAITERS)
        for position in (1, 2, 500, 500, 1_999, WAITERS):
            await asyncio.to_thread(commits.commit, position)
            while waiter.waiting > WAITERS - position:
                await asyncio.to_thread(int)
            assert {target for target, task in tasks.items() if task.done()} == set(range(1, position + 1))
        assert all([await task for task in tasks.values()])

    committing(test)


def test_a_commit_does_not_touch_those_whose_position_has_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(waiter: PositionWaiter, commits: Commits) -> None:
        tasks = [asyncio.ensure_future(waiter.wait({0: target}, EVERY_BOARD, LONG_MS)) for target in (1, 2, 3)]
        await all_begun(waiter, 3)
        dirty: list[object] = []
        monkeypatch.setattr(waiter, "_enqueue", dirty.append)
        for position in (1, 2, 3):
            commits.commit(position)
            assert await tasks[position - 1]
        assert dirty == []

    committing(test)


def test_many_commits_at_once_are_one_look() -> None:
    async def test(waiter: PositionWaiter, commits: Commits) -> None:
        waits = asyncio.ensure_future(waiter.wait({0: 1_000}, EVERY_BOARD, LONG_MS))
        await all_begun(waiter, 1)
        before = commits.looks
        for position in range(1, 1_001):
            commits.commit(position)  # the event loop has no turn meanwhile
        assert await waits
        assert commits.looks == before + 1

    committing(test)


def test_without_waiters_a_commit_costs_the_event_loop_nothing() -> None:
    async def test(_waiter: PositionWaiter, commits: Commits) -> None:
        await asyncio.to_thread(commits.commit, 5)
        await asyncio.to_thread(int)
        assert commits.looks == 0

    committing(test)


def test_a_commit_just_before_somebody_waits_is_not_missed() -> None:
    async def test(waiter: PositionWaiter, commits: Commits) -> None:
        commits.commit(5)  # nobody waited, so nobody was woken
        assert await waiter.wait({0: 5}, EVERY_BOARD, LONG_MS)

    committing(test)


def test_commits_from_other_threads_wake_everybody_however_they_fall() -> None:
    async def test(waiter: PositionWaiter, commits: Commits) -> None:
        for position in range(1, 300):
            both = asyncio.gather(
                waiter.wait({0: position}, EVERY_BOARD, LONG_MS), asyncio.to_thread(commits.commit, position)
            )
            assert (await both)[0]

    committing(test)


def test_each_is_let_go_when_its_own_time_is_over() -> None:
    async def test(waiter: PositionWaiter, _commits: Commits) -> None:
        began, ended = monotonic(), dict[int, float]()

        async def wait(wait_ms: int) -> None:
            assert not await waiter.wait({0: 9}, EVERY_BOARD, wait_ms)
            ended[wait_ms] = monotonic() - began

        await asyncio.gather(*(wait(wait_ms) for wait_ms in (300, 20, 150, 0)))
        assert [*ended] == [0, 20, 150, 300]
        assert all(wait_ms / 1_000 <= at_s + 0.01 for wait_ms, at_s in ended.items())

    committing(test)


def test_who_is_cancelled_leaves_nothing_behind() -> None:
    async def test(waiter: PositionWaiter, commits: Commits) -> None:
        tasks = [asyncio.ensure_future(waiter.wait({0: 5 + number % 3}, EVERY_BOARD, LONG_MS)) for number in range(100)]
        await all_begun(waiter, 100)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.wait(tasks[1:])
        assert waiter.waiting == 1
        assert [len(line) for lines in waiter._queues.values() for line in lines.values()] == [1]
        commits.commit(5)
        assert await tasks[0]

    committing(test)

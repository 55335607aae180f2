"""Whoever waits until something is ranked: woken together, let go in time, and never in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Any, cast

import pytest

from rankd.api.arrivals import Arrivals
from rankd.errors import Overloaded, RanksUnavailable
from rankd.parts import LedgerSeen, Remote

LONG_MS = 20_000
WAITERS = 2_000


class Ranks:
    """How far boards are ranked, as a test says."""

    def __init__(self) -> None:
        self.upto: dict[str, Mapping[int, int]] = {}
        self.ledger_seen = LedgerSeen(0.0, {})
        self.asked: list[list[str]] = []
        self.problem: Exception | None = None

    def ranked_upto(self, boards: Sequence[str]) -> dict[str, Mapping[int, int]]:
        self.asked.append([*boards])
        if self.problem is not None:
            problem, self.problem = self.problem, None
            raise problem
        return {board: self.upto[board] for board in boards if board in self.upto}


def waiting(test: Callable[[Ranks, Arrivals], Awaitable[Any]], waiters_max: int = WAITERS) -> Any:
    """Run a test on an event loop, and stop as the server does."""

    async def run() -> Any:
        ranks = Ranks()
        arrivals = Arrivals(cast(Remote, ranks), waiters_max)
        try:
            return await asyncio.wait_for(test(ranks, arrivals), LONG_MS / 1_000)
        finally:
            await asyncio.to_thread(arrivals.stop)

    return asyncio.run(run())


async def asked_again(ranks: Ranks) -> None:
    before = len(ranks.asked)
    while len(ranks.asked) < before + 2:
        await asyncio.to_thread(int)


def test_everybody_is_woken_by_the_same_question() -> None:
    async def test(ranks: Ranks, arrivals: Arrivals) -> None:
        all_of_them = asyncio.gather(
            *(arrivals.wait({number % 8: number}, f"b{number % 3}", LONG_MS) for number in range(WAITERS))
        )
        await asked_again(ranks)
        assert len([one for one in threading.enumerate() if one.name.startswith("rankd-arrivals")]) == 1
        ranks.upto = {f"b{number}": dict.fromkeys(range(8), WAITERS) for number in range(3)}
        asked = len(ranks.asked)
        assert all(await all_of_them)
        assert len(ranks.asked) <= asked + 2
        assert all(sorted(boards) == ["b0", "b1", "b2"] for boards in ranks.asked[1:])

    waiting(test)


def test_each_is_woken_when_what_it_waits_for_is_ranked() -> None:
    async def test(ranks: Ranks, arrivals: Arrivals) -> None:
        near = asyncio.ensure_future(arrivals.wait({0: 5}, "arcade", LONG_MS))
        far = asyncio.ensure_future(arrivals.wait({0: 5, 1: 1}, "arcade", LONG_MS))
        other = asyncio.ensure_future(arrivals.wait({0: 5}, "words", LONG_MS))
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
    async def test(ranks: Ranks, arrivals: Arrivals) -> None:
        assert not await arrivals.wait({0: 5}, "arcade", 1)
        assert arrivals.waiting == 0
        while arrivals._polling is not None:
            await asyncio.to_thread(int)
        asked = len(ranks.asked)
        ranks.upto = {"arcade": {0: 5}}
        assert await arrivals.wait({0: 5}, "arcade", LONG_MS)
        assert len(ranks.asked) == asked + 1

    waiting(test)


def test_a_position_that_the_ledger_has_not_given_out_is_refused_once_the_ledger_was_looked_at() -> None:
    async def test(ranks: Ranks, arrivals: Arrivals) -> None:
        ranks.upto = {"arcade": {0: 5}}
        ranks.ledger_seen = LedgerSeen(monotonic(), {0: 5, 1: 0})
        beyond = asyncio.ensure_future(arrivals.wait({0: 6}, "arcade", LONG_MS))
        nowhere = asyncio.ensure_future(arrivals.wait({9: 1}, "arcade", LONG_MS))
        await asked_again(ranks)
        assert not beyond.done()  # it may have been given out since
        ranks.ledger_seen = LedgerSeen(monotonic(), {0: 6, 1: 0})
        assert not await nowhere
        assert not beyond.done()
        ranks.upto = {"arcade": {0: 6}}
        assert await beyond

    waiting(test)


def test_a_question_that_fails_is_asked_again() -> None:
    async def test(ranks: Ranks, arrivals: Arrivals) -> None:
        ranks.problem = RanksUnavailable("away")
        ranks.upto = {"arcade": {0: 5}}
        assert await arrivals.wait({0: 5}, "arcade", LONG_MS)

    waiting(test)


def test_who_goes_away_leaves_the_others_waiting() -> None:
    async def test(ranks: Ranks, arrivals: Arrivals) -> None:
        gone = asyncio.ensure_future(arrivals.wait({0: 5}, "arcade", LONG_MS))
        stays = asyncio.ensure_future(arrivals.wait({0: 5}, "arcade", LONG_MS))
        await asked_again(ranks)
        gone.cancel()
        await asyncio.wait([gone])
        assert arrivals.waiting == 1
        ranks.upto = {"arcade": {0: 5}}
        assert await stays

    waiting(test)


def test_more_than_may_wait_are_refused() -> None:
    async def test(ranks: Ranks, arrivals: Arrivals) -> None:
        first = asyncio.ensure_future(arrivals.wait({0: 5}, "arcade", LONG_MS))
        await asked_again(ranks)
        with pytest.raises(Overloaded):
            await arrivals.wait({0: 5}, "arcade", LONG_MS)
        ranks.upto = {"arcade": {0: 5}}
        assert await first

    waiting(test, waiters_max=1)


def test_stopping_lets_everybody_go() -> None:
    async def run() -> bool:
        ranks = Ranks()
        arrivals = Arrivals(cast(Remote, ranks))
        waits = asyncio.ensure_future(arrivals.wait({0: 5}, "arcade", LONG_MS))
        await asked_again(ranks)
        await asyncio.to_thread(arrivals.stop)
        return await waits

    assert asyncio.run(run()) is False

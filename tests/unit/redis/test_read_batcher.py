"""Reads that arrive together: what they ask for is asked in one go, and none of them holds another up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import pytest

from rankd.backend import Read
from rankd.errors import BoardUnknown, RanksUnavailable
from rankd.redis.connection.client import FunctionCall
from rankd.redis.read import batching
from rankd.redis.read.batching import CoalescedCalls, Coalescer, ReadBatcher, leave_batcher, run_in_thread

WAIT_S = 60.0
READS = 50


class Made:
    """A read batcher, and the reads it has made."""

    def __init__(self) -> None:
        self._finished: SimpleQueue[list[Read]] = SimpleQueue()
        self.batcher = ReadBatcher(self._finished.put)

    def all_of(self, works: Sequence[Callable[[], Any]]) -> list[Read]:
        """Put reads in together and wait until all are made; in the order put in."""
        reads = [Read(work, lambda _: None) for work in works]
        self.batcher.put(reads)
        self.wait_for(len(reads))
        return reads

    def wait_for(self, count: int) -> list[Read]:
        made: list[Read] = []
        while len(made) < count:
            made += self._finished.get(timeout=WAIT_S)
        return made


class Redis:
    """Answers calls with their own arguments, and counts how often it is asked."""

    def __init__(self) -> None:
        self.round_trips: list[int] = []
        self.problem: Exception | None = None
        self.refused: set[int] = set()  # first arguments that are not answered
        self.threads: set[str] = set()

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        outcomes = self.call_each(calls)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return outcomes

    def call_each(self, calls: Sequence[FunctionCall]) -> list[Any]:
        self.round_trips.append(len(calls))
        self.threads.add(threading.current_thread().name)
        refusal = RanksUnavailable("refused")
        return [self.problem or (refusal if call.arguments[0] in self.refused else call.arguments) for call in calls]

    def node_of(self, key: bytes) -> str:
        return key.decode()


@pytest.fixture
def made() -> Iterator[Made]:
    reading = Made()
    yield reading
    reading.batcher.close()


def call(*arguments: int) -> FunctionCall:
    return FunctionCall("echo", (b"key",), arguments, read_only=True)


def test_reads_that_arrive_together_share_every_round_trip(made: Made) -> None:
    redis = Redis()
    caller = CoalescedCalls(redis)

    def read(number: int) -> Callable[[], Any]:
        def work() -> Any:
            first = caller.call_all([call(number, 1), call(number, 2)])
            return [*first, *caller.call_all([call(number, 3)])]

        return work

    reads = made.all_of([read(number) for number in range(READS)])
    assert [pending_read.result for pending_read in reads] == [
        [(number, 1), (number, 2), (number, 3)] for number in range(READS)
    ]
    assert redis.round_trips == [2 * READS, READS]
    assert redis.threads == {"rankd-reads"}


def test_outside_of_a_batcher_calls_are_made_at_once() -> None:
    redis = Redis()
    assert CoalescedCalls(redis).call_all([call(1), call(2)]) == [(1,), (2,)]
    assert redis.threads == {threading.current_thread().name}
    assert run_in_thread(lambda: threading.current_thread().name) == threading.current_thread().name


def test_a_read_that_fails_fails_alone(made: Made) -> None:
    caller = CoalescedCalls(Redis())

    def refused() -> object:
        caller.call_all([call(1)])
        raise BoardUnknown("board: there is none")

    good, bad, broken = made.all_of([lambda: caller.call_all([call(2)]), refused, lambda: 1 // 0])
    assert good.result == [(2,)]
    assert isinstance(bad.error, BoardUnknown)
    assert isinstance(broken.error, ZeroDivisionError)


def test_what_takes_long_holds_no_other_read_up(made: Made) -> None:
    may_go_on = threading.Event()
    slow = Read(lambda: run_in_thread(lambda: may_go_on.wait(WAIT_S)), lambda _: None)
    made.batcher.put([slow])
    quick = made.all_of([lambda: "quick"])
    assert (quick[0].result, slow.result) == ("quick", None)
    may_go_on.set()
    assert made.wait_for(1) == [slow]
    assert slow.result is True


def test_a_read_that_nobody_wants_any_more_is_reported_and_not_made(made: Made) -> None:
    begun: list[str] = []
    gone, stays = (Read(lambda name=name: begun.append(name), lambda _: None) for name in ("gone", "stays"))  # type: ignore[misc]
    gone.is_wanted = False
    made.batcher.put([gone, stays])
    assert set(made.wait_for(2)) == {gone, stays}
    assert begun == ["stays"]


def test_a_slow_question_of_many_reads_is_asked_once_and_its_error_is_theirs(made: Made) -> None:
    asked: list[list[int]] = []

    def ask_all(numbers: list[int]) -> list[int]:
        asked.append(numbers)
        if 13 in numbers:
            raise LookupError("13")
        return [10 * number for number in numbers]

    names: Coalescer[int, int] = Coalescer(ask_all, is_slow=True)
    fine = made.all_of([lambda: names.ask(1), lambda: names.ask(2)])
    failed = made.all_of([lambda: names.ask(3), lambda: names.ask(13)])
    assert ([pending_read.result for pending_read in fine], asked) == ([10, 20], [[1, 2], [3, 13]])
    assert all(isinstance(pending_read.error, LookupError) for pending_read in failed)


def test_when_redis_does_not_answer_reads_are_made_in_threads_for_a_while(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(batching, "monotonic", lambda: now[0])
    redis = Redis()
    caller = CoalescedCalls(redis)
    redis.problem = RanksUnavailable("away")

    def read() -> object:
        try:
            return caller.call_all([call(1)])
        except RanksUnavailable:
            return "somebody swallowed it"

    assert all(pending_read.needs_thread for pending_read in made.all_of([read, read]))
    assert redis.round_trips == [2]
    redis.problem = None
    assert made.all_of([read])[0].needs_thread
    assert redis.round_trips == [2]
    now[0] += batching.TROUBLED_S
    assert made.all_of([read])[0].result == [(1,)]


def test_a_call_without_an_answer_takes_nothing_from_other_reads(made: Made) -> None:
    redis = Redis()
    redis.refused = {7}
    caller = CoalescedCalls(redis)

    def read(number: int) -> Callable[[], Any]:
        return lambda: caller.call_all([call(number, 1), call(number, 2)])

    good, bad, other = made.all_of([read(1), read(7), read(2)])
    assert (good.result, other.result) == ([(1, 1), (1, 2)], [(2, 1), (2, 2)])
    assert bad.needs_thread
    assert not good.needs_thread


def test_a_read_that_is_about_to_wait_for_long_leaves_the_batcher(made: Made) -> None:
    def read_archive() -> str:
        leave_batcher()
        return "made"

    waiting, other = made.all_of([read_archive, lambda: "made"])
    assert waiting.needs_thread
    assert (other.needs_thread, other.result) == (False, "made")
    assert read_archive() == "made", "in a thread of its own"


def test_closing_makes_what_was_put_in() -> None:
    reading = Made()
    reads = [Read(lambda: run_in_thread(lambda: "made"), lambda _: None) for _ in range(READS)]
    reading.batcher.put(reads)
    reading.batcher.close()
    assert [pending_read.result for pending_read in reads] == ["made"] * READS

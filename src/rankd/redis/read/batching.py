"""Batches concurrent reads: one thread runs them all, each in a greenlet, and coalesces their calls.

    reads → a greenlet each, until it calls a Coalescer → the calls of all of them, in one round trip → each resumes

So a read is written as plain sequential calls, and costs no thread and no round trip of its own. Outside a batcher's
thread a `Coalescer` calls at once, for its caller alone. A read must not hold a lock while it waits: the next read that
wants the lock runs in the same thread.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

from greenlet import getcurrent, greenlet

from rankd.backend import Read
from rankd.errors import RanksUnavailable
from rankd.redis.connection.breaker import Servers
from rankd.redis.connection.client import FunctionCall
from rankd.redis.read.coalescing import Plan

Query = TypeVar("Query")
Outcome = TypeVar("Outcome")
BATCHER_THREADS_MAX = 4
TROUBLED_S = 2.0  # after a failure, reads run in threads for so long, where a waiting read blocks no other
_log = logging.getLogger("rankd")


class _ThreadNeeded(BaseException):
    """Ends a read that must run again in a thread; a BaseException, so that reads do not catch it."""


class Coalescer(Generic[Query, Outcome]):
    """Answers the requests of concurrent reads with one call."""

    def __init__(self, ask_all: Callable[[list[Query]], Sequence[Outcome]], *, is_slow: bool = False) -> None:
        """`ask_all` answers in the order of the requests; a slow one runs in a thread while other reads go on."""
        self.ask_all = ask_all
        self.is_slow = is_slow

    def ask(self, asked: Query) -> Outcome:
        """Return the answer: together with other reads in a batcher's thread, else at once."""
        current = getcurrent()
        if not isinstance(current, _Reading) or current.parent is None:
            return self.ask_all([asked])[0]
        answer: Outcome = current.parent.switch(_Question(self, asked))
        return answer


class CoalescedCalls:
    """Calls to Redis, where all reads of a batcher share one pipeline to each server."""

    def __init__(self, servers: Servers) -> None:
        """`servers` receive the calls."""
        self._servers = servers
        self._coalescer: Coalescer[Sequence[FunctionCall], list[Any] | None] = Coalescer(self._call_for_all)
        self._troubled_until = 0.0

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        """Make calls and return their answers in order: one round trip per node."""
        if not isinstance(getcurrent(), _Reading):
            return self._servers.call_all(calls)
        if monotonic() < self._troubled_until:
            raise _ThreadNeeded
        answers = self._coalescer.ask(calls)
        if answers is None:
            raise _ThreadNeeded
        return answers

    def call_each(self, calls: Sequence[FunctionCall]) -> list[Any]:
        """Make read-only calls; RanksUnavailable stands in place of each missing answer."""
        return self._servers.call_each(calls)

    def node_of(self, key: bytes) -> str:
        """Return the name of the server that has a key."""
        return self._servers.node_of(key)

    def _call_for_all(self, asked: list[Sequence[FunctionCall]]) -> list[list[Any] | None]:
        """Return the answers of each read; None for a read that lacks one and must call again in a thread."""
        plan = Plan([call for calls in asked for call in calls])
        outcomes = iter(plan.split(self._servers.call_each(plan.calls)))
        answers: list[list[Any] | None] = []
        for calls in asked:
            some = [next(outcomes) for _ in calls]
            has_failed = any(isinstance(outcome, RanksUnavailable) for outcome in some)
            if has_failed:
                self._troubled_until = monotonic() + TROUBLED_S
            answers.append(None if has_failed else some)
        return answers


_IN_THREAD: Coalescer[Callable[[], Any], Any] = Coalescer(lambda works: [work() for work in works], is_slow=True)


def run_in_thread(work: Callable[[], Outcome]) -> Outcome:
    """Do slow work in a thread; other reads of the batcher go on meanwhile."""
    answer: Outcome = _IN_THREAD.ask(work)
    return answer


def leave_batcher() -> None:
    """Let a read that is about to wait for long run again in a thread of its own."""
    if isinstance(getcurrent(), _Reading):
        raise _ThreadNeeded


class _Question(NamedTuple):
    """The request a read waits for."""

    coalescer: Coalescer[Any, Any]
    asked: Any


class _Reading(greenlet):  # type: ignore[misc]  # greenlet comes without types
    """A running read."""

    read: Read


class _Answered(NamedTuple):
    """The answer from a thread, or why there is none."""

    reading: _Reading
    answer: Any
    problem: BaseException | None


class ReadBatcher:
    """Runs reads in one thread, all that wait at a time."""

    def __init__(self, on_done: Callable[[list[Read]], None]) -> None:
        """The batcher's thread calls `on_done` with reads that have a result or an error, or need a thread."""
        self._on_done = on_done
        self._inbox: queue.SimpleQueue[list[Read] | _Answered | None] = queue.SimpleQueue()
        self._asking: dict[Coalescer[Any, Any], list[tuple[_Reading, Any]]] = {}
        self._done: list[Read] = []
        self._running = 0
        self._is_closing = False
        self._threads = ThreadPoolExecutor(BATCHER_THREADS_MAX, thread_name_prefix="rankd-reads-slow")
        self._thread = threading.Thread(target=self._run, name="rankd-reads", daemon=True)
        self._thread.start()

    def put(self, reads: list[Read]) -> None:
        """Run reads; from any thread."""
        self._inbox.put(reads)

    def close(self) -> None:
        """Finish all reads, and end."""
        self._inbox.put(None)
        self._thread.join()
        self._threads.shutdown()

    def _run(self) -> None:
        while not self._is_closing or self._running:
            self._take(self._inbox.get())
            while not self._inbox.empty():
                self._take(self._inbox.get())
            while self._asking:
                self._ask(*self._asking.popitem())
            if self._done:
                done, self._done = self._done, []
                self._on_done(done)

    def _take(self, arrived: list[Read] | _Answered | None) -> None:
        if arrived is None:
            self._is_closing = True
        elif isinstance(arrived, _Answered):
            self._resume(arrived.reading, arrived.answer, arrived.problem)
        else:
            for read in arrived:
                if not read.is_wanted:
                    self._done.append(read)
                    continue
                self._running += 1
                reading = _Reading(_perform)
                reading.read = read
                self._resume(reading, read, None)

    def _resume(self, reading: _Reading, answer: Any, problem: BaseException | None) -> None:
        """Run a read until its next request, or its end."""
        question = reading.switch(answer) if problem is None else reading.throw(problem)
        if isinstance(question, _Question):
            self._asking.setdefault(question.coalescer, []).append((reading, question.asked))
        else:
            self._running -= 1
            self._done.append(reading.read)

    def _ask(self, coalescer: Coalescer[Any, Any], waiting: list[tuple[_Reading, Any]]) -> None:
        if coalescer.is_slow:
            for some in [[entry] for entry in waiting] if coalescer is _IN_THREAD else [waiting]:
                self._threads.submit(self._ask_in_thread, coalescer, some)
            return
        for answered in _answer(coalescer, waiting):
            self._resume(*answered)

    def _ask_in_thread(self, coalescer: Coalescer[Any, Any], waiting: list[tuple[_Reading, Any]]) -> None:
        for answered in _answer(coalescer, waiting):
            self._inbox.put(answered)


def _answer(coalescer: Coalescer[Any, Any], waiting: list[tuple[_Reading, Any]]) -> list[_Answered]:
    try:
        answers = coalescer.ask_all([asked for _, asked in waiting])
        return [_Answered(reading, answer, None) for (reading, _), answer in zip(waiting, answers, strict=True)]
    except (Exception, _ThreadNeeded) as problem:
        return [_Answered(reading, None, problem) for reading, _ in waiting]


def _perform(read: Read) -> None:
    try:
        read.result = read.work()
    except _ThreadNeeded:
        read.needs_thread = True
    except Exception as problem:
        read.error = problem

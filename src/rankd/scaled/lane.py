"""Reads that arrive together ask together: one thread makes them all, each in a greenlet of its own.

    reads → a greenlet each, until it asks for something → what all of them ask for, in one round trip → each goes on

So a read is written once, as plain calls one after the other, and costs no thread and no round trip of its own. What
asks in a lane is a `Together`; in any other thread it asks at once, for its caller alone. Nobody holds a lock while
asking: the next read that wants it is made by the same thread.
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
from rankd.projection.redis.breaker import Servers
from rankd.projection.redis.client import Call
from rankd.projection.redis.players_together import Plan

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
ELSEWHERE_THREADS_MAX = 4
TROUBLED_S = 2.0  # for so long after a failure reads are made in threads, where one that waits holds up no other
_log = logging.getLogger("rankd")


class _ThreadNeeded(BaseException):
    """What a read is ended with that is to be made again, in a thread of its own; no error, so nobody catches it."""


class Together(Generic[Asked, Answer]):
    """A question that many reads have at the same moment, each about something of its own."""

    def __init__(self, ask_all: Callable[[list[Asked]], Sequence[Answer]], *, is_slow: bool = False) -> None:
        """`ask_all` answers in the order asked; where it `is_slow` to, reads that do not ask go on meanwhile."""
        self.ask_all = ask_all
        self.is_slow = is_slow

    def ask(self, asked: Asked) -> Answer:
        """Return the answer: in a lane with those of others, elsewhere at once."""
        current = getcurrent()
        if not isinstance(current, _Reading) or current.parent is None:
            return self.ask_all([asked])[0]
        answer: Answer = current.parent.switch(_Question(self, asked))
        return answer


class CallsTogether:
    """Calls to Redis: those of all reads in a lane are one pipeline to each server."""

    def __init__(self, servers: Servers) -> None:
        """`servers` answer them."""
        self._servers = servers
        self._together: Together[Sequence[Call], list[Any] | None] = Together(self._call_everybody)
        self._troubled_until = 0.0

    def call_all(self, calls: Sequence[Call]) -> list[Any]:
        """Make calls and return their answers in order: one round trip per node."""
        if not isinstance(getcurrent(), _Reading):
            return self._servers.call_all(calls)
        if monotonic() < self._troubled_until:
            raise _ThreadNeeded
        answers = self._together.ask(calls)
        if answers is None:
            raise _ThreadNeeded
        return answers

    def call_each(self, calls: Sequence[Call]) -> list[Any]:
        """Make calls that only read; RanksUnavailable stands in place of an answer that is missing."""
        return self._servers.call_each(calls)

    def node_of(self, key: bytes) -> str:
        """Return the name of the server that has a key."""
        return self._servers.node_of(key)

    def _call_everybody(self, asked: list[Sequence[Call]]) -> list[list[Any] | None]:
        """Return everybody's answers; None for those who lack one: they ask again by themselves, and fail or not."""
        plan = Plan([call for calls in asked for call in calls])
        outcomes = iter(plan.split(self._servers.call_each(plan.calls)))
        answers: list[list[Any] | None] = []
        for calls in asked:
            some = [next(outcomes) for _ in calls]
            has_failed = any(isinstance(one, RanksUnavailable) for one in some)
            if has_failed:
                self._troubled_until = monotonic() + TROUBLED_S
            answers.append(None if has_failed else some)
        return answers


_ELSEWHERE: Together[Callable[[], Any], Any] = Together(lambda works: [work() for work in works], is_slow=True)


def elsewhere(work: Callable[[], Answer]) -> Answer:
    """Do what takes long; other reads of a lane go on meanwhile."""
    answer: Answer = _ELSEWHERE.ask(work)
    return answer


class _Question(NamedTuple):
    """What a read stopped for."""

    together: Together[Any, Any]
    asked: Any


class _Reading(greenlet):  # type: ignore[misc]  # greenlet comes without types
    """A read under way."""

    read: Read


class _Answered(NamedTuple):
    """An answer that came while others went on, or why there is none."""

    reading: _Reading
    answer: Any
    problem: BaseException | None


class Lane:
    """Makes reads, all that wait at a time."""

    def __init__(self, tell: Callable[[list[Read]], None]) -> None:
        """`tell` hears of reads in the lane's thread, once each has its result or its error, or needs a thread."""
        self._tell = tell
        self._inbox: queue.SimpleQueue[list[Read] | _Answered | None] = queue.SimpleQueue()
        self._asking: dict[Together[Any, Any], list[tuple[_Reading, Any]]] = {}
        self._made: list[Read] = []
        self._under_way = 0
        self._is_closing = False
        self._elsewhere = ThreadPoolExecutor(ELSEWHERE_THREADS_MAX, thread_name_prefix="rankd-lane-beside")
        self._thread = threading.Thread(target=self._run, name="rankd-lane", daemon=True)
        self._thread.start()

    def put(self, reads: list[Read]) -> None:
        """Make reads; from any thread."""
        self._inbox.put(reads)

    def close(self) -> None:
        """Make what was put in, and end."""
        self._inbox.put(None)
        self._thread.join()
        self._elsewhere.shutdown()

    def _run(self) -> None:
        while not self._is_closing or self._under_way:
            self._take(self._inbox.get())
            while not self._inbox.empty():
                self._take(self._inbox.get())
            while self._asking:
                together, those = self._asking.popitem()
                self._ask(together, those)
            if self._made:
                made, self._made = self._made, []
                self._tell(made)

    def _take(self, arrived: list[Read] | _Answered | None) -> None:
        if arrived is None:
            self._is_closing = True
        elif isinstance(arrived, _Answered):
            self._go_on(arrived.reading, arrived.answer, arrived.problem)
        else:
            for read in arrived:
                if not read.is_wanted:
                    self._made.append(read)
                    continue
                self._under_way += 1
                reading = _Reading(_make)
                reading.read = read
                self._go_on(reading, read, None)

    def _go_on(self, reading: _Reading, answer: Any, problem: BaseException | None) -> None:
        """Let a read go on until it asks for something more, or is made."""
        question = reading.switch(answer) if problem is None else reading.throw(problem)
        if isinstance(question, _Question):
            self._asking.setdefault(question.together, []).append((reading, question.asked))
        else:
            self._under_way -= 1
            self._made.append(reading.read)

    def _ask(self, together: Together[Any, Any], those: list[tuple[_Reading, Any]]) -> None:
        if together.is_slow:
            for some in [[one] for one in those] if together is _ELSEWHERE else [those]:
                self._elsewhere.submit(self._ask_elsewhere, together, some)
            return
        for answered in _answered(together, those):
            self._go_on(*answered)

    def _ask_elsewhere(self, together: Together[Any, Any], those: list[tuple[_Reading, Any]]) -> None:
        for answered in _answered(together, those):
            self._inbox.put(answered)


def _answered(together: Together[Any, Any], those: list[tuple[_Reading, Any]]) -> list[_Answered]:
    try:
        answers = together.ask_all([asked for _, asked in those])
        return [_Answered(reading, answer, None) for (reading, _), answer in zip(those, answers, strict=True)]
    except (Exception, _ThreadNeeded) as problem:
        return [_Answered(reading, None, problem) for reading, _ in those]


def _make(read: Read) -> None:
    try:
        read.result = read.work()
    except _ThreadNeeded:
        read.needs_thread = True
    except Exception as problem:
        read.error = problem

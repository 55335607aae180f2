"""Calls under way: sent together, answered in order, made again where they failed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import hiredis
import redis
from redis.exceptions import ClusterDownError, RedisClusterException, RedisError, ResponseError, TryAgainError

from rankd.errors import RanksUnavailable
from rankd.projection.redis.library import our_function

if TYPE_CHECKING:
    from rankd.projection.redis.client import Client

SENT_BYTES_MIN = 32 * 1024  # less waits for what comes with it
LOST = (redis.ConnectionError, redis.TimeoutError, OSError)
FAILED = (RedisError, RedisClusterException, OSError)  # whatever the driver may raise


class Call(NamedTuple):
    """One call of a function; KEYS[1] decides where it goes, so there is at least one key."""

    function: str
    keys: Sequence[bytes]
    arguments: Sequence[bytes | int | str] = ()
    read_only: bool = False
    is_command: bool = False  # `function` is a command of Redis itself

    @property
    def command(self) -> tuple[Any, ...]:
        """The command as it is sent."""
        if self.is_command:
            return (self.function, *self.keys, *self.arguments)
        name = "FCALL_RO" if self.read_only else "FCALL"
        return (name, our_function(self.function), len(self.keys), *self.keys, *self.arguments)


class Lane:
    """One connection to one server, and whose answers come on it, first asked first."""

    __slots__ = ("_connection", "_pool", "_unsent", "_unsent_bytes", "_waiting")

    def __init__(self, pool: Any) -> None:
        """Nothing is taken from the pool before something is sent."""
        self._pool = pool
        self._connection: Any = None
        self._waiting: deque[tuple[Pending, int]] = deque()
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0

    def send(self, call: Call, pending: Pending, index: int) -> None:
        """Send a call whose answer is `pending`'s, with the next ones if it is small: `flush` comes after the last."""
        packed: bytes = hiredis.pack_command(call.command)  # redis-py would look at each argument in Python first
        self._waiting.append((pending, index))
        self._unsent.append(packed)
        self._unsent_bytes += len(packed)
        if self._unsent_bytes >= SENT_BYTES_MIN:
            self.flush()

    def flush(self) -> None:
        """Send what was not worth a packet of its own."""
        if not self._unsent:
            return
        together = [b"".join(self._unsent)] if len(self._unsent) > 1 else self._unsent
        self._unsent, self._unsent_bytes = [], 0
        try:
            if self._connection is None:
                self._connection = self._pool.get_connection()
            self._connection.send_packed_command(together)
        except FAILED as problem:
            self._break(problem)

    def receive(self, pending: Pending) -> None:
        """Read answers until none is missing that is `pending`'s; those of others on the way are theirs."""
        while any(whose is pending for whose, _ in self._waiting):
            whose, index = self._waiting.popleft()
            try:
                whose.answered(index, self._connection.read_response())
            except ResponseError as problem:
                whose.failed(index, problem)
            except LOST as problem:
                whose.failed(index, problem)
                self._break(problem)

    def release(self) -> None:
        """Give the connection back."""
        self._unsent, self._unsent_bytes = [], 0
        if self._connection is not None:
            if self._waiting:
                self._connection.disconnect()  # answers that nobody reads would be taken for the next one's
                self._waiting.clear()
            self._pool.release(self._connection)
            self._connection = None

    def _break(self, problem: Exception) -> None:
        for pending, index in self._waiting:
            pending.failed(index, problem)
        self._waiting.clear()
        self._unsent, self._unsent_bytes = [], 0
        if self._connection is not None:
            self._connection.disconnect()
            self._pool.release(self._connection)
            self._connection = None


class Pending:
    """Calls that are under way. `answers` or `outcomes` is asked exactly once, by the thread that started them."""

    __slots__ = ("_answers", "_calls", "_client", "_keep_lanes", "_lanes", "_problems")

    def __init__(self, client: Client, calls: Sequence[Call], lanes: dict[int, Lane], *, keep_lanes: bool) -> None:
        """Send the calls, those for one server one after the other on the same connection."""
        self._client = client
        self._calls = calls
        self._answers: list[Any] = [None] * len(calls)
        self._problems: dict[int, Exception] = {}
        self._keep_lanes = keep_lanes
        self._lanes: set[Lane] = set()
        for index, call in enumerate(calls):
            try:
                pool = client.pool_of(call.keys[0])
            except FAILED as problem:  # a slot that nobody serves at present
                self._problems[index] = ClusterDownError(str(problem))
                continue
            lane = lanes.get(id(pool))
            if lane is None:
                lane = lanes[id(pool)] = Lane(pool)
            self._lanes.add(lane)
            lane.send(call, self, index)
        for lane in self._lanes:
            lane.flush()

    def answers(self) -> list[Any]:
        """Wait for the answers, in the order of the calls; RanksUnavailable when one cannot be had."""
        self._receive()
        if self._problems:
            self._repeat()
        return self._answers

    def outcomes(self) -> list[Any]:
        """Wait for the answers of reads, with RanksUnavailable in place of each that cannot be had."""
        self._receive()
        deadline_s = time.monotonic() + self._client.answer_wait_s
        away: dict[str, RanksUnavailable] = {}  # servers, which are not asked once more for each call
        for index, problem in sorted(self._problems.items()):
            call = self._calls[index]
            outcome: Any = away.get(self._client.node_of(call.keys[0]))
            if outcome is None:
                try:
                    outcome = self._client.again(call, problem, deadline_s)
                except RanksUnavailable as unavailable:
                    outcome = unavailable
                    if unavailable.away is not None:
                        away[unavailable.away] = unavailable
            self._answers[index] = outcome
        return self._answers

    def _receive(self) -> None:
        for lane in self._lanes:
            lane.receive(self)
            if not self._keep_lanes:
                lane.release()

    def answered(self, index: int, answer: Any) -> None:
        """Take an answer in."""
        self._answers[index] = answer

    def failed(self, index: int, problem: Exception) -> None:
        """Note why a call has no answer."""
        self._problems[index] = problem

    def _repeat(self) -> None:
        """Make the calls again that failed, and those after them with the same first key: their order counts."""
        deadline_s = time.monotonic() + self._client.answer_wait_s
        disturbed: set[bytes] = set()
        for index, call in enumerate(self._calls):
            problem = self._problems.get(index)
            if problem is None and call.keys[0] in disturbed and not call.read_only:
                problem = TryAgainError("after one that was repeated")
            if problem is not None:
                self._answers[index] = self._client.again(call, problem, deadline_s)
                disturbed.add(call.keys[0])


class Channel:
    """A way on which calls do not overtake each other, also when the next are sent before the last are answered.

    One thread uses it. A call that has to be made again after its connection broke may come after later ones: functions
    that write know by their positions.
    """

    def __init__(self, client: Client) -> None:
        """Made by `Client.channel`."""
        self._client = client
        self._lanes: dict[int, Lane] = {}

    def start(self, calls: Sequence[Call]) -> Pending:
        """Send calls without waiting for what they answer."""
        return Pending(self._client, calls, self._lanes, keep_lanes=True)

    def close(self) -> None:
        """Give the connections back."""
        for lane in self._lanes.values():
            lane.release()
        self._lanes.clear()

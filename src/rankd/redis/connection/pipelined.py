"""Pipelined calls: sent together, answered in order, retried where they failed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import hiredis
import redis
from redis.exceptions import ClusterDownError, RedisClusterException, RedisError, ResponseError, TryAgainError

from rankd.errors import RanksUnavailable
from rankd.redis.connection.library import our_function

if TYPE_CHECKING:
    from rankd.redis.connection.client import RedisClient

SENT_BYTES_MIN = 32 * 1024  # smaller calls wait for `flush`
LOST = (redis.ConnectionError, redis.TimeoutError, OSError)
FAILED = (RedisError, RedisClusterException, OSError)  # everything the driver raises


class FunctionCall(NamedTuple):
    """One call of a function, with at least one key: KEYS[1] selects the server."""

    function: str
    keys: Sequence[bytes]
    arguments: Sequence[bytes | int | str] = ()
    read_only: bool = False
    is_command: bool = False  # `function` is a Redis command

    @property
    def command(self) -> tuple[Any, ...]:
        """The command on the wire."""
        if self.is_command:
            return (self.function, *self.keys, *self.arguments)
        name = "FCALL_RO" if self.read_only else "FCALL"
        return (name, our_function(self.function), len(self.keys), *self.keys, *self.arguments)


class PipelinedConnection:
    """One connection to one server, with the calls that wait for its answers in order."""

    __slots__ = ("_connection", "_pool", "_unsent", "_unsent_bytes", "_waiting")

    def __init__(self, pool: Any) -> None:
        """The first `flush` takes a connection from the pool."""
        self._pool = pool
        self._connection: Any = None
        self._waiting: deque[tuple[Pending, int]] = deque()
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0

    def send(self, call: FunctionCall, pending: Pending, index: int) -> None:
        """Send a call of `pending`; small calls are buffered until `flush`."""
        packed: bytes = hiredis.pack_command(call.command)  # redis-py would encode each argument in Python
        self._waiting.append((pending, index))
        self._unsent.append(packed)
        self._unsent_bytes += len(packed)
        if self._unsent_bytes >= SENT_BYTES_MIN:
            self.flush()

    def flush(self) -> None:
        """Send the buffered calls."""
        if not self._unsent:
            return
        packets = [b"".join(self._unsent)] if len(self._unsent) > 1 else self._unsent
        self._unsent, self._unsent_bytes = [], 0
        try:
            if self._connection is None:
                self._connection = self._pool.get_connection()
            self._connection.send_packed_command(packets)
        except FAILED as problem:
            self._break(problem)

    def receive(self, pending: Pending) -> None:
        """Read answers until `pending` has all of its own; answers before them go to their owners."""
        while any(owner is pending for owner, _ in self._waiting):
            owner, index = self._waiting.popleft()
            try:
                owner.answered(index, self._connection.read_response())
            except ResponseError as problem:
                owner.failed(index, problem)
            except LOST as problem:
                owner.failed(index, problem)
                self._break(problem)

    def release(self) -> None:
        """Return the connection to the pool."""
        self._unsent, self._unsent_bytes = [], 0
        if self._connection is not None:
            if self._waiting:
                self._connection.disconnect()  # the next user would read our unread answers
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
    """Calls in flight. The thread that started them calls `answers` or `outcomes` exactly once."""

    __slots__ = ("_answers", "_calls", "_client", "_connections", "_keep_connections", "_problems")

    def __init__(
        self,
        client: RedisClient,
        calls: Sequence[FunctionCall],
        connections: dict[int, PipelinedConnection],
        *,
        keep_connections: bool,
    ) -> None:
        """Send the calls, in order on one connection per server."""
        self._client = client
        self._calls = calls
        self._answers: list[Any] = [None] * len(calls)
        self._problems: dict[int, Exception] = {}
        self._keep_connections = keep_connections
        self._connections: set[PipelinedConnection] = set()
        for index, call in enumerate(calls):
            try:
                pool = client.pool_of(call.keys[0])
            except FAILED as problem:  # an unassigned slot
                self._problems[index] = ClusterDownError(str(problem))
                continue
            connection = connections.get(id(pool))
            if connection is None:
                connection = connections[id(pool)] = PipelinedConnection(pool)
            self._connections.add(connection)
            connection.send(call, self, index)
        for connection in self._connections:
            connection.flush()

    def answers(self) -> list[Any]:
        """Wait for the answers, in the order of the calls; RanksUnavailable when one is missing after retries."""
        self._receive()
        if self._problems:
            self._repeat()
        return self._answers

    def outcomes(self) -> list[Any]:
        """Wait for the answers of reads, with RanksUnavailable in place of each that is missing after retries."""
        self._receive()
        deadline_s = time.monotonic() + self._client.answer_wait_s
        away: dict[str, RanksUnavailable] = {}  # by server: it is not retried for each call
        for index, problem in sorted(self._problems.items()):
            call = self._calls[index]
            outcome: Any = away.get(self._client.node_of(call.keys[0]))
            if outcome is None:
                try:
                    outcome = self._client.retry(call, problem, deadline_s)
                except RanksUnavailable as unavailable:
                    outcome = unavailable
                    if unavailable.away is not None:
                        away[unavailable.away] = unavailable
            self._answers[index] = outcome
        return self._answers

    def _receive(self) -> None:
        for connection in self._connections:
            connection.receive(self)
            if not self._keep_connections:
                connection.release()

    def answered(self, index: int, answer: Any) -> None:
        """Store the answer of a call."""
        self._answers[index] = answer

    def failed(self, index: int, problem: Exception) -> None:
        """Store why a call has no answer."""
        self._problems[index] = problem

    def _repeat(self) -> None:
        """Retry the failed calls, and later writes with the same first key, to keep their order."""
        deadline_s = time.monotonic() + self._client.answer_wait_s
        disturbed: set[bytes] = set()
        for index, call in enumerate(self._calls):
            problem = self._problems.get(index)
            if problem is None and call.keys[0] in disturbed and not call.read_only:
                problem = TryAgainError("an earlier call with this key was repeated")
            if problem is not None:
                self._answers[index] = self._client.retry(call, problem, deadline_s)
                disturbed.add(call.keys[0])


class Channel:
    """Keeps the order of calls, also when the next are sent before the last are answered.

    One thread uses it. A call retried after its connection broke may arrive after later ones: writing functions notice
    by their positions.
    """

    def __init__(self, client: RedisClient) -> None:
        """Made by `RedisClient.channel`."""
        self._client = client
        self._connections: dict[int, PipelinedConnection] = {}

    def start(self, calls: Sequence[FunctionCall]) -> Pending:
        """Send calls without waiting for the answers."""
        return Pending(self._client, calls, self._connections, keep_connections=True)

    def close(self) -> None:
        """Return the connections to their pools."""
        for connection in self._connections.values():
            connection.release()
        self._connections.clear()

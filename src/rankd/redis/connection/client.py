"""The Redis client: one interface for a single server and for Redis Cluster.

    FunctionCall (function, keys, arguments) → node that has KEYS[1] → connection of the pool → answer

Calls that start together share one round trip per node. The client retries a call that meets a moved or migrating slot,
a promoted replica, a loading server or a lost function library until `answer_wait_s` is over; then, and for every other
connection error, it raises RanksUnavailable. So a call may run twice, and the functions are idempotent. Any number of
threads may use it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TryAgainError,
)
from redis.retry import Retry

from rankd.errors import RanksNewer, RanksUnavailable, RanksUnfit
from rankd.redis.connection.address import RedisAddress
from rankd.redis.connection.library import ensure_library
from rankd.redis.connection.pipelined import FAILED, LOST, Channel, FunctionCall, Pending

__all__ = ["Channel", "FunctionCall", "Pending", "RedisClient", "connect", "unavailable"]

ANSWER_WAIT_S = 5.0
CONNECTION_WAIT_S = 5.0
REDIS_VERSION_MIN = (7, 0)
ALONE = "Redis"  # the name of a server outside a cluster
UNKNOWN_SERVER = "an unknown server"  # of an unassigned slot, or before the first connection
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.005, 0.2
_REFUSED = (AuthenticationError, AuthorizationError, NoPermissionError)
_PASSING = (BusyLoadingError, ClusterDownError, MasterDownError, ReadOnlyError, TryAgainError)
_NO_SERVER = (*LOST, ClusterDownError, MasterDownError, RedisClusterException)
_NO_FUNCTION = "Function not found"
_OTHER_LAYOUT = "RANKD this shard has layout"
_AWAY = "ranks cannot be read at present; try again in a moment"


def connect(url: str, *, answer_wait_s: float = ANSWER_WAIT_S, connections_max: int = 64) -> RedisClient:
    """Connect to redis://, rediss://, unix:// or redis+cluster://host:port[,host:port] (rediss+cluster:// with TLS).

    RanksUnfit for a Redis that is too old, may evict keys or refuses the login; RanksUnavailable when none answers.
    """
    address = RedisAddress(url)
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": min(CONNECTION_WAIT_S, answer_wait_s),
        "socket_connect_timeout": min(CONNECTION_WAIT_S, answer_wait_s),
        "max_connections": connections_max,
        "retry": Retry(NoBackoff(), 0),  # RedisClient retries by kind of error
    }
    client: RedisClient | None = None
    try:
        client = RedisClient(address.opened(options), answer_wait_s)
        client.prepare()
    except BaseException as problem:
        if client is not None:
            client.close()
        if isinstance(problem, _REFUSED):
            raise RanksUnfit(
                f"Redis refuses the login ({_short(problem)}): check user and password in its URL"
            ) from None
        if isinstance(problem, FAILED):
            raise RanksUnavailable(
                f"Redis cannot be reached: {_short(problem)}; is it running there?",
                public_message=_AWAY,
                away=UNKNOWN_SERVER,
            ) from None
        raise
    return client


class RedisClient:
    """Calls functions on the server that has their keys."""

    def __init__(self, server: redis.Redis | RedisCluster, answer_wait_s: float = ANSWER_WAIT_S) -> None:
        """Take ownership of a redis-py client that does not decode answers."""
        self._server: Any = server  # much of redis-py is not typed
        self._cluster: Any = server if isinstance(server, RedisCluster) else None
        self._answer_wait_s = answer_wait_s

    # Calls

    def call(self, call: FunctionCall) -> Any:
        """Make one call and return its answer: one round trip."""
        return self.start((call,)).answers()[0]

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        """Make independent calls and return their answers in order: one round trip per node.

        Calls with the same first key run in the given order.
        """
        return self.start(calls).answers()

    def call_each(self, calls: Sequence[FunctionCall]) -> list[Any]:
        """Make read-only calls as `call_all` does; RanksUnavailable stands in place of each missing answer."""
        return self.start(calls).outcomes()

    def start(self, calls: Sequence[FunctionCall]) -> Pending:
        """Send calls without waiting; `Pending.answers` waits.

        They may overtake calls that are in flight: use a `Channel` where order matters.
        """
        return Pending(self, calls, {}, keep_connections=False)

    def channel(self) -> Channel:
        """Return a channel, which keeps the order of calls, for one thread."""
        return Channel(self)

    def retry(self, call: FunctionCall, problem: Exception, deadline_s: float) -> Any:
        """Retry a call that failed with `problem` until it is answered or `deadline_s` (monotonic) has passed."""
        pause_s = _PAUSE_FIRST_S
        asking: str | None = None
        while True:
            asking = self._repair(problem)
            if asking is None and not isinstance(problem, MovedError) and not _is_missing_function(problem):
                if time.monotonic() + pause_s > deadline_s:
                    raise self._unavailable(problem, call) from None
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            elif time.monotonic() > deadline_s:
                raise self._unavailable(problem, call) from None
            try:
                return self._attempt(call, asking)
            except FAILED as latest:
                problem = latest

    def _repair(self, problem: Exception) -> str | None:
        """Do what the problem needs before the next attempt; return the node to ask, for a migrating slot."""
        if isinstance(problem, AskError):
            return str(problem.node_addr[0]) + ":" + str(problem.node_addr[1])
        if isinstance(problem, (MovedError, ReadOnlyError, ClusterDownError, RedisClusterException, *LOST)):
            if isinstance(problem, _REFUSED):
                raise unavailable(problem)
            self._learn_nodes()
        elif _is_missing_function(problem):
            self._load_again()
        elif _OTHER_LAYOUT in str(problem):
            raise RanksNewer(f"{_short(problem).removeprefix('RANKD ')}: upgrade rankd")
        elif not isinstance(problem, _PASSING):
            raise unavailable(problem)
        return None

    def _attempt(self, call: FunctionCall, asking: str | None) -> Any:
        if asking is not None and self._cluster is not None:
            node = self._cluster.get_node(node_name=asking)
            if node is None:
                self._learn_nodes()
                raise TryAgainError(f"{asking} is not known yet")
            pool = self._cluster.get_redis_connection(node).connection_pool
        else:
            pool = self.pool_of(call.keys[0])
        connection = pool.get_connection()
        try:
            if asking is not None:
                connection.send_command("ASKING")
                connection.read_response()
            connection.send_command(*call.command)
            return connection.read_response()
        except LOST:
            connection.disconnect()
            raise
        finally:
            pool.release(connection)

    def pool_of(self, key: bytes) -> Any:
        """Return the connection pool of the server that has a key."""
        if self._cluster is None:
            return self._server.connection_pool
        node = self._cluster.get_node_from_key(key)
        return self._cluster.get_redis_connection(node).connection_pool

    def node_of(self, key: bytes) -> str:
        """Return the name of the server that has a key, by the known slot map."""
        if self._cluster is None:
            return ALONE
        try:
            return str(self._cluster.get_node_from_key(key).name)
        except FAILED:
            return UNKNOWN_SERVER

    def _unavailable(self, problem: Exception, call: FunctionCall) -> RanksUnavailable:
        return unavailable(problem, self.node_of(call.keys[0]) if isinstance(problem, _NO_SERVER) else None)

    @property
    def answer_wait_s(self) -> float:
        """How long a call is retried."""
        return self._answer_wait_s

    # Servers

    def masters(self) -> Iterator[redis.Redis]:
        """Iterate over the servers that take writes."""
        if self._cluster is None:
            yield self._server
            return
        for node in self._cluster.get_primaries():
            yield self._cluster.get_redis_connection(node)

    def prepare(self) -> None:
        """Refuse an unfit Redis, and load the function library into every master."""
        for server in self.masters():
            _check(server)
            ensure_library(server)

    def _load_again(self) -> None:
        try:
            self.prepare()
        except LOST:
            self._learn_nodes()  # the master is gone
        except ResponseError as problem:
            if not isinstance(problem, _PASSING):
                raise unavailable(problem) from None

    def _learn_nodes(self) -> None:
        if self._cluster is None:
            return
        # While no node knows the slots, the caller's deadline limits the retries.
        with suppress(*FAILED):
            self._cluster.nodes_manager.initialize()

    def close(self) -> None:
        """Close every connection."""
        self._server.close()

    def __enter__(self) -> Self:
        """Return the client; the block's end closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close every connection."""
        self.close()


def unavailable(problem: Exception, away: str | None = None) -> RanksUnavailable:
    """Return the error that replaces the driver's; `away` is the server that could not be reached."""
    return RanksUnavailable(
        f"Redis did not answer as it should: {_short(problem)}; try again in a moment", public_message=_AWAY, away=away
    )


def _is_missing_function(problem: Exception) -> bool:
    return isinstance(problem, ResponseError) and _NO_FUNCTION in str(problem)


def _check(server: redis.Redis) -> None:
    version = str(server.info("server")["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < REDIS_VERSION_MIN:
        raise RanksUnfit(f"Redis {version} has no functions: use Redis 7 or later")
    policy = str(server.info("memory").get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        raise RanksUnfit(
            f"this Redis may drop keys when memory is short (maxmemory-policy {policy}), which would make ranks wrong: "
            "set maxmemory-policy to noeviction"
        )


def _short(problem: Exception) -> str:
    return str(problem)[:200] or type(problem).__name__

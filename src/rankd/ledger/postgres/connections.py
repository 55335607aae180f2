"""Connections to one PostgreSQL database: shared, replaced when they are lost, never waited for without an end.

    using() → an idle connection that still lives, or a new one → used by one thread → idle again

Driver errors never leave it: a server that is away, or does not answer in time, is LedgerUnavailable; one that has
found damage is LedgerDamaged. TLS, passwords and several hosts are in the URL, as libpq reads it. Sessions have
settings and prepared statements of their own: no proxy can stand between that lends one session to several clients.
"""

from __future__ import annotations

import select
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, NoReturn, TypeAlias, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from rankd.errors import Closed, InvalidValue, LedgerDamaged, LedgerUnavailable
from rankd.ledger.postgres.packing import packed_adapters

SCHEMA = "rankd"  # where our tables are, whatever else is in the database
CONNECTIONS_MAX = 8
CONNECT_WAIT_S = 5
ANSWER_WAIT_S = 30.0
READ_WAIT_S = 2.0  # for what can be done without
AWAY_S = 0.5  # it is not asked for that for so long after it did not answer
LOST_WAIT_S = 10  # until a peer that acknowledges nothing counts as lost
MIGRATE_HINT = "run `rankd migrate`"

_DAMAGED = ("XX001", "XX002")
_UNDEFINED = ("42P01", "42703", "42883", "3F000")  # table, column, function, schema
_READ_ONLY = "25006"  # a server that was primary once
_Answer = TypeVar("_Answer")
_WAIT_EVERY_S = 0.1
_ADAPTERS = packed_adapters()

Row: TypeAlias = tuple[Any, ...]


class Connection(psycopg.Connection[Row]):
    """A connection that waits for no answer longer than `answer_wait_s`, whatever the server does."""

    answer_wait_s: float = ANSWER_WAIT_S

    @contextmanager
    def waiting_longer(self, more_s: float) -> Iterator[None]:
        """Let statements take longer for a while, because they have much to do."""
        usual_s = self.answer_wait_s
        self._limit(usual_s + more_s)
        try:
            yield
        finally:
            if not self.closed:
                self._limit(usual_s)

    def _limit(self, answer_wait_s: float) -> None:
        self.answer_wait_s = answer_wait_s
        self.execute("SELECT set_config('statement_timeout', %s, false)", (str(int(answer_wait_s * 1_000)),))

    def wait(self, gen: PQGen[_Answer], interval: float = _WAIT_EVERY_S, timeout: float | None = None) -> _Answer:
        """Wait for an answer; a connection that gives none in time is of no use any more."""
        limit_s = self.answer_wait_s if timeout is None else min(timeout, self.answer_wait_s)
        try:
            return super().wait(gen, interval, limit_s)
        except psycopg.errors._WaitTimeout:
            with suppress(psycopg.Error):
                self.close()
            raise


class Connections:
    """At most `connections_max` at once; further threads wait for one. May be used by any thread."""

    def __init__(
        self,
        url: str,
        connections_max: int = CONNECTIONS_MAX,
        *,
        answer_wait_s: float = ANSWER_WAIT_S,
        connect_wait_s: int = CONNECT_WAIT_S,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is connected before it is used; `settings` are PostgreSQL's, of each session."""
        self._settings = settings or {}
        self._url = with_limits(url, connect_wait_s)
        self._answer_wait_s = answer_wait_s
        self._free = threading.BoundedSemaphore(connections_max)
        self._idle: deque[Connection] = deque()
        self._closed = False

    @contextmanager
    def using(self) -> Iterator[Connection]:
        """Use a connection that nobody else uses meanwhile; every statement commits unless a transaction is begun."""
        if not self._free.acquire(timeout=self._answer_wait_s):
            raise LedgerUnavailable("all connections to PostgreSQL are in use; send it again")
        try:
            connection = self._take()
            try:
                yield connection
            except psycopg.Error as problem:
                if problem.sqlstate == _READ_ONLY:
                    connection.close()
                raise_translated(problem)
            finally:
                self._give_back(connection)
        finally:
            self._free.release()

    def _take(self) -> Connection:
        while not self._closed:
            try:
                connection = self._idle.pop()
            except IndexError:
                return connected(self._url, self._answer_wait_s, self._settings)
            if _is_alive(connection):
                return connection
            connection.close()
        raise Closed("the connections to PostgreSQL were closed; open them again")

    def _give_back(self, connection: Connection) -> None:
        if self._closed or connection.closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
            connection.close()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close those that are idle, and the others as soon as they are."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


class ImpatientConnections(Connections):
    """Connections for what can be done without: while PostgreSQL is away, nobody but one waits for it."""

    def __init__(self, url: str, connections_max: int = CONNECTIONS_MAX, *, settings: Mapping[str, str]) -> None:
        """After a failure, one use looks whether it is back, and the others are refused at once."""
        super().__init__(
            url,
            connections_max,
            answer_wait_s=READ_WAIT_S,
            connect_wait_s=int(READ_WAIT_S),
            settings=settings,
        )
        self._lock = threading.Lock()
        self._look_at: float | None = None  # by the monotonic clock, when one may look; None while it is there

    @contextmanager
    def using(self) -> Iterator[Connection]:
        """Use a connection that nobody else uses meanwhile; LedgerUnavailable at once while PostgreSQL is away."""
        self._pass()
        try:
            with super().using() as connection:
                yield connection
        except LedgerUnavailable:
            self._look_at = monotonic() + AWAY_S
            raise
        self._look_at = None

    def _pass(self) -> None:
        with self._lock:
            if self._look_at is not None:
                if monotonic() < self._look_at:
                    raise LedgerUnavailable("PostgreSQL did not answer a moment ago; try again")
                self._look_at = monotonic() + 3 * READ_WAIT_S  # longer than it can take to find out


def with_limits(url: str, connect_wait_s: int = CONNECT_WAIT_S) -> str:
    """Return how to connect, with limits for waiting where the URL sets none."""
    limits: dict[str, int | str] = {
        "connect_timeout": connect_wait_s,
        "tcp_user_timeout": LOST_WAIT_S * 1_000,
        "keepalives_idle": LOST_WAIT_S,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "application_name": "rankd",
    }
    try:
        given = conninfo_to_dict(url)
        return make_conninfo(url, **{name: value for name, value in limits.items() if name not in given})
    except psycopg.Error:
        # What libpq says repeats the URL, and with it the password.
        raise InvalidValue(
            "url", "cannot be read as the address of a PostgreSQL; it is like postgresql://user@host:5432/database"
        ) from None


def connected(
    conninfo: str, answer_wait_s: float = ANSWER_WAIT_S, settings: Mapping[str, str] | None = None
) -> Connection:
    """Connect, with settings that keep what we promise whatever the server's own are."""
    try:
        connection = Connection.connect(conninfo, autocommit=True, context=_ADAPTERS)
    except psycopg.Error as problem:
        raise_translated(problem)
    connection.answer_wait_s = answer_wait_s
    limit_ms = int(answer_wait_s * 1_000)
    chosen = {
        "search_path": SCHEMA,
        "client_encoding": "UTF8",
        "TimeZone": "UTC",
        "statement_timeout": str(limit_ms),
        "lock_timeout": str(limit_ms // 2),
        "idle_in_transaction_session_timeout": str(limit_ms * 2),
        # Statements are short and looked up by index: to compile them, or to start workers, would take longer.
        "jit": "off",
        "max_parallel_workers_per_gather": "0",
        **(settings or {}),
    }
    try:
        connection.execute(
            "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS chosen (name, value)"
            # A commit is acknowledged when it is on disk; whoever wants more (remote_apply) keeps it.
            " UNION ALL SELECT set_config('synchronous_commit', 'on', false)"
            " WHERE current_setting('synchronous_commit') = 'off'",
            (list(chosen), list(chosen.values())),
        )
    except psycopg.Error as problem:
        connection.close()
        raise_translated(problem)
    return connection


def _is_alive(connection: Connection) -> bool:
    """Tell whether an idle connection can be used: a server that has anything to say to it has said goodbye."""
    if connection.closed:
        return False
    asked = select.poll()
    asked.register(connection.pgconn.socket, select.POLLIN | select.POLLPRI)
    return not asked.poll(0)


def raise_translated(problem: psycopg.Error) -> NoReturn:
    """Raise what an error of the driver means."""
    said = str(problem).strip().splitlines()
    what = said[0] if said else type(problem).__name__
    if problem.sqlstate in _DAMAGED:
        remedy = "restore a backup of the database"
        raise LedgerDamaged(
            f"PostgreSQL found damage ({what}); {remedy}", told=f"the ledger is damaged; {remedy}"
        ) from (problem)
    if problem.sqlstate in _UNDEFINED:
        lacking = "the database lacks a part of rankd's schema"
        raise LedgerUnavailable(f"{lacking} ({what}): {MIGRATE_HINT}", told=f"{lacking}: {MIGRATE_HINT}") from problem
    remedy = "try again when it can be reached, with the same key if it is a write"
    raise LedgerUnavailable(
        f"PostgreSQL cannot be used now ({what}); {remedy}", told=f"PostgreSQL cannot be used now; {remedy}"
    ) from problem

"""A pool of connections to one PostgreSQL database: lost ones are replaced, and every wait has a limit.

    using() → an idle connection that is alive, or a new one → used by one thread → idle again

Driver errors never leave it: a server that is away, or does not answer in time, is LedgerUnavailable; one that reports
damage is LedgerDamaged. TLS, passwords and several hosts are in the URL, as libpq reads it. Sessions have their own
settings and prepared statements, so a transaction-pooling proxy does not work in between.
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

SCHEMA = "rankd"  # of our tables
CONNECTIONS_MAX = 8
CONNECT_WAIT_S = 5
ANSWER_WAIT_S = 30.0
READ_WAIT_S = 2.0  # for optional reads
AWAY_S = 0.5  # pause of optional reads after a failure
LOST_WAIT_S = 10  # until a silent peer counts as lost
MIGRATE_HINT = "run `rankd migrate`"

_DAMAGED = ("XX001", "XX002")
_UNDEFINED = ("42P01", "42703", "42883", "3F000")  # table, column, function, schema
_READ_ONLY = "25006"  # a former primary
_Answer = TypeVar("_Answer")
_WAIT_EVERY_S = 0.1
_ADAPTERS = packed_adapters()

PostgresRow: TypeAlias = tuple[Any, ...]


class PostgresConnection(psycopg.Connection[PostgresRow]):
    """A connection that waits at most `answer_wait_s` for an answer."""

    answer_wait_s: float = ANSWER_WAIT_S

    @contextmanager
    def waiting_longer(self, more_s: float) -> Iterator[None]:
        """Allow large statements `more_s` more."""
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
        """Wait for an answer; close the connection when none comes in time."""
        limit_s = self.answer_wait_s if timeout is None else min(timeout, self.answer_wait_s)
        try:
            return super().wait(gen, interval, limit_s)
        except psycopg.errors._WaitTimeout:
            with suppress(psycopg.Error):
                self.close()
            raise


class Connections:
    """At most `connections_max` at once; further threads wait for one. From any thread."""

    def __init__(
        self,
        url: str,
        connections_max: int = CONNECTIONS_MAX,
        *,
        answer_wait_s: float = ANSWER_WAIT_S,
        connect_wait_s: int = CONNECT_WAIT_S,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Connect on first use; `settings` are PostgreSQL settings of each session."""
        self._settings = settings or {}
        self._url = with_limits(url, connect_wait_s)
        self._answer_wait_s = answer_wait_s
        self._free = threading.BoundedSemaphore(connections_max)
        self._idle: deque[PostgresConnection] = deque()
        self._closed = False

    @contextmanager
    def using(self) -> Iterator[PostgresConnection]:
        """Use a connection exclusively; every statement commits unless a transaction is begun."""
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

    def _take(self) -> PostgresConnection:
        while not self._closed:
            try:
                connection = self._idle.pop()
            except IndexError:
                return connected(self._url, self._answer_wait_s, self._settings)
            if _is_alive(connection):
                return connection
            connection.close()
        raise Closed("the connections to PostgreSQL were closed; open them again")

    def _give_back(self, connection: PostgresConnection) -> None:
        if self._closed or connection.closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
            connection.close()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections, and the others when they become idle."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


class FailFastConnections(Connections):
    """Connections for optional reads, with a circuit breaker: while PostgreSQL is away, only one probe waits for it."""

    def __init__(self, url: str, connections_max: int = CONNECTIONS_MAX, *, settings: Mapping[str, str]) -> None:
        """After a failure, one use probes the server, and the others are refused at once."""
        super().__init__(
            url,
            connections_max,
            answer_wait_s=READ_WAIT_S,
            connect_wait_s=int(READ_WAIT_S),
            settings=settings,
        )
        self._lock = threading.Lock()
        self._probe_at: float | None = None  # monotonic time of the next probe; None while PostgreSQL answers

    @contextmanager
    def using(self) -> Iterator[PostgresConnection]:
        """Use a connection exclusively; LedgerUnavailable at once while PostgreSQL is away."""
        self._admit()
        try:
            with super().using() as connection:
                yield connection
        except LedgerUnavailable:
            self._probe_at = monotonic() + AWAY_S
            raise
        self._probe_at = None

    def _admit(self) -> None:
        with self._lock:
            if self._probe_at is not None:
                if monotonic() < self._probe_at:
                    raise LedgerUnavailable("PostgreSQL did not answer a moment ago; try again")
                self._probe_at = monotonic() + 3 * READ_WAIT_S  # longer than a probe can take


def with_limits(url: str, connect_wait_s: int = CONNECT_WAIT_S) -> str:
    """Return the connection string, with timeouts where the URL sets none."""
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
        # libpq's message repeats the URL with the password.
        raise InvalidValue(
            "url", "cannot be read as the address of a PostgreSQL; it is like postgresql://user@host:5432/database"
        ) from None


def connected(
    conninfo: str, answer_wait_s: float = ANSWER_WAIT_S, settings: Mapping[str, str] | None = None
) -> PostgresConnection:
    """Connect, with settings that keep our promises whatever the server's defaults are."""
    try:
        connection = PostgresConnection.connect(conninfo, autocommit=True, context=_ADAPTERS)
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
        # Statements are short index lookups: compiling them, or starting workers, would take longer.
        "jit": "off",
        "max_parallel_workers_per_gather": "0",
        **(settings or {}),
    }
    try:
        connection.execute(
            "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS chosen (name, value)"
            # A commit is acknowledged when it is on disk; a stronger setting (remote_apply) stays.
            " UNION ALL SELECT set_config('synchronous_commit', 'on', false)"
            " WHERE current_setting('synchronous_commit') = 'off'",
            (list(chosen), list(chosen.values())),
        )
    except psycopg.Error as problem:
        connection.close()
        raise_translated(problem)
    return connection


def _is_alive(connection: PostgresConnection) -> bool:
    """Return whether an idle connection is usable: unexpected input means that the server has closed it."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN | select.POLLPRI)
    return not poll.poll(0)


def raise_translated(problem: psycopg.Error) -> NoReturn:
    """Raise our error for a driver error."""
    lines = str(problem).strip().splitlines()
    what = lines[0] if lines else type(problem).__name__
    if problem.sqlstate in _DAMAGED:
        remedy = "restore a backup of the database"
        raise LedgerDamaged(
            f"PostgreSQL found damage ({what}); {remedy}", public_message=f"the ledger is damaged; {remedy}"
        ) from (problem)
    if problem.sqlstate in _UNDEFINED:
        lacking = "the database lacks a part of rankd's schema"
        raise LedgerUnavailable(
            f"{lacking} ({what}): {MIGRATE_HINT}", public_message=f"{lacking}: {MIGRATE_HINT}"
        ) from problem
    remedy = "try again when it can be reached, with the same key if it is a write"
    raise LedgerUnavailable(
        f"PostgreSQL cannot be used now ({what}); {remedy}", public_message=f"PostgreSQL cannot be used now; {remedy}"
    ) from problem

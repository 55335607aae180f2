"""The lease for work of which only one process may do: ranking into Redis, the timed work of nodes, relaying.

The lease is an advisory lock of PostgreSQL, held by a connection, so it ends with its process. A thread keeps the
connection busy, and PostgreSQL ends a connection that is idle for `LOST_AFTER_MS`: a process that is cut off or paused
loses the lease, a busy one does not. A holder that gets no answer for as long assumes that it has lost it. Each claim
increments the epoch, which is the fence: Redis refuses a paused projector whose epoch is lower than its successor's.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import psycopg
from psycopg.conninfo import make_conninfo

from rankd.errors import LedgerUnavailable
from rankd.ledger.postgres.connections import PostgresConnection, connected, with_limits

PROJECTORS, NODES, RELAYS = "ranks", "nodes", "relays"
_LOCKS = {PROJECTORS: 0x72616E6B64, NODES: 0x72616E6B65, RELAYS: 0x72616E6B66}  # "rankd", and the next
_PROGRAMS = {PROJECTORS: "rankd project", NODES: "rankd serve", RELAYS: "rankd relay"}
LOST_AFTER_MS = 4_000
KEEP_EVERY_S = 1.0
ANSWER_WAIT_S = 4.0  # without an answer for so long, PostgreSQL has ended the connection
_CLAIM = """
    INSERT INTO rankd.projectors AS known (name, epoch, holder, since) VALUES (%s, 1, %s, now())
    ON CONFLICT (name) DO UPDATE SET epoch = known.epoch + 1, holder = excluded.holder, since = excluded.since
    RETURNING epoch
"""


class Lease:
    """A lease; used by one thread at a time, kept alive by its own."""

    def __init__(self, url: str, holder: str, name: str = PROJECTORS) -> None:
        """`holder` is shown to operators; projectors, nodes and relays have different leases."""
        self._name = name
        self._url = url
        self._holder = holder
        self._connection: PostgresConnection | None = None
        self._keeper: threading.Thread | None = None
        self._released = threading.Event()
        self.epoch = 0

    def claim(self) -> bool:
        """Try to get the lease; return whether we hold it."""
        try:
            if self._connection is None or self._connection.closed:
                name = f"{_PROGRAMS[self._name]} {self._holder}"
                conninfo = make_conninfo(with_limits(self._url), application_name=name)
                self._connection = connected(conninfo, ANSWER_WAIT_S)
            row = self._connection.execute("SELECT pg_try_advisory_lock(%s)", (_LOCKS[self._name],)).fetchone()
            if row is None or not row[0]:
                return False
            self._connection.execute(f"SET idle_session_timeout = {LOST_AFTER_MS:d}".encode())
            claimed = self._connection.execute(_CLAIM, (self._name, self._holder)).fetchone()
        except psycopg.Error as problem:
            self.release()
            raise LedgerUnavailable(f"the lease cannot be claimed: {problem}") from problem
        if claimed is None:
            raise AssertionError("the upsert returns its row")
        self.epoch = claimed[0]
        self._released = threading.Event()
        self._keeper = threading.Thread(
            target=_keep, args=(self._connection, self._released), name="rankd-lease", daemon=True
        )
        self._keeper.start()
        return True

    def is_held(self) -> bool:
        """Return whether we still hold the lock, which ends with its connection."""
        if self._connection is None:
            return False
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error:
            self.release()
            return False
        return True

    def release(self) -> None:
        """Release the lease; another process takes over at once."""
        self._released.set()
        keeper, self._keeper = self._keeper, None
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()
        if keeper is not None:
            keeper.join()


def _keep(connection: PostgresConnection, released: threading.Event) -> None:
    with suppress(psycopg.Error):  # `is_held` finds out
        while not released.wait(KEEP_EVERY_S):
            connection.execute("SELECT 1")

"""Who does what only one may: rank into Redis, with an epoch that Redis checks; or, of nodes, what is timed.

The lock is PostgreSQL's, held by a connection: whoever dies lets go of it. A thread keeps the connection busy, and
PostgreSQL ends one that is idle for `LOST_AFTER_MS`: whoever is cut off or stands still lets go as well, and whoever is
only at work for long does not. Whoever gets no answer for as long takes it that another ranks. The epoch is counted up
by whoever gets the lock. A projector that was paused and does not know yet that another has taken over is refused by
Redis, since its epoch is the lower one.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import psycopg
from psycopg.conninfo import make_conninfo

from rankd.errors import LedgerUnavailable
from rankd.ledger.postgres.connections import Connection, connected, with_limits

PROJECTORS, NODES = "ranks", "nodes"
_LOCKS = {PROJECTORS: 0x72616E6B64, NODES: 0x72616E6B65}  # "rankd", and the next
_PROGRAMS = {PROJECTORS: "rankd project", NODES: "rankd serve"}
LOST_AFTER_MS = 4_000
KEEP_EVERY_S = 1.0
ANSWER_WAIT_S = 4.0  # whoever is not answered for so long has lost it, by PostgreSQL's own reckoning
_CLAIM = """
    INSERT INTO rankd.projectors AS known (name, epoch, holder, since) VALUES (%s, 1, %s, now())
    ON CONFLICT (name) DO UPDATE SET epoch = known.epoch + 1, holder = excluded.holder, since = excluded.since
    RETURNING epoch
"""


class Lease:
    """The right to do it; used by one thread at a time, kept by one of its own."""

    def __init__(self, url: str, holder: str, name: str = PROJECTORS) -> None:
        """`holder` is shown to people who ask who it is; projectors and nodes have a lease of their own each."""
        self._name = name
        self._url = url
        self._holder = holder
        self._connection: Connection | None = None
        self._keeper: threading.Thread | None = None
        self._let_go = threading.Event()
        self.epoch = 0

    def claim(self) -> bool:
        """Try to become the one; tell whether we are."""
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
            raise LedgerUnavailable(f"the lease cannot be asked for: {problem}") from problem
        if claimed is None:
            raise AssertionError("a row that is written is returned")
        self.epoch = claimed[0]
        self._let_go = threading.Event()
        self._keeper = threading.Thread(
            target=_keep, args=(self._connection, self._let_go), name="rankd-lease", daemon=True
        )
        self._keeper.start()
        return True

    def is_held(self) -> bool:
        """Tell whether the lock is still ours: it ends with its connection."""
        if self._connection is None:
            return False
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error:
            self.release()
            return False
        return True

    def release(self) -> None:
        """Let go, so that another takes over at once."""
        self._let_go.set()
        keeper, self._keeper = self._keeper, None
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()
        if keeper is not None:
            keeper.join()


def _keep(connection: Connection, let_go: threading.Event) -> None:
    with suppress(psycopg.Error):  # the projector's thread finds out for itself
        while not let_go.wait(KEEP_EVERY_S):
            connection.execute("SELECT 1")

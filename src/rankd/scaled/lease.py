"""Who ranks: one projector at a time, with an epoch that Redis checks.

The lock is PostgreSQL's, held by a connection: whoever dies or is cut off lets go of it. The epoch is counted up by
whoever gets it. A projector that was paused and does not know yet that another has taken over is refused by Redis,
since its epoch is the lower one.
"""

from __future__ import annotations

from contextlib import suppress

import psycopg

from rankd.errors import LedgerUnavailable

_LOCK = 0x72616E6B64  # "rankd"
_CLAIM = """
    UPDATE rankd.projectors SET epoch = epoch + 1, holder = %s, since = now() WHERE name = 'ranks' RETURNING epoch
"""


class Lease:
    """The right to rank; used by the projector's thread."""

    def __init__(self, url: str, holder: str) -> None:
        """`holder` is shown to people who ask who ranks."""
        self._url = url
        self._holder = holder
        self._connection: psycopg.Connection[tuple[int]] | None = None
        self.epoch = 0

    def claim(self) -> bool:
        """Try to become the one; tell whether we are."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(
                    self._url, autocommit=True, connect_timeout=5, application_name=f"rankd project {self._holder}"
                )
            row = self._connection.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchone()
            if row is None or not row[0]:
                return False
            claimed = self._connection.execute(_CLAIM, (self._holder,)).fetchone()
        except psycopg.Error as problem:
            self.release()
            raise LedgerUnavailable(f"the projector's lease cannot be asked for: {problem}") from problem
        if claimed is None:
            raise AssertionError("the table of projectors has its row from the start")
        self.epoch = claimed[0]
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
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

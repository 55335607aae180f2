"""The backlog of a ledger on PostgreSQL; ledger/backlog.py has its promises. All times are the server's."""

from __future__ import annotations

from collections.abc import Sequence

from rankd.ledger.backlog import HOLD_MS_MAX, BacklogState
from rankd.ledger.postgres.connections import Connections
from rankd.ledger.postgres.packing import Bigints

# In seconds; HOLD_MS_MAX bounds what is in the future.
_READ = """
SELECT ranked, held_until > now() AND held_until <= now() + make_interval(secs => %s) FROM backlog
"""
_NOTE = """
UPDATE backlog SET ranked = (
  SELECT array_agg(greatest(coalesce(stored, 0), coalesce(noted, 0)) ORDER BY place)
  FROM unnest(ranked, %s::bigint[]) WITH ORDINALITY AS both_of (stored, noted, place)
)
"""
_HOLD = """
UPDATE backlog SET held_until = now() + make_interval(secs => %s)
WHERE held_until + make_interval(secs => %s) <= now() OR held_until > now() + make_interval(secs => %s)
"""
_RELEASE = "UPDATE backlog SET held_until = now() WHERE held_until > now()"
_HOLD_S_MAX = HOLD_MS_MAX / 1_000


class PostgresBacklog:
    """The one row of the table `backlog`."""

    def __init__(self, connections: Connections) -> None:
        """Nothing is read yet."""
        self._connections = connections

    def read(self) -> BacklogState:
        """Return the state now."""
        with self._connections.using() as connection:
            row = connection.execute(_READ, (_HOLD_S_MAX,), prepare=True).fetchone()
        return BacklogState((), is_held=False) if row is None else BacklogState(tuple(row[0]), bool(row[1]))

    def note_ranked(self, positions: Sequence[int]) -> None:
        """Note how far a node has ranked."""
        with self._connections.using() as connection:
            connection.execute(_NOTE, (Bigints(list(positions)),), prepare=True)

    def hold(self, hold_ms: int, pause_ms: int) -> bool:
        """Hold writes from now on; False, without effect, while the last hold has not ended `pause_ms` ago."""
        if not 0 < hold_ms <= HOLD_MS_MAX:
            raise AssertionError(f"a hold lasts up to {HOLD_MS_MAX} ms")
        with self._connections.using() as connection:
            seconds = (hold_ms / 1_000, pause_ms / 1_000, _HOLD_S_MAX)
            return connection.execute(_HOLD, seconds, prepare=True).rowcount == 1

    def release(self) -> None:
        """End the hold under way, if there is one."""
        with self._connections.using() as connection:
            connection.execute(_RELEASE, prepare=True)

"""The index of events about no player: a row beside those of the players, for each chunk of the ledger.

Ledgers of earlier versions have chunks without such a row; upkeep writes them, from the newest chunk to the oldest.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

import apsw

from rankd.ledger.sqlite.database import ReadOnlyDatabase

OF_CONTROLS = -1  # in place of a player's number
_PLACE = Struct(">HI")  # offset in the chunk, context
_INDEX = """
INSERT OR REPLACE INTO player_events (chunk, player, sequences)
SELECT
  :chunk, :of_controls,
  coalesce(unhex(group_concat(printf('%04x%08x', sequence - :first, context), '' ORDER BY sequence)), x'')
FROM events
WHERE sequence >= :first AND sequence < :end AND player = 0
"""
_RECENT = """
SELECT sequence, context FROM events WHERE sequence >= ? AND sequence < ? AND player = 0 ORDER BY sequence DESC
"""


class ControlIndex:
    """Finds control events without reading the ledger; it may be asked from any thread."""

    def __init__(self, database: ReadOnlyDatabase, chunks: int, chunk_events: int) -> None:
        """`chunks` are indexed by player; those from some chunk on have their control events, too."""
        self._database = database
        self._chunk_events = chunk_events
        low, high = 0, chunks
        with database.reading() as reader:
            while low < high:
                middle = (low + high) // 2
                if _row(reader, middle) is None:
                    low = middle + 1
                else:
                    high = middle
        self.first_chunk = low  # this one and all later ones are indexed

    def write(self, writer: apsw.Connection, chunk: int) -> None:
        """Index a chunk, in the current transaction."""
        first = chunk * self._chunk_events
        values = {"chunk": chunk, "of_controls": OF_CONTROLS, "first": first, "end": first + self._chunk_events}
        writer.execute(_INDEX, values)

    def index_older(self) -> bool:
        """Index the newest chunk of those that an earlier version left without; False when there is none."""
        if self.first_chunk == 0:
            return False
        with self._database.writing() as writer:
            self.write(writer, self.first_chunk - 1)
        self.first_chunk -= 1
        self._database.give_way()
        return True

    def places(self, after: int, upto: int, chunks: int) -> Iterator[tuple[int, int]]:
        """Iterate over sequence and context of control events, the newest first, as far as they are indexed.

        `chunks` are indexed by now, and `after` is exclusive.
        """
        size = self._chunk_events
        with self._database.reading() as reader:
            recent: list[Any] = reader.execute(_RECENT, (max(after + 1, chunks * size), upto + 1)).fetchall()
        yield from recent
        for chunk in range(min(chunks - 1, upto // size), max(self.first_chunk, after // size) - 1, -1):
            with self._database.reading() as reader:
                packed = _row(reader, chunk)
            for offset, context in reversed(list(_PLACE.iter_unpack(packed or b""))):
                if after < chunk * size + offset <= upto:
                    yield chunk * size + offset, context


def _row(reader: apsw.Connection, chunk: int) -> bytes | None:
    packed: bytes | None = reader.execute(
        "SELECT sequences FROM player_events WHERE chunk = ? AND player = ?", (chunk, OF_CONTROLS)
    ).get
    return packed

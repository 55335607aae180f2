"""The index from players to their events, written behind the ledger, a chunk of events at a time.

An index updated per event would write a random page for each. Sorted by player within a chunk, it is written
sequentially; a lookup takes one step per chunk, and scans the events not indexed yet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from rankd.ledger.event import NO_PLAYER
from rankd.ledger.sqlite.database import ReadOnlyDatabase
from rankd.ledger.sqlite.player_ids import PlayerIds

CHUNK_EVENTS = 65_536
SHARES = 4  # commits per chunk: a commit of scores waits for one at most, some 15 ms; each reads the whole chunk
_INDEX = """
INSERT OR REPLACE INTO player_events (chunk, player, sequences)
SELECT :chunk, player, unhex(group_concat(printf('%04x', sequence - :first), '' ORDER BY sequence))
FROM events
WHERE sequence >= :first AND sequence < :end AND player > 0 AND player % :shares = :share
GROUP BY player
"""


class PlayerHistory:
    """The index from players to their events."""

    def __init__(self, database: ReadOnlyDatabase, ids: PlayerIds) -> None:
        """Read how many chunks are indexed."""
        self._database = database
        self._ids = ids
        with database.reading() as reader:
            last = reader.execute("SELECT max(chunk) FROM player_events WHERE player = ?", (NO_PLAYER,)).get
        self.chunks = 0 if last is None else last + 1

    def behind(self, sequence: int) -> int:
        """Return the number of complete chunks up to an event that are not indexed."""
        return (sequence + 1) // CHUNK_EVENTS - self.chunks

    def index_chunk(self) -> None:
        """Index the next chunk, which must be complete; SQLite does the work without the GIL."""
        chunk = self.chunks
        first = chunk * CHUNK_EVENTS
        values = {"chunk": chunk, "first": first, "end": first + CHUNK_EVENTS, "shares": SHARES}
        for share in range(SHARES):
            with self._database.writing() as writer:
                writer.execute(_INDEX, {**values, "share": share})
            self._database.give_way()
        with self._database.writing() as writer:
            writer.execute("INSERT OR REPLACE INTO player_events VALUES (?, ?, x'')", (chunk, NO_PLAYER))
        self.chunks += 1

    def events_of(self, player: str) -> Iterator[int]:
        """Iterate over the sequences of a player's events, the newest first."""
        number = self._ids.number(player)
        if number is None:
            return
        chunks = self.chunks
        with self._database.reading() as reader:
            recent: list[Any] = reader.execute(
                "SELECT sequence FROM events WHERE sequence >= ? AND player = ? ORDER BY sequence DESC",
                (chunks * CHUNK_EVENTS, number),
            ).fetchall()
        yield from (sequence for (sequence,) in recent)
        for chunk in range(chunks - 1, -1, -1):
            with self._database.reading() as reader:
                offsets = reader.execute(
                    "SELECT sequences FROM player_events WHERE chunk = ? AND player = ?", (chunk, number)
                ).get
            if offsets is not None:
                listed = struct.unpack(f">{len(offsets) // 2}H", offsets)
                yield from (chunk * CHUNK_EVENTS + offset for offset in reversed(listed))

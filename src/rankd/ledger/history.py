"""A player's own events: an index that is written behind the ledger, a chunk of events at a time.

An index kept with each event would write a page at a random place for each of them. Sorted by player within a chunk,
the index is written from one end to the other; a lookup takes a step for each chunk, and reads what is not indexed yet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from rankd.ledger.database import Database
from rankd.ledger.event import NO_PLAYER

CHUNK_EVENTS = 65_536
SHARES = 16  # of a chunk's players, each in a commit of its own: a commit of scores waits for one at most
_INDEX = """
INSERT OR REPLACE INTO player_events (chunk, player, sequences)
SELECT :chunk, player, unhex(group_concat(printf('%04x', sequence - :first), '' ORDER BY sequence))
FROM events
WHERE sequence >= :first AND sequence < :end AND player > 0 AND player % :shares = :share
GROUP BY player
"""


class History:
    """The index from players to their events."""

    def __init__(self, database: Database) -> None:
        """Find out how far the index is."""
        self._database = database
        with database.reading() as reader:
            last = reader.execute("SELECT max(chunk) FROM player_events WHERE player = ?", (NO_PLAYER,)).get
        self.chunks = 0 if last is None else last + 1

    def behind(self, sequence: int) -> int:
        """Return how many whole chunks up to an event are not indexed."""
        return (sequence + 1) // CHUNK_EVENTS - self.chunks

    def index_chunk(self) -> None:
        """Index the next chunk, all of which is in the ledger; SQLite does it, so Python runs other threads."""
        chunk = self.chunks
        first = chunk * CHUNK_EVENTS
        about = {"chunk": chunk, "first": first, "end": first + CHUNK_EVENTS, "shares": SHARES}
        for share in range(SHARES):
            with self._database.writing() as writer:
                writer.execute(_INDEX, {**about, "share": share})
        with self._database.writing() as writer:
            writer.execute("INSERT OR REPLACE INTO player_events VALUES (?, ?, x'')", (chunk, NO_PLAYER))
        self.chunks += 1

    def events_of(self, player: str) -> Iterator[int]:
        """Go through the sequences of a player's events, the newest first."""
        with self._database.reading() as reader:
            number = reader.execute("SELECT number FROM players WHERE id = ?", (player,)).get
            if number is None:
                return
            chunks = self.chunks
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

"""A player's own events: an index that is written behind the ledger, a chunk of events at a time.

An index kept with each event would write a page at a random place for each of them. Sorted by player within a chunk,
the index is written from one end to the other; a lookup takes a step for each chunk, and reads what is not indexed yet.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from rankd.ledger.database import Database
from rankd.ledger.event import NO_PLAYER

CHUNK_EVENTS = 65_536
PLAYERS_PER_COMMIT = 4_000  # a commit of scores waits for one of these at most


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
        """Index the next chunk, all of which is in the ledger."""
        chunk = self.chunks
        first = chunk * CHUNK_EVENTS
        with self._database.reading() as reader:
            rows: list[Any] = reader.execute(
                "SELECT player, sequence FROM events WHERE sequence >= ? AND sequence < ? AND player > 0"
                " ORDER BY player, sequence",
                (first, first + CHUNK_EVENTS),
            ).fetchall()
        found: list[tuple[int, int, bytes]] = []
        for player, group in groupby(rows, itemgetter(0)):
            offsets = array("H", [sequence - first for _, sequence in group])
            found.append((chunk, player, offsets.tobytes()))
        for start in range(0, len(found), PLAYERS_PER_COMMIT):
            self._insert(found[start : start + PLAYERS_PER_COMMIT])
        self._insert([(chunk, NO_PLAYER, b"")])
        self.chunks += 1

    def _insert(self, rows: list[tuple[int, int, bytes]]) -> None:
        with self._database.writing() as writer:
            writer.executemany("INSERT OR REPLACE INTO player_events (chunk, player, sequences) VALUES (?, ?, ?)", rows)

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
                yield from (chunk * CHUNK_EVENTS + offset for offset in reversed(array("H", offsets)))

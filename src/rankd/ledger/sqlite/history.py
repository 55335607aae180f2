"""The index from players to their events, written behind the ledger, a chunk of events at a time.

An index updated per event would write a random page for each. Sorted by player within a chunk, it is written
sequentially; a lookup takes one step per chunk, and scans the events not indexed yet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec

from rankd.ledger.event import NO_PLAYER
from rankd.ledger.sqlite.control_index import ControlIndex
from rankd.ledger.sqlite.database import ReadOnlyDatabase
from rankd.ledger.sqlite.player_ids import PlayerIds

CHUNK_EVENTS = 65_536
SEQUENCE_END = 2**63 - 1
SHARES = 4  # commits per chunk: a commit of scores waits for one at most, some 15 ms; each reads the whole chunk
_INDEX = """
INSERT OR REPLACE INTO player_events (chunk, player, sequences)
SELECT :chunk, player, unhex(group_concat(printf('%04x', sequence - :first), '' ORDER BY sequence))
FROM events
WHERE sequence >= :first AND sequence < :end AND player > 0 AND player % :shares = :share
GROUP BY player
"""
_RECENT = """
SELECT sequence, player FROM events
WHERE sequence >= ? AND sequence < ? AND player IN (SELECT value FROM json_each(?))
ORDER BY sequence DESC
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
        self.controls = ControlIndex(database, self.chunks, CHUNK_EVENTS)

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
            self.controls.write(writer, chunk)
            writer.execute("INSERT OR REPLACE INTO player_events VALUES (?, ?, x'')", (chunk, NO_PLAYER))
        self.chunks += 1

    def first_of_chunk(self, chunk: int) -> int:
        """Return the sequence that a chunk begins with."""
        return chunk * CHUNK_EVENTS

    def events_of(self, player: str, before: int = SEQUENCE_END) -> Iterator[int]:
        """Iterate over the sequences of a player's events before a sequence, the newest first."""
        for _, sequences in self.events_of_each({player: before}):
            yield from sequences

    def events_of_each(self, players: Mapping[str, int]) -> Iterator[tuple[str, Iterator[int]]]:
        """Iterate over players with the sequences of their events, each before a sequence of its own.

        What is not indexed yet is read once for all of them.
        """
        numbers = {player: number for player in players if (number := self._ids.number(player)) is not None}
        if not numbers:
            return
        chunks = self.chunks
        asked = (chunks * CHUNK_EVENTS, max(players.values()), msgspec.json.encode([*numbers.values()]).decode())
        with self._database.reading() as reader:
            rows: list[Any] = reader.execute(_RECENT, asked).fetchall()
        recent: dict[int, list[int]] = {}
        for sequence, number in rows:
            recent.setdefault(number, []).append(sequence)
        for player, number in numbers.items():
            end = players[player]
            newest = [sequence for sequence in recent.get(number, ()) if sequence < end]
            yield player, chain(newest, self._indexed(number, chunks, end))

    def _indexed(self, number: int, chunks: int, end: int) -> Iterator[int]:
        for chunk in range(min(chunks - 1, end // CHUNK_EVENTS), -1, -1):
            with self._database.reading() as reader:
                offsets = reader.execute(
                    "SELECT sequences FROM player_events WHERE chunk = ? AND player = ?", (chunk, number)
                ).get
            if offsets is not None:
                listed = struct.unpack(f">{len(offsets) // 2}H", offsets)
                sequences = (chunk * CHUNK_EVENTS + offset for offset in reversed(listed))
                yield from (sequence for sequence in sequences if sequence < end)

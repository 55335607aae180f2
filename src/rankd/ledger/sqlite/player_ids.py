"""The index of players' ids, written behind the players, a chunk of them at a time.

An index that each commit keeps sorted writes a page for each new player. Sorted within a chunk, it is written
sequentially; a lookup takes a step per chunk, and scans the players who are not indexed yet.
"""

from __future__ import annotations

from typing import Any

from rankd.ledger.sqlite.database import ReadOnlyDatabase

CHUNK_PLAYERS = 16_384  # sorted and written in one commit, for which scores wait some 15 ms

_INDEXED_UPTO = "SELECT coalesce(max(upto), 0) FROM player_ids"
_NEXT = """
SELECT max(number), count(*)
FROM (SELECT number FROM players WHERE number > ? ORDER BY number LIMIT ?)
"""
_INDEX = """
INSERT INTO player_ids (upto, id, number)
SELECT :upto, id, number FROM players WHERE number > :after AND number <= :upto ORDER BY id
"""
_ONE = """
WITH RECURSIVE chunks (upto) AS (
  SELECT min(upto) FROM player_ids
  UNION ALL
  SELECT (SELECT min(upto) FROM player_ids WHERE upto > chunks.upto) FROM chunks WHERE upto IS NOT NULL
)
SELECT number FROM chunks JOIN player_ids USING (upto) WHERE id = ?
"""
_ONE_NOT_INDEXED = "SELECT number FROM players WHERE number > ? AND id = ?"
# No id of a chunk whose first match comes late is among the first matches of all.
_CHUNKS_OF_PREFIX = """
WITH RECURSIVE chunks (upto) AS (
  SELECT min(upto) FROM player_ids
  UNION ALL
  SELECT (SELECT min(upto) FROM player_ids WHERE upto > chunks.upto) FROM chunks WHERE upto IS NOT NULL
)
SELECT upto FROM (
  SELECT
    upto,
    (SELECT min(id) FROM player_ids WHERE player_ids.upto = chunks.upto AND id >= :start) AS first
  FROM chunks
)
WHERE substr(first, 1, length(:start)) = :start ORDER BY first LIMIT :limit
"""
_PREFIX = "SELECT id FROM player_ids WHERE upto = ? AND id >= ? ORDER BY id LIMIT ?"
_PREFIX_NOT_INDEXED = """
SELECT id FROM players
WHERE number > :after AND id >= :start AND substr(id, 1, length(:start)) = :start ORDER BY id LIMIT :limit
"""


class PlayerIds:
    """The index of players' ids; it may be asked from any thread."""

    def __init__(self, database: ReadOnlyDatabase) -> None:
        """Nothing is read yet."""
        self._database = database

    def index_chunk(self) -> bool:
        """Index the next chunk of players in one commit; False when there are too few to make one."""
        chunk = self._next_chunk()
        if chunk is None:
            return False
        after, upto = chunk
        with self._database.writing() as writer:
            writer.execute(_INDEX, {"after": after, "upto": upto})
        self._database.give_way()
        return True

    def is_behind(self) -> bool:
        """Return whether a whole chunk of players is not indexed."""
        return self._next_chunk() is not None

    def _next_chunk(self) -> tuple[int, int] | None:
        with self._database.reading() as reader:
            after: int = reader.execute(_INDEXED_UPTO).get
            row: Any = reader.execute(_NEXT, (after, CHUNK_PLAYERS)).get
        upto, players = row
        return (after, upto) if players == CHUNK_PLAYERS else None

    def number(self, player: str) -> int | None:
        """Return a player's number."""
        with self._database.reading() as reader:
            # What is indexed meanwhile is found twice, and nobody is missed.
            upto: int = reader.execute(_INDEXED_UPTO).get
            number: int | None = reader.execute(_ONE, (player,)).get
            return number if number is not None else reader.execute(_ONE_NOT_INDEXED, (upto, player)).get

    def with_prefix(self, start: str, limit: int) -> list[str]:
        """Return the first ids that begin with a text, in order."""
        with self._database.reading() as reader:
            asked = {"after": reader.execute(_INDEXED_UPTO).get, "start": start, "limit": limit}
            chunks: list[Any] = reader.execute(_CHUNKS_OF_PREFIX, asked).fetchall()
            rows: list[Any] = reader.executemany(_PREFIX, [(upto, start, limit) for (upto,) in chunks]).fetchall()
            rows += reader.execute(_PREFIX_NOT_INDEXED, asked).fetchall()
        return sorted({player for (player,) in rows if player.startswith(start)})[:limit]

"""Numbers of players and contexts: all in memory, assigned with the next commit.

A new number enters the memory only when its commit has succeeded: one that never reached the disk is assigned again.
Only the writing thread uses them, but for the reading of players after a start.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec

from rankd._numbers import Numbers
from rankd.errors import Closed, LedgerDamaged
from rankd.ledger.event import Context, decode_context, encode_context
from rankd.ledger.sqlite.database import Database

PLAYERS_READ_AT_ONCE = 16_384
# One row, and one statement, for all of them: the driver releases the GIL for each.
_NEXT = """
SELECT json_group_array(number), json_group_array(id)
FROM (SELECT number, id FROM players WHERE number > ? ORDER BY number LIMIT ?)
"""
_INSERT = "INSERT INTO players (number, id) SELECT ? + key, value FROM json_each(?)"
_decode_numbers = msgspec.json.Decoder(list[int]).decode
_decode_ids = msgspec.json.Decoder(list[str]).decode


def _encode_ids(players: Iterable[str]) -> str:
    # An id may be a subclass of str, which the encoder does not know.
    return msgspec.json.encode([str.__str__(player) for player in players]).decode()


class PlayerNumbers:
    """The numbers of all players, in memory: whoever is not there is new.

    A number that is not in memory but on disk would be given a second time. So after a failure, which may have taken
    effect, and after every start, the players on disk are read before the next number is given.
    """

    def __init__(self, database: Database) -> None:
        """Nothing is read yet."""
        self._database = database
        self._known = Numbers()
        self.fresh: dict[str, int] = {}  # assigned, and not on disk yet: those behind `_loaded_upto`, in order
        self._last = 0  # the last number assigned
        self._loaded_upto = 0  # the players up to this number are in memory
        self._is_loaded = False  # whether all players on disk are in memory
        self._loading = threading.Lock()
        self._closing = False

    def load(self) -> None:
        """Read the players on disk who are not in memory; from any thread, also from two that share the work."""
        while not self._is_loaded:
            with self._loading:
                self._load_some()

    def _load_some(self) -> None:
        if self._is_loaded:
            return  # by another thread meanwhile
        if self._closing:
            raise Closed("the boards were closed; open them again with rankd.open")
        with self._database.reading() as reader:
            row: Any = reader.execute(_NEXT, (self._loaded_upto, PLAYERS_READ_AT_ONCE)).get
            last: int = reader.execute("SELECT coalesce(max(number), 0) FROM players").get
        # Room for all at once: a table that doubles again and again moves everybody twice.
        self._known.reserve(last - self._loaded_upto)
        numbers = _decode_numbers(row[0])
        self._known.put(_decode_ids(row[1]), numbers)
        self._last = self._loaded_upto = numbers[-1] if numbers else self._loaded_upto
        self._is_loaded = len(numbers) < PLAYERS_READ_AT_ONCE

    def close(self) -> None:
        """End a running `load`, which raises Closed."""
        self._closing = True
        with self._loading:
            pass

    def forget_fresh(self) -> None:
        """Drop assigned numbers whose commit failed, or may have succeeded."""
        self.fresh.clear()
        self._is_loaded = False

    def number(self, players: Sequence[str]) -> array[int]:
        """Return the number of each player, assigning new ones."""
        if not self._is_loaded:
            self.load()
        cached, missing = self._known.find(players)
        numbers = array("q", cached)
        fresh = self.fresh
        for index in missing:
            player = players[index]
            number = fresh.get(player)
            if number is None:
                self._last += 1
                number = fresh[player] = self._last
            numbers[index] = number
        return numbers

    def save(self, writer: apsw.Connection) -> None:
        """Write the numbers assigned since the last commit, in the current transaction."""
        if self.fresh:
            writer.execute(_INSERT, (self._loaded_upto + 1, _encode_ids(self.fresh)))

    def saved(self) -> None:
        """Note that the transaction was committed."""
        if self.fresh:  # else players up to `_last` may be on disk that are not in memory
            self._known.put(list(self.fresh), list(self.fresh.values()))
            self._loaded_upto = self._last
            self.fresh.clear()


class ContextNumbers:
    """The contexts of the ledger, all in memory."""

    def __init__(self, connection: apsw.Connection) -> None:
        """Read all contexts."""
        self._connection = connection
        self._contexts: list[Context] = []
        self.texts: list[bytes] = []  # the stored JSON, from number 1 on
        self._numbers: dict[bytes, int] = {}
        self.read_on(connection)

    def read_on(self, connection: apsw.Connection) -> None:
        """Read the contexts that were stored behind those known here."""
        rows: list[Any] = connection.execute(
            "SELECT number, context FROM contexts WHERE number > ? ORDER BY number", (len(self._contexts),)
        ).fetchall()
        for number, text in rows:
            try:
                self._add(decode_context(text), text.encode())
            except (msgspec.DecodeError, TypeError, AttributeError) as problem:
                raise LedgerDamaged(
                    f"context {number} is damaged ({problem}); restore a copy of the data folder"
                ) from None
            if number != len(self._contexts):
                raise LedgerDamaged(f"context {len(self._contexts)} is missing; restore a copy of the data folder")
        self._saved = len(self._contexts)
        self.fresh = False  # whether some numbers are not on disk yet

    def _add(self, context: Context, text: bytes) -> int:
        self._contexts.append(context)
        self.texts.append(text)
        number = self._numbers[text] = len(self._contexts)
        self.fresh = True
        return number

    def number(self, context: Context) -> int:
        """Return the number of a context, assigning one to a new context."""
        text = encode_context(context)
        return self._numbers.get(text) or self._add(context, text)

    def context(self, number: int) -> Context:
        """Return a context by number."""
        if not 1 <= number <= len(self._contexts):
            raise LedgerDamaged(f"context {number} is missing; restore a copy of the data folder")
        return self._contexts[number - 1]

    def stored(self, numbers: Iterable[int]) -> list[bytes]:
        """Return the JSON of contexts, each once, in order of first use."""
        texts = self.texts
        return [texts[number - 1] for number in dict.fromkeys(numbers) if 1 <= number <= len(texts)]

    def save(self) -> None:
        """Write the new contexts, in the current transaction."""
        for number in range(self._saved + 1, len(self.texts) + 1):
            self._connection.execute(
                "INSERT INTO contexts (number, context) VALUES (?, ?)", (number, self.texts[number - 1].decode())
            )

    def saved(self) -> None:
        """Note that the transaction was committed."""
        self._saved = len(self._contexts)
        self.fresh = False

    def recover(self) -> None:
        """Read which are on disk; the others keep their numbers, which drafts may hold, until they are saved."""
        self._saved = self._connection.execute("SELECT count(*) FROM contexts").get
        self.fresh = self._saved < len(self._contexts)

"""Numbers for players and contexts: looked up in memory first, given out with the next commit.

What is given out is remembered only when the commit succeeded: a number that never reached the disk is given again.
Used by the writing thread alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import apsw
import msgspec

from rankd._numbers import Numbers
from rankd.errors import LedgerDamaged
from rankd.ledger.database import Database
from rankd.ledger.event import Context, decode_context, encode_context
from rankd.ledger.statements import insert

PLAYERS_CACHED_MAX = 200_000_000  # 22 bytes each, up to twice that while the table grows


_NUMBERS = "SELECT json_group_array(json_array(id, number)) FROM players WHERE id IN (SELECT value FROM json_each(?))"
_NEXT = "SELECT json_group_array(json_array(id, number)) FROM players WHERE number > ? AND number <= ?"
_decode_numbers = msgspec.json.Decoder(list[tuple[str, int]]).decode


def _encode_ids(players: Sequence[str]) -> str:
    # An id may be of a class of its own, which the encoder does not know.
    return msgspec.json.encode([str.__str__(player) for player in players]).decode()


class KnownPlayers(NamedTuple):
    """Players by id, and up to which number everybody is among them or before."""

    upto: int
    numbers: dict[str, int]


class PlayerNumbers:
    """The numbers of players: those seen since the start are in memory, the others are looked up."""

    def __init__(self, database: Database) -> None:
        """Players are looked up on the writing connection, whose memory holds most of them."""
        self._database = database
        self.known = Numbers()  # those seen since the start
        self.fresh: dict[str, int] = {}  # given out, and not on disk yet
        self._last = 0
        self.forget_fresh()
        self._warm_upto = 0  # everybody up to this number is in memory
        self._cold_upto = min(self._last, PLAYERS_CACHED_MAX)  # who comes later is remembered with their commit

    def forget_fresh(self) -> None:
        """Forget what was given out and did not reach the disk."""
        self.fresh.clear()
        with self._database.exclusive() as connection:  # upkeep uses it too
            self._last = connection.execute("SELECT coalesce(max(number), 0) FROM players").get

    def number(self, players: Sequence[str]) -> array[int]:
        """Return the number of each player, giving new ones to those who have none."""
        found, missing = self.known.find(players)
        numbers = array("q", found)
        if missing:
            given = self._look_up([players[index] for index in missing])
            for index in missing:
                numbers[index] = given[players[index]]
        return numbers

    def look_up(self, players: Sequence[str]) -> None:
        """Have the numbers of players at hand who have one: many looked up at once cost less than one by one."""
        _, missing = self.known.find(players)
        wanted = [players[index] for index in missing if players[index] not in self.fresh]
        if len(wanted) > 1:
            self._remember(self._stored(wanted))

    def _look_up(self, players: Sequence[str]) -> dict[str, int]:
        fresh = self.fresh
        given = {player: fresh[player] for player in players if player in fresh}
        missing = [player for player in dict.fromkeys(players) if player not in given]
        stored = self._stored(missing)
        for player in missing:
            if player not in stored:
                self._last += 1
                fresh[player] = given[player] = self._last
        self._remember(stored)
        return {**given, **stored}

    def _stored(self, players: Sequence[str]) -> dict[str, int]:
        # One row however many there are: the driver lets other threads run for each.
        with self._database.exclusive() as connection:
            found: str = connection.execute(_NUMBERS, (_encode_ids(players),)).get
        return dict(_decode_numbers(found))

    def read_next(self, count: int) -> KnownPlayers | None:
        """Return the next players who may not be in memory, for `warm`; None when all are. In any thread."""
        after, upto = self._warm_upto, self._cold_upto
        if after >= upto:
            return None
        upto = min(after + count, upto)
        with self._database.reading() as reader:
            found: str = reader.execute(_NEXT, (after, upto)).get
        return KnownPlayers(upto, dict(_decode_numbers(found)))

    def warm(self, players: KnownPlayers) -> None:
        """Have players at hand before they come: after a start, looking them up is dearer than ranking them."""
        self._remember(players.numbers)
        self._warm_upto = players.upto

    def _remember(self, numbers: dict[str, int]) -> None:
        if len(self.known) + len(numbers) > PLAYERS_CACHED_MAX:
            self.known.clear()
        self.known.put(list(numbers), list(numbers.values()))

    def save(self, writer: apsw.Connection) -> None:
        """Write the numbers given out since the last commit, in the transaction under way."""
        if self.fresh:
            insert(
                writer,
                "INSERT INTO players (number, id) VALUES",
                [(number, player) for player, number in self.fresh.items()],
            )

    def saved(self) -> None:
        """Note that the transaction was committed."""
        if self.fresh:
            self._remember(self.fresh)
            self.fresh.clear()


class ContextNumbers:
    """The contexts of the ledger: few, so all of them are in memory."""

    def __init__(self, connection: apsw.Connection) -> None:
        """Read all there are."""
        self._connection = connection
        self._contexts: list[Context] = []
        self.texts: list[bytes] = []  # the JSON of each as it is stored; that of number 1 is the first
        self._numbers: dict[bytes, int] = {}
        rows: list[Any] = connection.execute("SELECT number, context FROM contexts ORDER BY number").fetchall()
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
        self.fresh = False  # whether numbers were given out that are not on disk yet

    def _add(self, context: Context, text: bytes) -> int:
        self._contexts.append(context)
        self.texts.append(text)
        number = self._numbers[text] = len(self._contexts)
        self.fresh = True
        return number

    def number(self, context: Context) -> int:
        """Return the number of a context, giving one to a new context."""
        text = encode_context(context)
        return self._numbers.get(text) or self._add(context, text)

    def context(self, number: int) -> Context:
        """Return a context by number."""
        if not 1 <= number <= len(self._contexts):
            raise LedgerDamaged(f"context {number} is missing; restore a copy of the data folder")
        return self._contexts[number - 1]

    def stored(self, numbers: Iterable[int]) -> list[bytes]:
        """Return the JSON of contexts, each once, in the order they are named first."""
        texts = self.texts
        return [texts[number - 1] for number in dict.fromkeys(numbers) if 1 <= number <= len(texts)]

    def save(self) -> None:
        """Write the contexts that are new, in the transaction under way."""
        for number in range(self._saved + 1, len(self.texts) + 1):
            self._connection.execute(
                "INSERT INTO contexts (number, context) VALUES (?, ?)", (number, self.texts[number - 1].decode())
            )

    def saved(self) -> None:
        """Note that the transaction was committed."""
        self._saved = len(self._contexts)
        self.fresh = False

    def recover(self) -> None:
        """Find out which are on disk; the others keep their numbers, which drafts may hold, until they are saved."""
        self._saved = self._connection.execute("SELECT count(*) FROM contexts").get
        self.fresh = self._saved < len(self._contexts)

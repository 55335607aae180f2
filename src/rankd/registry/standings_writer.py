"""Writes standings: what the projector's engine keeps, in batches; see standings.py.

    what changed → one transaction: positions checked, rows set and taken away, positions moved

Rows say what is kept now, so that sending them again changes nothing. There may be several projectors for a moment: a
write waits for the one under way, and one that does not go on from what is stored writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, NamedTuple

from psycopg import Cursor, IsolationLevel

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Rules, score_keys, tie_keys
from rankd.ledger.postgres.connections import Connection, Connections
from rankd.ledger.postgres.migrations import check_component
from rankd.ledger.postgres.packing import Bigints, Integers, Texts
from rankd.registry.standings import COMPONENT, POSITIONS, AsOf, read_positions, standings_scripts

ANSWER_WAIT_S = 60.0
ROWS_MAX = 20_000  # of one statement
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('rankd.standings', 0))"
_INSTANCES = "SELECT instance, number, ordering, ties FROM standings_instances WHERE instance = ANY (%s)"
_ADD_INSTANCES = """
INSERT INTO standings_instances (instance, ordering, ties)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[])
RETURNING instance, number
"""
_LEAVE = """
WITH emptied AS (DELETE FROM standings_instances WHERE instance = ANY (%s) RETURNING number)
INSERT INTO standings_left (number) SELECT number FROM emptied
"""
_LEAVE_ALL = """
WITH emptied AS (DELETE FROM standings_instances RETURNING number)
INSERT INTO standings_left (number) SELECT number FROM emptied
"""
# A row that this statement has made was never deleted or locked by anybody: its xmax is 0.
_SET = """
WITH written AS (
  INSERT INTO standings AS held (instance, player, score_key, tie_key)
  SELECT * FROM unnest(%b::integer[], %b::text[], %b::bigint[], %b::bigint[])
  ON CONFLICT (instance, player) DO UPDATE
  SET score_key = excluded.score_key, tie_key = excluded.tie_key
  WHERE (held.score_key, held.tie_key) <> (excluded.score_key, excluded.tie_key)
  RETURNING instance, xmax = 0 AS is_new
)
SELECT instance, count(*) FROM written WHERE is_new GROUP BY instance
"""
_TAKE = """
WITH taken AS (
  DELETE FROM standings
  USING unnest(%b::integer[], %b::text[]) AS gone (instance, player)
  WHERE standings.instance = gone.instance AND standings.player = gone.player
  RETURNING standings.instance
)
SELECT instance, count(*) FROM taken GROUP BY instance
"""
_COUNT = """
UPDATE standings_instances
SET total = total + counted.more
FROM unnest(%s::integer[], %s::bigint[]) AS counted (number, more)
WHERE standings_instances.number = counted.number
"""
_DROP_EMPTY = "DELETE FROM standings_instances WHERE number = ANY (%s) AND total = 0"
_MOVE = """
INSERT INTO standings_positions (partition, epoch, sequence, at)
SELECT partition, epoch, sequence, %s FROM unnest(%s::integer[], %s::bigint[], %s::bigint[])
       AS moved (partition, epoch, sequence)
ON CONFLICT (partition) DO UPDATE
SET epoch = excluded.epoch, sequence = excluded.sequence, at = excluded.at
"""
_SWEEP = """
DELETE FROM standings
WHERE ctid = ANY (ARRAY(SELECT ctid FROM standings WHERE instance = %s LIMIT %s))
"""


class Move(NamedTuple):
    """How far a write takes a partition: from the event after `after` to `upto`, by a projector of an epoch."""

    partition: int
    epoch: int
    after: int
    upto: int


class Verdict(StrEnum):
    """What became of a write."""

    WRITTEN = "written"
    DUP = "dup"  # it begins before what is stored
    GAP = "gap"  # it begins behind what is stored: `rewrite` puts everything in place
    FENCED = "fenced"  # a projector of a later epoch has written


class Changed(NamedTuple):
    """What changed in one instance; a player is named once."""

    key: InstanceKey
    rules: Rules
    players: Sequence[str] = ()  # of whom this is kept now
    scores: Sequence[int] = ()
    ties: Sequence[int] = ()
    gone: Sequence[str] = ()  # who stands there no longer
    cleared: bool = False  # nobody else stands there any more


class Rest(NamedTuple):
    """What changed while everything was read, and what all of it is of."""

    changes: Sequence[Changed]
    moves: Sequence[Move] = ()
    at: int = 0
    is_last: bool = True  # else more has changed, and is asked for


class _Rows:
    """Rows of several instances, as columns."""

    def __init__(self) -> None:
        self.instances: list[int] = []
        self.players: list[str] = []
        self.score_keys: list[int] = []
        self.tie_keys: list[int] = []

    def add(self, number: int, change: Changed) -> None:
        rules = change.rules
        self.instances += [number] * len(change.players)
        self.players += change.players
        self.score_keys += score_keys(rules, change.scores)
        self.tie_keys += tie_keys(rules, change.ties)

    def parts(self) -> Iterator[tuple[Integers, Texts, Bigints, Bigints]]:
        """Return them in parts that one statement takes."""
        for first in range(0, len(self.players), ROWS_MAX):
            part = slice(first, first + ROWS_MAX)
            yield (
                Integers(self.instances[part]),
                Texts([player.encode() for player in self.players[part]]),
                Bigints(self.score_keys[part]),
                Bigints(self.tie_keys[part]),
            )


class StandingsWriter:
    """Writes standings for one projector."""

    def __init__(self, url: str) -> None:
        """The database has to be migrated."""
        self._connections = Connections(url, 1, answer_wait_s=ANSWER_WAIT_S)
        try:
            with self._connections.using() as connection:
                check_component(connection, COMPONENT, len(standings_scripts()))
        except BaseException:
            self._connections.close()
            raise

    def close(self) -> None:
        """Let go of the connection."""
        self._connections.close()

    def positions(self) -> AsOf | None:
        """Return what the standings are of; None when nothing was written yet."""
        with self._connections.using() as connection:
            return read_positions(connection)

    def write(self, changes: Sequence[Changed], moves: Sequence[Move], at: int) -> Verdict:
        """Write what changed between some positions, all of it or nothing; `at` is the ledger's time at their end."""
        with self._writing() as connection:
            stored = {partition: (epoch, sequence) for partition, epoch, sequence, _ in connection.execute(POSITIONS)}
            for move in moves:
                epoch, sequence = stored.get(move.partition, (0, 0))
                if move.epoch < epoch:
                    return Verdict.FENCED
                if move.after != sequence:
                    return Verdict.DUP if move.after < sequence else Verdict.GAP
            _apply(connection, changes)
            _move(connection, moves, at)
        return Verdict.WRITTEN

    def rewrite(
        self,
        everything: Iterable[Changed],
        moves: Sequence[Move],
        at: int,
        rest: Callable[[], Rest] | None = None,
    ) -> Verdict:
        """Write all there is in place of what was written; readers see what was there until that is done.

        An instance may come in several parts, and a player twice, of which the later counts. `after` of the moves does
        not matter, and nobody is `gone`. What changes while everything is read is the `rest`, asked for at the end with
        the positions and the time that all of it is of then.
        """
        with self._writing() as connection:
            known = read_positions(connection)
            if known is not None and any(move.epoch < known.epoch for move in moves):
                return Verdict.FENCED
            connection.execute(_LEAVE_ALL)
            connection.execute("DELETE FROM standings_positions")
            for part in _gathered(everything):
                _apply(connection, part)
            is_last = rest is None
            while rest is not None and not is_last:
                changes, moves, at, is_last = rest()
                _apply(connection, changes)
            _move(connection, moves, at)
        return Verdict.WRITTEN

    def sweep(self, rows_max: int = ROWS_MAX) -> bool:
        """Delete some of what nobody sees any more; return whether there may be more of it."""
        with self._connections.using() as connection:
            found = connection.execute("SELECT number FROM standings_left LIMIT 1").fetchone()
            if found is None:
                return False
            if connection.execute(_SWEEP, (*found, rows_max)).rowcount < rows_max:
                connection.execute("DELETE FROM standings_left WHERE number = %s", found)
            return True

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Write in one transaction, while no other projector does."""
        with self._connections.using() as connection:
            connection.isolation_level = IsolationLevel.READ_COMMITTED
            with connection.transaction():
                connection.execute(_LOCK)
                yield connection


def _gathered(everything: Iterable[Changed]) -> Iterator[list[Changed]]:
    """Return pages together, as many as one statement takes; no player twice in the same instance."""
    part: list[Changed] = []
    seen: set[tuple[str, str]] = set()
    for change in everything:
        names = {(change.key.text, player) for player in change.players}
        if part and (len(seen) + len(names) > ROWS_MAX or not seen.isdisjoint(names)):
            yield part
            part, seen = [], set()
        part.append(change)
        seen |= names
    if part:
        yield part


def _apply(connection: Connection, changes: Sequence[Changed]) -> None:
    cleared = [change.key.text for change in changes if change.cleared]
    if cleared:
        connection.execute(_LEAVE, (cleared,))
    numbers = _numbers(connection, changes)
    rows = _Rows()
    gone: tuple[list[int], list[bytes]] = ([], [])
    for change in changes:
        number = numbers.get(change.key.text)
        if number is not None:
            rows.add(number, change)
            gone[0].extend([number] * len(change.gone))
            gone[1].extend(player.encode() for player in change.gone)
    more: Counter[int] = Counter()
    if gone[0]:
        more.subtract(_counts(connection.execute(_TAKE, (Integers(gone[0]), Texts(gone[1])))))
    for part in rows.parts():
        more.update(_counts(connection.execute(_SET, part)))
    if more:
        connection.execute(_COUNT, (list(more), list(more.values())))
        connection.execute(_DROP_EMPTY, (list(more),))


def _counts(cursor: Cursor[tuple[Any, ...]]) -> dict[int, int]:
    return dict(cursor.fetchall())


def _numbers(connection: Connection, changes: Sequence[Changed]) -> dict[str, int]:
    """Return the numbers of the instances that are there, and of those that begin now."""
    keys = list({change.key.text for change in changes})
    numbers: dict[str, int] = {}
    orders: dict[str, tuple[str, str]] = {}
    for key, number, order, ties in connection.execute(_INSTANCES, (keys,)).fetchall():
        numbers[key] = number
        orders[key] = order, ties
    for change in changes:
        asked = change.rules.order.value, change.rules.ties.value
        if change.players and orders.get(change.key.text, asked) != asked:
            raise AssertionError(f"{change.key.text} is ordered otherwise: it has to be cleared first")
    new = {change.key.text: change for change in changes if change.players and change.key.text not in numbers}
    return numbers | _add_instances(connection, list(new.values()))


def _add_instances(connection: Connection, changes: Sequence[Changed]) -> dict[str, int]:
    if not changes:
        return {}
    columns = (
        [change.key.text for change in changes],
        [change.rules.order.value for change in changes],
        [change.rules.ties.value for change in changes],
    )
    return dict(connection.execute(_ADD_INSTANCES, columns).fetchall())


def _move(connection: Connection, moves: Sequence[Move], at: int) -> None:
    columns = [move.partition for move in moves], [move.epoch for move in moves], [move.upto for move in moves]
    connection.execute(_MOVE, (at, *columns))

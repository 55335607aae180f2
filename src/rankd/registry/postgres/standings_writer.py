"""Writes stored standings from the projector's engine, in batches; see standings.py.

    changes → one transaction: check positions, upsert and delete rows, advance positions

Rows are states, so writing them again changes nothing. Several projectors may write for a moment: writes are
serialized, and one that does not continue from the stored positions changes nothing.
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
from rankd.ledger.postgres.connections import Connections, PostgresConnection
from rankd.ledger.postgres.migrations import check_component
from rankd.ledger.postgres.packing import Bigints, Integers, Texts
from rankd.registry.postgres.standings import COMPONENT, POSITIONS, AsOf, read_positions, standings_scripts

ANSWER_WAIT_S = 60.0
ROWS_MAX = 20_000  # per statement
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
# A row inserted by this statement was never deleted or locked: its xmax is 0.
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


class StandingsMove(NamedTuple):
    """The advance of a partition by a write of a projector: from `after` (exclusive) to `upto` (inclusive)."""

    partition: int
    epoch: int
    after: int
    upto: int


class StandingsVerdict(StrEnum):
    """The outcome of a write."""

    WRITTEN = "written"
    DUP = "dup"  # it begins before the stored position
    GAP = "gap"  # it begins behind the stored position: `rewrite` is needed
    FENCED = "fenced"  # a projector of a higher epoch has written


class ChangedStandings(NamedTuple):
    """The changes of one instance, each player once."""

    key: InstanceKey
    rules: Rules
    players: Sequence[str] = ()
    scores: Sequence[int] = ()
    ties: Sequence[int] = ()
    gone: Sequence[str] = ()  # removed players
    cleared: bool = False  # all earlier entries were removed


class StandingsRemainder(NamedTuple):
    """The changes during a rewrite; the last part has the positions of the whole."""

    changes: Sequence[ChangedStandings]
    moves: Sequence[StandingsMove] = ()
    at: int = 0
    is_last: bool = True  # else another part follows


class _Rows:
    """Rows of several instances, as columns."""

    def __init__(self) -> None:
        self.instances: list[int] = []
        self.players: list[str] = []
        self.score_keys: list[int] = []
        self.tie_keys: list[int] = []

    def add(self, number: int, change: ChangedStandings) -> None:
        rules = change.rules
        self.instances += [number] * len(change.players)
        self.players += change.players
        self.score_keys += score_keys(rules, change.scores)
        self.tie_keys += tie_keys(rules, change.ties)

    def parts(self) -> Iterator[tuple[Integers, Texts, Bigints, Bigints]]:
        """Iterate over parts of at most ROWS_MAX rows."""
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
        """Connect; the database must be migrated."""
        self._connections = Connections(url, 1, answer_wait_s=ANSWER_WAIT_S)
        try:
            with self._connections.using() as connection:
                check_component(connection, COMPONENT, len(standings_scripts()))
        except BaseException:
            self._connections.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._connections.close()

    def positions(self) -> AsOf | None:
        """Return the positions of the standings; None before the first write."""
        with self._connections.using() as connection:
            return read_positions(connection)

    def write(self, changes: Sequence[ChangedStandings], moves: Sequence[StandingsMove], at: int) -> StandingsVerdict:
        """Write the changes between positions, atomically; `at` is the ledger's time at their end."""
        with self._writing() as connection:
            stored = {partition: (epoch, sequence) for partition, epoch, sequence, _ in connection.execute(POSITIONS)}
            for move in moves:
                epoch, sequence = stored.get(move.partition, (0, 0))
                if move.epoch < epoch:
                    return StandingsVerdict.FENCED
                if move.after != sequence:
                    return StandingsVerdict.DUP if move.after < sequence else StandingsVerdict.GAP
            _apply(connection, changes)
            _move(connection, moves, at)
        return StandingsVerdict.WRITTEN

    def rewrite(
        self,
        everything: Iterable[ChangedStandings],
        moves: Sequence[StandingsMove],
        at: int,
        rest: Callable[[], StandingsRemainder] | None = None,
    ) -> StandingsVerdict:
        """Replace all standings in one transaction; readers see the former ones until it commits.

        An instance may come in several parts, and a player twice, where the later row counts. `after` of the moves is
        ignored, and no player is `gone`. `rest` returns, at the end, the changes made while everything was read, with
        the positions and the time of the whole.
        """
        with self._writing() as connection:
            known = read_positions(connection)
            if known is not None and any(move.epoch < known.epoch for move in moves):
                return StandingsVerdict.FENCED
            connection.execute(_LEAVE_ALL)
            connection.execute("DELETE FROM standings_positions")
            for part in _batches(everything):
                _apply(connection, part)
            is_last = rest is None
            while rest is not None and not is_last:
                changes, moves, at, is_last = rest()
                _apply(connection, changes)
            _move(connection, moves, at)
        return StandingsVerdict.WRITTEN

    def sweep(self, rows_max: int = ROWS_MAX) -> bool:
        """Delete some rows of removed instances; return whether there may be more."""
        with self._connections.using() as connection:
            instance = connection.execute("SELECT number FROM standings_left LIMIT 1").fetchone()
            if instance is None:
                return False
            if connection.execute(_SWEEP, (*instance, rows_max)).rowcount < rows_max:
                connection.execute("DELETE FROM standings_left WHERE number = %s", instance)
            return True

    @contextmanager
    def _writing(self) -> Iterator[PostgresConnection]:
        """Write in one transaction, which holds the lock of all projectors."""
        with self._connections.using() as connection:
            connection.isolation_level = IsolationLevel.READ_COMMITTED
            with connection.transaction():
                connection.execute(_LOCK)
                yield connection


def _batches(everything: Iterable[ChangedStandings]) -> Iterator[list[ChangedStandings]]:
    """Batch pages up to ROWS_MAX rows, with no player twice in the same instance."""
    part: list[ChangedStandings] = []
    batched: set[tuple[str, str]] = set()
    for change in everything:
        names = {(change.key.text, player) for player in change.players}
        if part and (len(batched) + len(names) > ROWS_MAX or not batched.isdisjoint(names)):
            yield part
            part, batched = [], set()
        part.append(change)
        batched |= names
    if part:
        yield part


def _apply(connection: PostgresConnection, changes: Sequence[ChangedStandings]) -> None:
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


def _numbers(connection: PostgresConnection, changes: Sequence[ChangedStandings]) -> dict[str, int]:
    """Return the numbers of the changed instances, adding new ones."""
    keys = list({change.key.text for change in changes})
    numbers: dict[str, int] = {}
    orders: dict[str, tuple[str, str]] = {}
    for key, number, order, ties in connection.execute(_INSTANCES, (keys,)).fetchall():
        numbers[key] = number
        orders[key] = order, ties
    for change in changes:
        order_now = change.rules.order.value, change.rules.ties.value
        if change.players and orders.get(change.key.text, order_now) != order_now:
            raise AssertionError(f"{change.key.text} has another order: it has to be cleared first")
    new = {change.key.text: change for change in changes if change.players and change.key.text not in numbers}
    return numbers | _add_instances(connection, list(new.values()))


def _add_instances(connection: PostgresConnection, changes: Sequence[ChangedStandings]) -> dict[str, int]:
    if not changes:
        return {}
    columns = (
        [change.key.text for change in changes],
        [change.rules.order.value for change in changes],
        [change.rules.ties.value for change in changes],
    )
    return dict(connection.execute(_ADD_INSTANCES, columns).fetchall())


def _move(connection: PostgresConnection, moves: Sequence[StandingsMove], at: int) -> None:
    columns = [move.partition for move in moves], [move.epoch for move in moves], [move.upto for move in moves]
    connection.execute(_MOVE, (at, *columns))

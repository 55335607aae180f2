"""Standings in PostgreSQL: what is kept in each board's first window, for reads while the rank store is away.

    projector → StandingsWriter.write → standings, positions → Standings.top, score, rank → marked with what it is of

Promises:
- The positions change in the same transaction as the standings: an answer is exact, as of the positions it names.
- A player's own score and the top are index lookups. A rank is counted, within a time limit.
- Where nothing was written yet every read is LedgerUnavailable: an empty board would be a wrong answer.

Not promised: that the standings are new. They are what the projector wrote last, and answers say how old that is.

May be imported by: what reads while the rank store is away, the projector. See standings_writer.py for writing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
from psycopg import IsolationLevel

from rankd.domain.instance import InstanceKey
from rankd.domain.order import TIE_FIELD_MAX, Kept, Order, Ranking, Ties
from rankd.errors import LedgerUnavailable
from rankd.ledger.postgres.connections import Connection, Connections
from rankd.ledger.postgres.migrations import check_component, migrate_component, scripts_of

COMPONENT = "standings"
ANSWER_WAIT_S = 5.0
RANK_WAIT_MS = 500

POSITIONS = "SELECT partition, epoch, sequence, at FROM standings_positions ORDER BY partition"
_INSTANCE = "SELECT number, ordering, ties, total FROM standings_instances WHERE instance = %s"
_SCORE = "SELECT score_key, tie_key FROM standings WHERE instance = %s AND player = %s"
_TOP = """
SELECT player, score_key, tie_key
FROM standings
WHERE instance = %s
ORDER BY instance, score_key, tie_key, player
LIMIT %s
"""
_BETTER = "SELECT count(*) FROM standings WHERE instance = %s AND score_key < %s"
_BETTER_SCORES = "SELECT count(DISTINCT score_key) FROM standings WHERE instance = %s AND score_key < %s"
_BEFORE_WITH_THE_SAME_SCORE = """
SELECT count(*)
FROM standings
WHERE instance = %s AND score_key = %s AND (tie_key, player) < (%s, %s)
"""


class AsOf(NamedTuple):
    """What standings are of: the last event counted of each partition, and the ledger's time then."""

    epoch: int  # the highest writer's
    sequences: dict[int, int]
    at: int


class Line(NamedTuple):
    """One line of the top."""

    rank: int
    player: str
    score: int
    tie: int


class Top(NamedTuple):
    """The first in standing order, and how many stand in the whole instance."""

    lines: list[Line]
    total: int
    as_of: AsOf


class Own(NamedTuple):
    """What is kept of a player; None for somebody who is not there."""

    kept: Kept | None
    as_of: AsOf


class Rank(NamedTuple):
    """Where a player stands: `better` players have a strictly better score, `total` are in the instance."""

    rank: int
    player: str
    score: int
    tie: int
    better: int
    total: int


class Ranked(NamedTuple):
    """A player's place; None for somebody who is not there."""

    standing: Rank | None
    as_of: AsOf


class _Instance(NamedTuple):
    number: int
    order: Order
    ties: Ties
    total: int

    def kept(self, score_key: int, tie_key: int) -> Kept:
        """Return what keys stand for."""
        score = ~score_key if self.order is Order.DESC else score_key
        return Kept(score, tie_key if self.ties in (Ties.EARLIEST, Ties.PLAYER) else TIE_FIELD_MAX - tie_key)


class Standings:
    """Reads standings; may be called from any thread."""

    def __init__(self, url: str) -> None:
        """Nothing is connected before somebody asks."""
        self._connections = Connections(url, answer_wait_s=ANSWER_WAIT_S)

    def close(self) -> None:
        """Let go of the connections."""
        self._connections.close()

    def check(self) -> None:
        """Refuse a database that was not migrated, or by a newer rankd."""
        with self._connections.using() as connection:
            check_component(connection, COMPONENT, len(standings_scripts()))

    def positions(self) -> AsOf | None:
        """Return what the standings are of; None when nothing was written yet."""
        with self._connections.using() as connection:
            return read_positions(connection)

    def score(self, key: InstanceKey, player: str) -> Own:
        """Return what is kept of a player."""
        with self._reading() as (connection, as_of):
            instance = _instance(connection, key)
            return Own(None if instance is None else _kept(connection, instance, player), as_of)

    def top(self, key: InstanceKey, limit: int, ranking: Ranking = Ranking.ORDINAL) -> Top:
        """Return the first `limit` in standing order."""
        with self._reading() as (connection, as_of):
            instance = _instance(connection, key)
            if instance is None:
                return Top([], 0, as_of)
            rows = connection.execute(_TOP, (instance.number, limit)).fetchall()
        kept = [instance.kept(score_key, tie_key) for _, score_key, tie_key in rows]
        lines = [
            Line(rank, player, *one)
            for rank, (player, _, _), one in zip(_ranks([one.score for one in kept], ranking), rows, kept, strict=True)
        ]
        return Top(lines, instance.total, as_of)

    def rank(
        self, key: InstanceKey, player: str, ranking: Ranking = Ranking.ORDINAL, timeout_ms: int = RANK_WAIT_MS
    ) -> Ranked:
        """Return where a player stands; LedgerUnavailable when counting takes longer than the limit."""
        with self._reading() as (connection, as_of):
            instance = _instance(connection, key)
            kept = None if instance is None else connection.execute(_SCORE, (instance.number, player)).fetchone()
            if instance is None or kept is None:
                return Ranked(None, as_of)
            connection.execute("SELECT set_config('statement_timeout', %s, true)", (str(timeout_ms),))
            try:
                rank, better = _count(connection, instance.number, (*kept, player), ranking)
            except psycopg.errors.QueryCanceled as problem:
                raise LedgerUnavailable(
                    f"a place far from the top is not counted within {timeout_ms} ms while the rank store is away;"
                    " ask again later, or for the score alone"
                ) from problem
            return Ranked(Rank(rank, player, *instance.kept(*kept), better, instance.total), as_of)

    @contextmanager
    def _reading(self) -> Iterator[tuple[Connection, AsOf]]:
        """Read one moment of the standings."""
        with self._connections.using() as connection:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            with connection.transaction():
                as_of = read_positions(connection)
                if as_of is None:
                    raise LedgerUnavailable("PostgreSQL holds no standings yet; ask again when a projector has run")
                yield connection, as_of


def migrate_standings(url: str) -> int:
    """Bring the standings of a database up to date; return the version they had."""
    return migrate_component(url, COMPONENT, standings_scripts())


def standings_scripts() -> list[str]:
    """Return the scripts that make the tables."""
    return scripts_of("rankd.registry", "standings_schema")


def read_positions(connection: Connection) -> AsOf | None:
    """Return what the standings are of; None when nothing was written yet."""
    rows = connection.execute(POSITIONS).fetchall()
    if not rows:
        return None
    epoch = max(epoch for _, epoch, _, _ in rows)
    return AsOf(epoch, {partition: sequence for partition, _, sequence, _ in rows}, max(at for *_, at in rows))


def _instance(connection: Connection, key: InstanceKey) -> _Instance | None:
    row = connection.execute(_INSTANCE, (key.text,)).fetchone()
    return None if row is None else _Instance(row[0], Order(row[1]), Ties(row[2]), row[3])


def _kept(connection: Connection, instance: _Instance, player: str) -> Kept | None:
    row = connection.execute(_SCORE, (instance.number, player)).fetchone()
    return None if row is None else instance.kept(*row)


def _count(connection: Connection, number: int, key: tuple[int, int, str], ranking: Ranking) -> tuple[int, int]:
    """Return the rank, and how many have a better score."""
    score_key, tie_key, player = key
    better = _number(connection.execute(_BETTER, (number, score_key)))
    match ranking:
        case Ranking.ORDINAL:
            level = (number, score_key, tie_key, player)
            return 1 + better + _number(connection.execute(_BEFORE_WITH_THE_SAME_SCORE, level)), better
        case Ranking.COMPETITION:
            return 1 + better, better
        case Ranking.DENSE:
            return 1 + _number(connection.execute(_BETTER_SCORES, (number, score_key))), better


def _number(cursor: psycopg.Cursor[tuple[Any, ...]]) -> int:
    number: int
    ((number,),) = cursor.fetchall()
    return number


def _ranks(scores: list[int], ranking: Ranking) -> list[int]:
    """Return the ranks of scores in standing order, from the first place on."""
    ranks: list[int] = []
    for index, score in enumerate(scores):
        if ranking is Ranking.ORDINAL or index == 0 or score != scores[index - 1]:
            ranks.append(ranks[-1] + 1 if ranks and ranking is Ranking.DENSE else index + 1)
        else:
            ranks.append(ranks[-1])
    return ranks

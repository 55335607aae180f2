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

from typing import Any, NamedTuple

import psycopg

from rankd.domain.instance import InstanceKey
from rankd.domain.order import TIE_FIELD_MAX, Kept, Order, Ranking, Ties
from rankd.errors import LedgerUnavailable
from rankd.ledger.postgres.connections import Connection, Connections
from rankd.ledger.postgres.migrations import check_component, migrate_component, scripts_of

COMPONENT = "standings"
ANSWER_WAIT_S = 5.0
RANK_WAIT_MS = 500

POSITIONS = "SELECT partition, epoch, sequence, at FROM standings_positions ORDER BY partition"
# One statement sees one moment: the positions are those of the standings beside them. Each has exactly one row.
_SCORE = """
SELECT as_of.*, instance.ordering, instance.ties, instance.total, held.score_key, held.tie_key
FROM (SELECT max(epoch), array_agg(partition), array_agg(sequence), max(at) FROM standings_positions) AS as_of
     LEFT JOIN standings_instances AS instance ON instance.instance = %(instance)s
     LEFT JOIN standings AS held ON held.instance = instance.number AND held.player = %(player)s
"""
_TOP = """
SELECT as_of.*, instance.ordering, instance.ties, instance.total, top.*
FROM (SELECT max(epoch), array_agg(partition), array_agg(sequence), max(at) FROM standings_positions) AS as_of
     LEFT JOIN standings_instances AS instance ON instance.instance = %(instance)s
     LEFT JOIN LATERAL (
       SELECT array_agg(player ORDER BY score_key, tie_key, player),
              array_agg(score_key ORDER BY score_key, tie_key, player),
              array_agg(tie_key ORDER BY score_key, tie_key, player)
       FROM (SELECT player, score_key, tie_key
             FROM standings
             WHERE standings.instance = instance.number
             ORDER BY instance, score_key, tie_key, player
             LIMIT %(limit)s) AS first
     ) AS top ON true
"""
_RANK = """
SELECT as_of.*, instance.ordering, instance.ties, instance.total, held.score_key, held.tie_key,
       (SELECT count(*) FROM standings WHERE instance = held.instance AND score_key < held.score_key),
       CASE %(ranking)s
       WHEN 'ordinal' THEN (
         SELECT count(*)
         FROM standings
         WHERE instance = held.instance AND score_key = held.score_key
           AND (tie_key, player) < (held.tie_key, held.player))
       WHEN 'dense' THEN (
         SELECT count(DISTINCT score_key)
         FROM standings
         WHERE instance = held.instance AND score_key < held.score_key)
       END
FROM (SELECT max(epoch), array_agg(partition), array_agg(sequence), max(at) FROM standings_positions) AS as_of
     LEFT JOIN standings_instances AS instance ON instance.instance = %(instance)s
     LEFT JOIN standings AS held ON held.instance = instance.number AND held.player = %(player)s
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
        with self._connections.using() as connection:
            found = _found(connection.execute(_SCORE, {"instance": key.text, "player": player}))
        score_key, tie_key = found.rest
        return Own(None if score_key is None else found.kept(score_key, tie_key), found.as_of)

    def top(self, key: InstanceKey, limit: int, ranking: Ranking = Ranking.ORDINAL) -> Top:
        """Return the first `limit` in standing order."""
        with self._connections.using() as connection:
            found = _found(connection.execute(_TOP, {"instance": key.text, "limit": limit}))
        players, score_keys, tie_keys = (column or () for column in found.rest)
        kept = [found.kept(*keys) for keys in zip(score_keys, tie_keys, strict=True)]
        ranks = _ranks([one.score for one in kept], ranking)
        lines = [Line(rank, player, *one) for rank, player, one in zip(ranks, players, kept, strict=True)]
        return Top(lines, found.total, found.as_of)

    def rank(
        self, key: InstanceKey, player: str, ranking: Ranking = Ranking.ORDINAL, timeout_ms: int = RANK_WAIT_MS
    ) -> Ranked:
        """Return where a player stands; LedgerUnavailable when counting takes longer than the limit."""
        asked = {"instance": key.text, "player": player, "ranking": ranking.value}
        with self._connections.using() as connection:
            try:
                with connection.transaction():
                    connection.execute("SELECT set_config('statement_timeout', %s, true)", (str(timeout_ms),))
                    found = _found(connection.execute(_RANK, asked))
            except psycopg.errors.QueryCanceled as problem:
                raise LedgerUnavailable(
                    f"a place far from the top is not counted within {timeout_ms} ms while the rank store is away;"
                    " ask again later, or for the score alone"
                ) from problem
        score_key, tie_key, better, more = found.rest
        if score_key is None:
            return Ranked(None, found.as_of)
        before = more if ranking is Ranking.DENSE else better + (more or 0)
        return Ranked(Rank(1 + before, player, *found.kept(score_key, tie_key), better, found.total), found.as_of)


class _Found(NamedTuple):
    """What a statement's one row says."""

    as_of: AsOf
    order: Order
    ties: Ties
    total: int
    rest: tuple[Any, ...]

    def kept(self, score_key: int, tie_key: int) -> Kept:
        """Return what keys stand for."""
        score = ~score_key if self.order is Order.DESC else score_key
        return Kept(score, tie_key if self.ties in (Ties.EARLIEST, Ties.PLAYER) else TIE_FIELD_MAX - tie_key)


def _found(cursor: psycopg.Cursor[tuple[Any, ...]]) -> _Found:
    ((epoch, partitions, sequences, at, order, ties, total, *rest),) = cursor.fetchall()
    if epoch is None:
        raise LedgerUnavailable("PostgreSQL holds no standings yet; ask again when a projector has run")
    as_of = AsOf(epoch, dict(zip(partitions, sequences, strict=True)), at)
    if order is None:  # nobody stands there
        return _Found(as_of, Order.DESC, Ties.PLAYER, 0, tuple(rest))
    return _Found(as_of, Order(order), Ties(ties), total, tuple(rest))


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


def _ranks(scores: list[int], ranking: Ranking) -> list[int]:
    """Return the ranks of scores in standing order, from the first place on."""
    ranks: list[int] = []
    for index, score in enumerate(scores):
        if ranking is Ranking.ORDINAL or index == 0 or score != scores[index - 1]:
            ranks.append(ranks[-1] + 1 if ranks and ranking is Ranking.DENSE else index + 1)
        else:
            ranks.append(ranks[-1])
    return ranks

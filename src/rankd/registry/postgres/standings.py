"""Stored standings: each board's first window in PostgreSQL, for reads while Redis is away.

    projector → StandingsWriter.write → standings, positions → StoredStandings.top, score, rank

Promises:
- The positions change in the same transaction as the standings: an answer is exact as of its positions.
- A player's own score and the top are index lookups. A rank is counted, within a time limit.
- Before the first write every read is LedgerUnavailable: an empty board would be a wrong answer.

Not promised: fresh standings. They are what the projector wrote last, and answers have their positions.

May be imported by: the fallback reads, the projector. standings_writer.py writes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg

from rankd.domain.instance import InstanceKey
from rankd.domain.order import TIE_FIELD_MAX, Kept, Order, Ranking, Ties
from rankd.errors import LedgerUnavailable
from rankd.ledger.postgres.connections import Connections, PostgresConnection
from rankd.ledger.postgres.migrations import check_component, migrate_component, scripts_of

COMPONENT = "standings"
ANSWER_WAIT_S = 5.0
RANK_WAIT_MS = 500

POSITIONS = "SELECT partition, epoch, sequence, at FROM standings_positions ORDER BY partition"
# One statement reads one snapshot, so positions and standings match. Each returns exactly one row.
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
    """The positions of stored standings, and the ledger's time there."""

    epoch: int  # the highest of the writers
    sequences: dict[int, int]
    at: int


class StandingsLine(NamedTuple):
    """One line of the top."""

    rank: int
    player: str
    score: int
    tie: int


class StoredTop(NamedTuple):
    """The first players in standing order, and the number of players in the instance."""

    lines: list[StandingsLine]
    total: int
    as_of: AsOf


class StoredScore(NamedTuple):
    """A player's kept score; None for an absent player."""

    kept: Kept | None
    as_of: AsOf


class Rank(NamedTuple):
    """A player's standing: `better` players have a strictly better score, `total` are in the instance."""

    rank: int
    player: str
    score: int
    tie: int
    better: int
    total: int


class StoredRank(NamedTuple):
    """A player's standing; None for an absent player."""

    standing: Rank | None
    as_of: AsOf


class StoredStandings:
    """Reads stored standings; from any thread."""

    def __init__(self, url: str) -> None:
        """Connect on first use."""
        self._connections = Connections(url, answer_wait_s=ANSWER_WAIT_S)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def check(self) -> None:
        """Refuse a database that was not migrated, or was by a newer rankd."""
        with self._connections.using() as connection:
            check_component(connection, COMPONENT, len(standings_scripts()))

    def positions(self) -> AsOf | None:
        """Return the positions of the standings; None before the first write."""
        with self._connections.using() as connection:
            return read_positions(connection)

    def score(self, key: InstanceKey, player: str) -> StoredScore:
        """Return a player's kept score."""
        with self._connections.using() as connection:
            row = _read(connection.execute(_SCORE, {"instance": key.text, "player": player}))
        score_key, tie_key = row.rest
        return StoredScore(None if score_key is None else row.kept(score_key, tie_key), row.as_of)

    def top(self, key: InstanceKey, limit: int, ranking: Ranking = Ranking.ORDINAL) -> StoredTop:
        """Return the first `limit` players in standing order."""
        with self._connections.using() as connection:
            row = _read(connection.execute(_TOP, {"instance": key.text, "limit": limit}))
        players, score_keys, tie_keys = (column or () for column in row.rest)
        scores = [row.kept(*keys) for keys in zip(score_keys, tie_keys, strict=True)]
        ranks = _ranks([kept.score for kept in scores], ranking)
        lines = [StandingsLine(rank, player, *kept) for rank, player, kept in zip(ranks, players, scores, strict=True)]
        return StoredTop(lines, row.total, row.as_of)

    def rank(
        self, key: InstanceKey, player: str, ranking: Ranking = Ranking.ORDINAL, timeout_ms: int = RANK_WAIT_MS
    ) -> StoredRank:
        """Return a player's standing; LedgerUnavailable when counting takes longer than the limit."""
        values = {"instance": key.text, "player": player, "ranking": ranking.value}
        with self._connections.using() as connection:
            try:
                with connection.transaction():
                    connection.execute("SELECT set_config('statement_timeout', %s, true)", (str(timeout_ms),))
                    row = _read(connection.execute(_RANK, values))
            except psycopg.errors.QueryCanceled as problem:
                raise LedgerUnavailable(
                    f"a place far from the top is not counted within {timeout_ms} ms while the rank store is away;"
                    " ask again later, or for the score alone"
                ) from problem
        score_key, tie_key, better, more = row.rest
        if score_key is None:
            return StoredRank(None, row.as_of)
        before = more if ranking is Ranking.DENSE else better + (more or 0)
        return StoredRank(Rank(1 + before, player, *row.kept(score_key, tie_key), better, row.total), row.as_of)


class _InstanceRow(NamedTuple):
    """The one row of a statement."""

    as_of: AsOf
    order: Order
    ties: Ties
    total: int
    rest: tuple[Any, ...]

    def kept(self, score_key: int, tie_key: int) -> Kept:
        """Decode the keys."""
        score = ~score_key if self.order is Order.DESC else score_key
        return Kept(score, tie_key if self.ties in (Ties.EARLIEST, Ties.PLAYER) else TIE_FIELD_MAX - tie_key)


def _read(cursor: psycopg.Cursor[tuple[Any, ...]]) -> _InstanceRow:
    ((epoch, partitions, sequences, at, order, ties, total, *rest),) = cursor.fetchall()
    if epoch is None:
        raise LedgerUnavailable("PostgreSQL holds no standings yet; ask again when a projector has run")
    as_of = AsOf(epoch, dict(zip(partitions, sequences, strict=True)), at)
    if order is None:  # the instance is empty
        return _InstanceRow(as_of, Order.DESC, Ties.PLAYER, 0, tuple(rest))
    return _InstanceRow(as_of, Order(order), Ties(ties), total, tuple(rest))


def migrate_standings(url: str) -> int:
    """Migrate the standings of a database; return their former version."""
    return migrate_component(url, COMPONENT, standings_scripts())


def standings_scripts() -> list[str]:
    """Return the migration scripts."""
    return scripts_of(__package__, "standings_schema")


def read_positions(connection: PostgresConnection) -> AsOf | None:
    """Return the positions of the standings; None before the first write."""
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

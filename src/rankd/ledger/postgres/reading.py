"""Reads committed events, partition by partition, as runs of columns."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from rankd.errors import LedgerDamaged
from rankd.ledger.event import NO_DETAIL, Context, EventKind, EventRun, decode_column, decode_detail
from rankd.ledger.port import NOT_ORDERED, Part, PastEvent

PostgresEventRow = tuple[int, int, int, int, str, int, int, int | None, str | None, int]
"""partition, sequence, context, at, player, score, tiebreak, ordinal, detail, committed"""

# The inner query sorts, so its rows come in order. `since` prunes the tables of earlier months.
SELECT_EVENTS = """
SELECT e.partition, e.sequence, e.context, e.at, e.player, e.score, e.tiebreak, e.ordinal, e.detail, e.committed
FROM unnest(%s, %s, %s, %s) AS range (partition, after, upto, since)
CROSS JOIN LATERAL (
  SELECT * FROM events
  WHERE events.partition = range.partition AND events.sequence > range.after AND events.sequence <= range.upto
    AND events.committed >= range.since
  ORDER BY events.sequence
) AS e
"""

SELECT_COMMITTED = """
SELECT e.partition, e.sequence, e.committed
FROM unnest(%s, %s) AS asked (partition, sequence)
CROSS JOIN LATERAL (
  SELECT * FROM events WHERE events.partition = asked.partition AND events.sequence = asked.sequence OFFSET 0
) AS e
"""

SELECT_HISTORY = """
SELECT
  e.partition, e.sequence, e.context, e.at, e.player, e.score, e.tiebreak, e.ordinal, e.detail, e.committed,
  metadata.json,
  (SELECT CASE WHEN upto >= e.sequence THEN address END FROM origins
   WHERE origins.partition = e.partition AND origins.first <= e.sequence ORDER BY origins.first DESC LIMIT 1)
FROM events AS e
LEFT JOIN metadata ON metadata.partition = e.partition AND metadata.sequence = e.sequence
WHERE e.player = %(player)s AND e.sequence < %(before)s
  AND (%(board)s::text IS NULL OR e.context IN (SELECT number FROM contexts WHERE board = %(board)s))
ORDER BY e.sequence DESC LIMIT %(limit)s
"""

# OFFSET 0 keeps the planner from joining: each key is one index lookup.
SELECT_REQUESTS = """
SELECT asked.sender, asked.key, r.fingerprint, r.at, r.events, r.partitions, r.sequences
FROM unnest(%s, %s) AS asked (sender, key)
CROSS JOIN LATERAL (
  SELECT * FROM requests WHERE requests.sender = asked.sender AND requests.key = asked.key OFFSET 0
) AS r
"""

_OF_PLAYERS = frozenset({EventKind.SCORE, EventKind.REMOVE})


def parts_of(
    rows: Sequence[PostgresEventRow], after: Sequence[int] | Mapping[int, int], context: Callable[[int], Context]
) -> Iterator[Part]:
    """Group ordered rows into parts; LedgerDamaged where a row is missing."""
    for partition, of_partition in groupby(rows, itemgetter(0)):
        expected = after[partition] + 1
        for number, group in groupby(of_partition, itemgetter(2)):
            run = list(group)
            if run[0][1] != expected or run[-1][1] != expected + len(run) - 1:
                raise LedgerDamaged(
                    f"events of partition {partition} from {expected} on are missing; restore a backup of the database"
                )
            expected += len(run)
            if context(number).kind in _OF_PLAYERS:
                yield _part(partition, number, run)
            else:
                yield from (_part(partition, number, [row]) for row in run)


def _part(partition: int, context: int, run: Sequence[PostgresEventRow]) -> Part:
    _, _, _, at, players, score, tiebreak, ordinals, details, _ = zip(*run, strict=True)
    event_run = EventRun(
        context,
        array("q", at),
        array("q", bytes(8 * len(run))),
        array("q", score),
        array("q", tiebreak),
        players,
        decode_column(details) if any(details) else None,
        run[0][1],
        partition,
    )
    if not any(ordinals):
        return Part(partition, event_run, None)
    return Part(partition, event_run, array("q", [NOT_ORDERED if ordinal is None else ordinal for ordinal in ordinals]))


def past_event(row: Sequence[Any], context: Context) -> PastEvent:
    """Return a row of a player's history."""
    _, sequence, _, at, _, score, tiebreak, _, detail, _, metadata, origin = row
    is_score = context.kind is EventKind.SCORE
    return PastEvent(
        sequence=sequence,
        kind=context.kind,
        board=context.board,
        at=at,
        score=score if is_score else None,
        tiebreak=tiebreak if is_score else None,
        attributes=(decode_detail(detail) if detail else NO_DETAIL).attributes,
        metadata=None if metadata is None else msgspec.json.decode(metadata, type=dict[str, object]),
        sender=context.sender,
        origin=origin,
    )

"""Finds events of the shared ledger by who sent them, and what they are about, from the newest backwards.

    a player → the index of players       a kind of control events → their table       anything else → steps of events

Partitions are put into one order by the time of their commits, then by partition and sequence; so a page ends at a mark
that says where every partition goes on. A control event is in every partition, and is taken from the first.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rankd.domain.partition import partition_of
from rankd.ledger.audit import (
    CONTROLS_OF_MAX,
    LOOKED_AT_MAX,
    OF_PLAYER_MAX,
    AuditedEvent,
    AuditedPage,
    AuditMark,
    AuditQuery,
)
from rankd.ledger.event import CONTROLS, EventKind, EventRun, control_run, decode_detail
from rankd.ledger.origin import RequestOrigin
from rankd.ledger.postgres.contexts import Contexts
from rankd.ledger.postgres.packing import Bigints, Integers, Smallints
from rankd.ledger.postgres.reading import SELECT_COMMITTED

if TYPE_CHECKING:
    from rankd.ledger.port import SharedLedger

_STEP_FIRST, _STEP_GROWTH = 2_048, 16  # events of all partitions
_EVER = 2**63 - 1
_OF_PLAYER = """
SELECT sequence, context FROM events
WHERE player = %s AND sequence > %s AND sequence <= %s
ORDER BY sequence DESC LIMIT %s
"""
_OF_CONTROLS = """
SELECT sequences[1], context FROM controls
WHERE sequences[1] > %s AND sequences[1] <= %s
ORDER BY number DESC LIMIT %s
"""
_CONTEXTS = """
SELECT DISTINCT e.context
FROM unnest(%s, %s, %s) AS range (partition, after, upto)
CROSS JOIN LATERAL (
  SELECT context FROM events
  WHERE events.partition = range.partition AND events.sequence > range.after AND events.sequence <= range.upto
    AND events.committed >= %s AND events.committed <= %s
) AS e
"""
_OF_CONTEXTS = """
SELECT e.partition, e.sequence, e.committed
FROM unnest(%s, %s, %s) AS range (partition, after, upto)
CROSS JOIN LATERAL (
  SELECT * FROM events
  WHERE events.partition = range.partition AND events.sequence > range.after AND events.sequence <= range.upto
    AND events.committed >= %s AND events.committed <= %s
    AND (%s OR events.context = ANY (%s)) AND (events.player <> '' OR events.partition = 0)
  ORDER BY events.sequence DESC LIMIT %s
) AS e
ORDER BY e.committed DESC, e.partition DESC, e.sequence DESC LIMIT %s
"""
_EVENTS = """
SELECT
  e.partition, e.sequence, e.committed, e.context, e.at, e.player, e.score, e.tiebreak, e.detail,
  o.address, o.user_agent, o.request_id
FROM unnest(%s, %s) AS asked (partition, sequence)
CROSS JOIN LATERAL (
  SELECT * FROM events WHERE events.partition = asked.partition AND events.sequence = asked.sequence OFFSET 0
) AS e
LEFT JOIN LATERAL (
  SELECT * FROM origins
  WHERE origins.partition = asked.partition AND origins.first <= asked.sequence
  ORDER BY origins.first DESC LIMIT 1
) AS o ON o.upto >= asked.sequence
ORDER BY e.committed DESC, e.partition DESC, e.sequence DESC
"""
_CONTROLS_OF_BOARD = """
SELECT c.context, c.at, c.detail, c.sequences[%(place)s]
FROM contexts
JOIN controls AS c ON c.context = contexts.number
WHERE contexts.board = %(board)s AND contexts.kind <> %(midnight)s
ORDER BY c.number LIMIT %(limit)s
"""


class _Places(NamedTuple):
    """Events that match, the newest first, and where to go on; None at the end."""

    events: list[tuple[int, int]]  # partition, sequence
    rest: AuditMark | None


class PostgresAudit:
    """One query of the ledger as it is now."""

    def __init__(self, ledger: SharedLedger, look_up: Callable[[str, Any], list[Any]], contexts: Contexts) -> None:
        """`look_up` runs an optional read."""
        self._ledger = ledger
        self._look_up = look_up
        self._contexts = contexts
        self._partitions = range(ledger.partitions)

    def page(self, query: AuditQuery, before: AuditMark | None) -> AuditedPage:
        """Return the newest events that are asked for."""
        upto = self._ledger.heads().sequences if query.until is None else self._ledger.sequences_at(query.until)
        if before is not None:
            upto = tuple(map(min, upto, self._behind(before)))
        after = self._ledger.sequences_at(query.since - 1) if query.since else (0,) * len(upto)
        if query.player is not None:
            partition = partition_of(query.player, len(upto))
            asked = (query.player, after[partition], upto[partition], OF_PLAYER_MAX)
            places = self._filtered(query, partition, self._look_up(_OF_PLAYER, asked))
        elif query.kind in CONTROLS:
            rows = self._look_up(_OF_CONTROLS, (after[0], upto[0], OF_PLAYER_MAX))
            places = self._filtered(query, 0, rows)
        else:
            latest = min(_EVER if before is None else before.committed, _EVER if query.until is None else query.until)
            places = self._of_steps(query, after, upto, latest)
        return AuditedPage(self._events(places.events), places.rest)

    def events_of(self, player: str, before: int, events_max: int) -> list[EventRun]:
        """Return a player's events before a sequence, the newest first, as runs of one."""
        partition = partition_of(player, len(self._partitions))
        rows = self._look_up(_OF_PLAYER, (player, 0, before - 1, events_max))
        return [event.event_run for event in self._events([(partition, sequence) for sequence, _ in rows])]

    def controls_of(self, board: str, partition: int) -> Sequence[EventRun] | None:
        """Return a board's control events in order, without midnights; None where there are too many."""
        values = {
            "place": partition + 1,
            "board": board,
            "midnight": EventKind.MIDNIGHT.value,
            "limit": CONTROLS_OF_MAX + 1,
        }
        rows = self._look_up(_CONTROLS_OF_BOARD, values)
        if len(rows) > CONTROLS_OF_MAX:
            return None
        return [
            control_run(context, at, None if detail is None else decode_detail(detail), sequence)
            for context, at, detail, sequence in rows
        ]

    def _behind(self, mark: AuditMark) -> list[int]:
        """Return the last sequence of each partition behind a mark."""
        with_it, before_it = self._ledger.sequences_at(mark.committed), self._ledger.sequences_at(mark.committed - 1)
        return [
            mark.sequence - 1
            if partition == mark.partition
            else (with_it if partition < mark.partition else before_it)[partition]
            for partition in self._partitions
        ]

    def _filtered(self, query: AuditQuery, partition: int, rows: Sequence[tuple[int, int]]) -> _Places:
        self._contexts.load({number for _, number in rows})
        matched: list[tuple[int, int]] = []
        for sequence, number in rows:
            if query.matches(self._contexts.context(number)):
                matched.append((partition, sequence))
            if len(matched) == query.limit:
                return _Places(matched, self._mark_of(partition, sequence))
        return _Places(matched, self._mark_of(partition, rows[-1][0]) if len(rows) == OF_PLAYER_MAX else None)

    def _mark_of(self, partition: int, sequence: int) -> AuditMark:
        return AuditMark(self._committed([(partition, sequence)])[0], partition, sequence)

    def _committed(self, events: Sequence[tuple[int, int]]) -> list[int]:
        columns = Smallints([partition for partition, _ in events]), Bigints([sequence for _, sequence in events])
        return [committed for _, _, committed in self._look_up(SELECT_COMMITTED, columns)]

    def _of_steps(self, query: AuditQuery, after: Sequence[int], upto: Sequence[int], latest: int) -> _Places:
        matched: list[tuple[int, int]] = []
        step, looked_at = _STEP_FIRST, 0
        while any(low < high for low, high in zip(after, upto, strict=True)):
            since, begin = self._step(after, upto, step)
            if looked_at >= LOOKED_AT_MAX:
                return _Places(matched, AuditMark(latest + 1, -1, 0))
            rows = self._of_step(query, begin, upto, (since, latest), query.limit - len(matched))
            matched += [(partition, sequence) for partition, sequence, _ in rows]
            if len(matched) == query.limit:
                partition, sequence, committed = rows[-1]
                return _Places(matched, AuditMark(committed, partition, sequence))
            looked_at += sum(upto) - sum(begin)
            upto, latest = begin, since - 1
            step = min(step * _STEP_GROWTH, LOOKED_AT_MAX)
        return _Places(matched, None)

    def _step(self, after: Sequence[int], upto: Sequence[int], step: int) -> tuple[int, Sequence[int]]:
        """Return the commit time from which on about `step` events are, and the sequences before it."""
        share = max(1, step // len(upto))
        firsts = [
            (partition, high - share + 1)
            for partition, (low, high) in enumerate(zip(after, upto, strict=True))
            if high - share > low
        ]
        if not firsts:
            return 0, after
        since = max(self._committed(firsts))
        return since, [
            max(low, min(high, begin))
            for low, high, begin in zip(after, upto, self._ledger.sequences_at(since - 1), strict=True)
        ]

    def _of_step(
        self, query: AuditQuery, begin: Sequence[int], upto: Sequence[int], times: tuple[int, int], limit: int
    ) -> list[Any]:
        ranges = (Smallints([*self._partitions]), Bigints(begin), Bigints(upto), *times)
        wanted: list[int] = []
        if query.is_about_contexts:
            numbers = [number for (number,) in self._look_up(_CONTEXTS, ranges)]
            self._contexts.load(numbers)
            wanted = [number for number in numbers if query.matches(self._contexts.context(number))]
            if not wanted:
                return []
        return self._look_up(_OF_CONTEXTS, (*ranges, not query.is_about_contexts, Integers(wanted), limit, limit))

    def _events(self, events: Iterable[tuple[int, int]]) -> list[AuditedEvent]:
        asked = list(events)
        if not asked:
            return []
        columns = Smallints([partition for partition, _ in asked]), Bigints([sequence for _, sequence in asked])
        rows = self._look_up(_EVENTS, columns)
        self._contexts.load({row[3] for row in rows})
        return [self._event(row) for row in rows]

    def _event(self, row: Sequence[Any]) -> AuditedEvent:
        partition, sequence, committed, context, at, player, score, tiebreak, detail, address, *more = row
        event_run = EventRun(
            context,
            array("q", [at]),
            array("q", [0]),
            array("q", [score]),
            array("q", [tiebreak]),
            [player],
            None if detail is None else [decode_detail(detail)],
            sequence,
            partition,
        )
        origin = None if address is None else RequestOrigin(address, *more)
        return AuditedEvent(event_run, self._contexts.context(context), committed, origin)

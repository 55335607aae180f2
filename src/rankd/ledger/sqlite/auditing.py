"""Finds events of the embedded ledger by who sent them, and what they are about, from the newest backwards.

    a player → the index of players       a kind of control events → their index       anything else → steps of events

A step asks which contexts its events have, and reads the events of those that match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rankd.errors import LedgerDamaged
from rankd.ledger.audit import (
    CONTROLS_OF_MAX,
    LOOKED_AT_MAX,
    OF_PLAYER_MAX,
    AuditedEvent,
    AuditedPage,
    AuditMark,
    AuditQuery,
)
from rankd.ledger.event import CONTROLS, EventKind, EventRun
from rankd.ledger.sqlite.database import ReadOnlyDatabase
from rankd.ledger.sqlite.history import SEQUENCE_END

if TYPE_CHECKING:
    from rankd.ledger.sqlite.reading import SqliteReads

_STEP_FIRST, _STEP_MAX, _STEP_GROWTH = 1_024, 65_536, 8  # events
_CONTEXTS = "SELECT DISTINCT context FROM events WHERE sequence > ? AND sequence <= ?"
_OF_CONTEXTS = """
SELECT sequence FROM events
WHERE sequence > ? AND sequence <= ? AND context IN (SELECT value FROM json_each(?))
ORDER BY sequence DESC LIMIT ?
"""
_Matched = tuple[list[int], int | None]  # sequences, the newest first; what is up to here was not looked at


class SqliteAudit:
    """One query of the ledger as it is now."""

    def __init__(self, reads: SqliteReads, database: ReadOnlyDatabase) -> None:
        """Nothing is read yet."""
        self._reads = reads
        self._database = database
        self._index = reads.player_index

    def page(self, query: AuditQuery, before: AuditMark | None) -> AuditedPage:
        """Return the newest events that are asked for."""
        reads = self._reads
        (upto,) = reads.heads().sequences if query.until is None else reads.sequences_at(query.until)
        if before is not None:
            upto = min(upto, before.sequence - 1)
        (after,) = (0,) if not query.since else reads.sequences_at(query.since - 1)
        if query.player is not None:
            sequences, rest = self._of_player(query, query.player, after, upto)
        elif query.kind in CONTROLS:
            sequences, rest = self._of_controls(query, after, upto)
        else:
            sequences, rest = self._of_steps(query, after, upto, query.limit)
        return AuditedPage([*self._events(sequences)], None if rest is None else AuditMark(0, 0, rest + 1))

    def controls_of(self, board: str) -> Sequence[EventRun] | None:
        """Return a board's control events without midnights, in order; None where that takes too long."""
        if self._index.controls.first_chunk:
            return None
        sequences: list[int] = []
        for sequence, number in self._index.controls.places(0, SEQUENCE_END - 1, self._index.chunks):
            context = self._reads.context(number)
            if context.board == board and context.kind is not EventKind.MIDNIGHT:
                sequences.append(sequence)
            if len(sequences) > CONTROLS_OF_MAX:
                return None
        return [self._reads.event(0, sequence) for sequence in reversed(sequences)]

    def _of_player(self, query: AuditQuery, player: str, after: int, upto: int) -> _Matched:
        return self._filtered(query, self._placed(player, after, upto))

    def _placed(self, player: str, after: int, upto: int) -> Iterator[tuple[int, int]]:
        """Iterate over sequence and context of a player's events, the newest first."""
        for sequence in self._index.events_of(player, upto + 1):
            if sequence <= after:
                return
            with self._database.reading() as reader:
                context: int = reader.execute("SELECT context FROM events WHERE sequence = ?", (sequence,)).get
            yield sequence, context

    def _filtered(self, query: AuditQuery, places: Iterator[tuple[int, int]]) -> _Matched:
        matched: list[int] = []
        for looked_at, (sequence, number) in enumerate(places, start=1):
            if query.matches(self._reads.context(number)):
                matched.append(sequence)
            if len(matched) == query.limit or looked_at == OF_PLAYER_MAX:
                return matched, sequence - 1
        return matched, None

    def _of_controls(self, query: AuditQuery, after: int, upto: int) -> _Matched:
        index = self._index.controls
        indexed_from = self._index.first_of_chunk(index.first_chunk)
        matched, rest = self._filtered(query, index.places(after, upto, self._index.chunks))
        if rest is not None or indexed_from <= after + 1:
            return matched, rest
        more, rest = self._of_steps(query, after, min(upto, indexed_from - 1), query.limit - len(matched))
        return matched + more, rest

    def _of_steps(self, query: AuditQuery, after: int, upto: int, limit: int) -> _Matched:
        matched: list[int] = []
        step, lowest = _STEP_FIRST, max(after, upto - LOOKED_AT_MAX)
        while upto > lowest:
            begin = max(lowest, upto - step)
            step = min(step * _STEP_GROWTH, _STEP_MAX)
            matched += self._of_step(query, begin, upto, limit - len(matched))
            if len(matched) == limit:
                return matched, matched[-1] - 1
            upto = begin
        return matched, None if upto <= after else upto

    def _of_step(self, query: AuditQuery, begin: int, upto: int, limit: int) -> list[int]:
        if not query.is_about_contexts:
            return list(range(upto, max(begin, upto - limit), -1))
        with self._database.reading() as reader:
            numbers: list[Any] = reader.execute(_CONTEXTS, (begin, upto)).fetchall()
        wanted = [number for (number,) in numbers if query.matches(self._reads.context(number))]
        if not wanted:
            return []
        asked = (begin, upto, msgspec.json.encode(wanted).decode(), limit)
        with self._database.reading() as reader:
            rows: list[Any] = reader.execute(_OF_CONTEXTS, asked).fetchall()
        return [sequence for (sequence,) in rows]

    def _events(self, sequences: Sequence[int]) -> Iterator[AuditedEvent]:
        reads, newer, committed = self._reads, None, None
        for sequence in sequences:  # the newest first: a commit goes on until another one ends
            committed = reads.committed_at(sequence, newer) or committed
            newer = sequence
            if committed is None:
                raise LedgerDamaged(f"no commit ends at event {sequence} or after it; restore a copy")
            event_run = reads.event(0, sequence)
            yield AuditedEvent(event_run, reads.context(event_run.context), committed, reads.origin_of(sequence))

"""Moves the events of one ledger into another, in the order in which they are ranked.

    source → Merging → batches → Ledger.append, append_control → the same ranks, from the same events

Each batch is committed under its own key, so that an interrupted move resumes: a ledger that compares is asked for the
key, and the followers of a log skip what they know, for a day. A log keeps events for some time after they were
written, so they are written as of now; when they count does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b

import msgspec

from rankd.clock import Clock
from rankd.domain.definition import define_board
from rankd.domain.partition import partition_of
from rankd.errors import Refused
from rankd.ledger.event import CONTROLS, Context, EventKind, EventRun, rows
from rankd.ledger.port import ControlEvent, Draft, KeyedRequest, Ledger, SharedLedger
from rankd.projection.catalogue import Catalogue
from rankd.projection.merging import Merging

BATCH_EVENTS = 10_000
READ_EVENTS = 50_000
SENDER = "rankd migrate-from"
Progress = Callable[[int, int], None]


class LedgerMove:
    """Moves all events of a ledger that nobody appends to; used by one thread."""

    def __init__(self, source: Ledger, ledger: SharedLedger, clock: Clock, progress: Progress | None = None) -> None:
        """`ledger` is migrated, and empty or filled by an earlier move of the same source."""
        self._source = source
        self._ledger = ledger
        self._clock = clock
        self._is_log = not ledger.capabilities.appends_conditionally
        self._progress = progress or (lambda _done, _all: None)
        self._catalogue = Catalogue()
        self._contexts: dict[int, int] = {}  # number in the target by number in the source
        self._ordered: set[int] = set()  # contexts of the source whose events reach a team board
        ends = source.heads().sequences
        self._total = sum(ends)
        self._identity = blake2b(f"{ends} {source.stamp(ends)}".encode(), digest_size=8).hexdigest()
        self._seen = 0
        self._at = 0

    def run(self) -> int:
        """Move everything, and return the number of events, control events in each partition of the source."""
        self._check_target()
        batch: list[EventRun] = []
        done = 0
        for event_run in self._runs():
            context = self._source.context(event_run.context)
            if context.kind in CONTROLS:
                self._append(batch)
                batch = []
                self._append_control(context, event_run)
                done += self._source.partitions - 1
            elif self._may_join(batch, event_run):
                batch.append(event_run)
            else:
                self._append(batch)
                batch = [event_run]
            done += len(event_run)
            self._progress(done, self._total)
        self._append(batch)
        return self._total

    def _check_target(self) -> None:
        """Refuse a ledger with events that are not those of an earlier move of this source."""
        # The first process that moves this source into this ledger numbers it before everything else.
        mark = self._ledger.number_context(Context(EventKind.DEFINE, "", f"{SENDER} {self._identity}", {}))
        if any(self._ledger.heads().sequences):
            (first,) = self._ledger.controls(0, 1) or (None,)
            if first is None or self._ledger.number_context(first.context) < mark:
                raise Refused("ledger.url: the ledger holds other events already; move into an empty one")

    def _runs(self) -> Iterator[EventRun]:
        """Read the source in the order in which it is ranked; a control event once."""
        source = self._source
        merging = Merging(source.partitions, source.context, 0)
        read = [0] * source.partitions
        while parts := source.read(
            read, READ_EVENTS, [partition for partition in range(len(read)) if merging.holds_back(partition)]
        ):
            for part in parts:
                read[part.partition] = part.event_run.span.upto
            merging.add(parts)
            for step in merging.steps():
                for first in range(0, len(step.event_run), BATCH_EVENTS):
                    event_run = step.event_run.part(first, min(first + BATCH_EVENTS, len(step.event_run)))
                    yield from self._cut(event_run)

    # Batches. Events of one draft have one time in a log, and those that reach a team board are ranked by partition
    # then: such a draft has them in that order.

    def _cut(self, event_run: EventRun) -> Iterator[EventRun]:
        start, count = 0, len(event_run)
        if self._is_log and self._is_ordered(event_run.context):
            for index in range(1, count):
                if self._partition(event_run, index) < self._partition(event_run, index - 1):
                    yield event_run.part(start, index)
                    start = index
        yield event_run.part(start, count) if start else event_run

    def _may_join(self, batch: list[EventRun], event_run: EventRun) -> bool:
        if sum(map(len, batch)) + len(event_run) > BATCH_EVENTS:
            return not batch
        if not (self._is_log and self._is_ordered(event_run.context)):
            return True
        last = next((other for other in reversed(batch) if self._is_ordered(other.context)), None)
        return last is None or self._partition(last, len(last) - 1) <= self._partition(event_run, 0)

    def _is_ordered(self, context: int) -> bool:
        if self._source.context(context).kind in CONTROLS:
            return False
        self._number(context)
        return context in self._ordered

    def _partition(self, event_run: EventRun, index: int) -> int:
        return partition_of(event_run.players[index], self._ledger.partitions)

    def _append(self, batch: list[EventRun]) -> None:
        if not batch:
            return
        count = sum(map(len, batch))
        self._at = self._time(max(max(event_run.at) for event_run in batch))
        key = self._key(batch[0])
        if self._ledger.request(SENDER, key) is not None:
            return  # an interrupted move appended it
        places = [
            (event_run.partition, event_run.first + index) for event_run in batch for index in range(len(event_run))
        ]
        stored = self._source.metadata(places)
        metadata = {index: stored[place] for index, place in enumerate(places) if place in stored}
        moved = [
            msgspec.structs.replace(event_run, context=self._number(event_run.context), first=0) for event_run in batch
        ]
        ordered = frozenset(self._number(number) for number in self._ordered)
        keyed = [KeyedRequest(SENDER, key, b"", 0, count)]
        self._ledger.append(Draft(moved, self._at, self._seen, metadata, keyed, [], ordered))

    def _append_control(self, context: Context, event_run: EventRun) -> None:
        (event,) = rows(event_run)
        if context.kind is EventKind.DEFINE:
            board = define_board(context.board, event.detail.definition)
            self._catalogue.add(board, context.boards[context.board].version)
        self._at = self._time(event.at)
        key = self._key(event_run)
        if not (self._ledger.controls(self._seen, 1) or self._ledger.request(SENDER, key)):
            control = ControlEvent(context, event.detail, event.at)
            self._ledger.append_control([control], self._seen, KeyedRequest(SENDER, key, b"", 0, 1), at=self._at)
        self._seen += 1

    def _time(self, at: int) -> int:
        """Return the ledger's time of a batch whose last event counts at an instant."""
        return max(self._at + 1, self._clock.now()) if self._is_log else max(self._at, at)

    def _number(self, context: int) -> int:
        number = self._contexts.get(context)
        if number is None:
            accepted = self._source.context(context)
            number = self._contexts[context] = self._ledger.number_context(accepted)
            boards = accepted.boards.items()
            if any(self._catalogue.board(name, board.version).team is not None for name, board in boards):
                self._ordered.add(context)
        return number

    def _key(self, event_run: EventRun) -> str:
        """Return the key of a batch: the source's head, which does not change, and the first event."""
        return f"{self._identity}-{event_run.partition}-{event_run.first}"

"""Admission judges the events of a log before they are applied, the same in every follower.

    LogMerging → Admission → runs to apply, and places without effect

A log takes what its writers append without comparing anything. So its followers recognise repeated requests by their
keys, accept events again whose definitions have changed before they were in the log, and pass on what no longer fits
as dead letters. An event's key is known for REPEATS_KNOWN_MS, by the time of its partition; that of a refused one too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from rankd._columns import extent
from rankd.errors import KeyReused, NotFound, Refused
from rankd.ledger.event import Context, Detail, EventRun, EventSpan
from rankd.ledger.port import Part
from rankd.projection.log_merging import LogMerging, LogStep
from rankd.projection.log_state import LogState
from rankd.projection.merging import Step
from rankd.projection.reacceptance import Reacceptances

_REPEAT, _REUSED = 1, 2  # verdicts of RecentKeys


class RefusedEvent(NamedTuple):
    """An event of a log that its followers refuse: a dead letter."""

    event_run: EventRun  # of one, as it stands in the log
    context: Context  # under which it was accepted
    code: str  # of the error that a writer would have raised
    text: str


class _Standing:
    """How events of one context are judged between two barriers."""

    __slots__ = ("context", "is_current", "is_ordered", "span")

    def __init__(self, context: Context, *, is_current: bool, is_ordered: bool) -> None:
        self.context = context
        self.is_current = is_current
        self.is_ordered = is_ordered
        self.span = (0, 0)  # in which its clock readings are known to hold


class _Place(NamedTuple):
    """What becomes of one event."""

    number: int | None  # of the context it counts under; None: it has no effect
    detail: Detail | None = None


_NO_EFFECT = _Place(None)


class Admission:
    """Merges and judges the places of a log; one thread at a time uses it."""

    def __init__(
        self,
        context_of: Callable[[int], Context],
        reacceptances: Reacceptances,
        state: LogState,
        positions: Sequence[int],
        controls: int,
    ) -> None:
        """Continue behind the applied `positions` and the number of control events applied."""
        self.refused: Callable[[RefusedEvent], None] = lambda _event: None  # called before the place is passed
        self.repeats = 0  # since the start
        self.refusals = 0  # since the start
        self.state = state
        self.ordinal = 0  # a log has none
        self._context_of = context_of
        self._reacceptances = reacceptances
        self._applied = list(positions)
        self._standings: dict[int, _Standing] = {}
        self._merging = LogMerging(state.times, controls, self._is_ordered)

    @property
    def events(self) -> int:
        """The number of places that wait for other partitions."""
        return self._merging.events

    @property
    def time_awaited(self) -> int | None:
        """The newest time that waiting events need the other partitions to pass; None where none do."""
        return self._merging.time_awaited

    def holds_back(self, partition: int) -> bool:
        """Return whether reading on in a partition is of no use until the others have come closer."""
        return self._merging.holds_back(partition)

    def end(self, partitions: Collection[int]) -> None:
        """Note that nothing more will be read of some partitions, until this is called again."""
        self._merging.ended = partitions

    def add(self, parts: Sequence[Part]) -> None:
        """Add places behind those read before."""
        self._merging.add(parts)

    def context(self, number: int) -> Context:
        """Return the context of an event that was admitted."""
        return self._reacceptances.context(number) if number < 0 else self._context_of(number)

    def steps(self) -> Iterator[Step | EventSpan]:
        """Yield what is ready: events and barriers to apply, and spans without effect, for the positions to pass."""
        for step in self._merging.steps():
            if step.barrier is not None:
                yield from self._barrier(step.event_run, step.barrier)
                continue
            span = step.event_run.span
            if self._applied[span.partition] < span.after:  # a gap in the log
                yield EventSpan(span.partition, self._applied[span.partition], span.after)
            if step.is_void:
                yield span
            else:
                yield from self._events(step)
            self._applied[span.partition] = span.upto

    def _barrier(self, event_run: EventRun, barrier: tuple[int, ...]) -> Iterator[Step | EventSpan]:
        for partition, sequence in enumerate(barrier):
            if self._applied[partition] < sequence - 1:
                yield EventSpan(partition, self._applied[partition], sequence - 1)
        yield Step(event_run, barrier)
        self._applied = list(barrier)
        self._standings.clear()
        self._reacceptances.forget()

    def _events(self, step: LogStep) -> Iterator[Step | EventSpan]:
        event_run, log = step.event_run, step.log
        standing = self._standing(event_run.context)
        verdicts = None if log.keys is None else self.state.keys[event_run.partition].admit(log.keys, log.times)
        if verdicts is None and standing.is_current and (not step.is_moved or self._holds(standing, event_run)):
            yield Step(event_run)
            return
        places = [
            self._place(step, standing, index, verdict)
            for index, verdict in enumerate(verdicts or bytes(len(event_run)))
        ]
        start = 0
        for number, group in groupby(places, key=lambda place: place.number):
            details = [place.detail for place in group]
            part = event_run.part(start, start + len(details))
            start += len(details)
            if number is None:
                yield part.span
            elif number == event_run.context:
                yield Step(part)
            else:
                column = details if any(details) else None
                yield Step(msgspec.structs.replace(part, context=number, detail=column))

    def _place(self, step: LogStep, standing: _Standing, index: int, verdict: int) -> _Place:
        event_run = step.event_run
        if verdict == _REPEAT:
            self.repeats += 1
            return _NO_EFFECT
        at = event_run.at[index]
        detail = None if event_run.detail is None else event_run.detail[index]
        try:
            if verdict == _REUSED:
                raise KeyReused("key: it was used with another request; give each request a key of its own")
            if standing.is_current and (not step.is_moved or standing.span[0] <= at < standing.span[1]):
                return _Place(event_run.context)
            again = self._reacceptances.find(event_run.context, standing.context, at, is_moved=step.is_moved)
            return _Place(again.number, again.detail(event_run.score[index], detail))
        except (Refused, NotFound) as problem:
            self.refusals += 1
            self.refused(
                RefusedEvent(event_run.part(index, index + 1), standing.context, problem.code, problem.public_message)
            )
            return _NO_EFFECT

    def _holds(self, standing: _Standing, event_run: EventRun) -> bool:
        """Return whether the clock readings of a current context hold for events whose time has moved."""
        first, last = extent(event_run.at)
        if not standing.span[0] <= first < standing.span[1]:
            standing.span = self._reacceptances.held_span(standing.context, first)
        return standing.span[0] <= first and last < standing.span[1]

    def _is_ordered(self, number: int) -> bool:
        return self._standing(number).is_ordered

    def _standing(self, number: int) -> _Standing:
        standing = self._standings.get(number)
        if standing is None:
            context = self._context_of(number)
            reached = self._reacceptances.reached(context)
            standing = self._standings[number] = _Standing(
                context,
                is_current=self._reacceptances.is_current(context),
                is_ordered=any(board.team is not None for board in reached),
            )
        return standing

"""Merges the partitions of a log, whose events have no ordinals.

An event that reaches no team board is applied at once. Events that reach one are applied in the order of (time,
partition, sequence), each once no other partition can still have an earlier one. A control event is a barrier, as in
`merging.py`; one that was copied again has a number that its partition has passed, and takes a place without effect.

The time of a place is that of its record, or the latest before it in the partition: it never goes back. So the order
depends on the log alone, however reads were cut.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import msgspec

from rankd._columns import rising
from rankd.errors import LedgerDamaged
from rankd.ledger.event import EventRun
from rankd.ledger.port import KEY_BYTES, MARK, LogColumns, Part

WAITING_EVENTS_MAX = 50_000  # of one partition; it is not read on before the others have come closer


class LogStep(NamedTuple):
    """The next places of one partition, or a control event that all partitions have reached."""

    event_run: EventRun
    log: LogColumns  # with the times of the places, which never go back
    is_moved: bool = False  # whether some of the records' times were earlier, and `at` with them
    barrier: tuple[int, ...] | None = None  # the control event's sequence in each partition
    is_void: bool = False  # marks and repeated control events


class LogMerging:
    """Holds places that were read until their turn."""

    def __init__(self, times: list[int], controls: int, is_ordered: Callable[[int], bool]) -> None:
        """`times` are those of the last applied places, and move on; so many `controls` were applied.

        `is_ordered` returns whether events of a context reach a team board, by the definitions of the last barrier.
        """
        self._waiting: list[deque[LogStep]] = [deque() for _ in times]
        self._held = [0] * len(times)  # events that wait, by partition
        self._times = times
        self._read_times = times.copy()
        self.ended: Collection[int] = ()  # partitions of which nothing more will be read
        self._is_ordered = is_ordered
        self._controls = controls
        # The newest time that waiting events need other partitions to pass; None where none do. Any thread may read it.
        self.time_awaited: int | None = None

    @property
    def events(self) -> int:
        """The number of places that wait."""
        return sum(self._held)

    def holds_back(self, partition: int) -> bool:
        """Return whether reading on in a partition is of no use until the others have come closer."""
        waiting = self._waiting[partition]
        return self._held[partition] >= WAITING_EVENTS_MAX or (bool(waiting) and waiting[0].log.number > self._controls)

    def add(self, parts: Iterable[Part]) -> None:
        """Add places behind those read before."""
        for part in parts:
            step = self._timed(part)
            self._read_times[part.partition] = step.log.times[-1]
            self._waiting[part.partition].append(step)
            self._held[part.partition] += len(step.event_run)

    def _timed(self, part: Part) -> LogStep:
        event_run, log = part.event_run, part.log
        if log is None:
            raise AssertionError("the parts of a log have its columns")
        risen = rising(log.times, event_run.at, log.sent, self._read_times[part.partition])
        if risen is None:
            return LogStep(event_run, log)
        times, at = (array("q", column) for column in risen)
        if not log.number:  # the time of a control event is its own
            event_run = msgspec.structs.replace(event_run, at=at)
        return LogStep(event_run, log._replace(times=times), is_moved=True)

    def steps(self) -> Iterator[LogStep]:
        """Yield all steps that are ready; each must be applied before the next is asked for."""
        moved = True
        while moved:
            moved = False
            for waiting in self._waiting:
                while waiting and (step := self._unordered(waiting[0])) is not None:
                    moved = True
                    waiting.popleft()
                    yield self._taken(step)
            ordered = self._next_ordered()
            if ordered is not None:
                moved = True
                yield self._taken(ordered)
            elif all(waiting and waiting[0].log.number for waiting in self._waiting):
                moved = True
                firsts = [self._taken(waiting.popleft()) for waiting in self._waiting]
                self._controls += 1
                yield firsts[0]._replace(barrier=tuple(step.event_run.first for step in firsts))
        # What is left waits for other partitions; before, some of it may only not have been taken yet.
        newest = [waiting[-1].log.times[-1] for waiting in self._waiting if waiting and not waiting[0].log.number]
        self.time_awaited = max(newest, default=None)

    def _taken(self, step: LogStep) -> LogStep:
        partition = step.event_run.partition
        self._held[partition] -= len(step.event_run)
        self._times[partition] = step.log.times[-1]
        return step

    def _unordered(self, head: LogStep) -> LogStep | None:
        """Return a head that waits for no other partition; None for one that does."""
        number = head.log.number
        if number > self._controls + 1:
            raise LedgerDamaged(
                f"control event {self._controls + 1} is missing in partition {head.event_run.partition} of the ledger, "
                f"which has number {number} at {head.event_run.first}"
            )
        if number:
            return head._replace(is_void=True) if number <= self._controls else None
        if head.event_run.context == MARK:
            return head._replace(is_void=True)
        return None if self._is_ordered(head.event_run.context) else head

    def _next_ordered(self) -> LogStep | None:
        """Take the events of one partition that come before all that others have or may still get."""
        heads = [
            (waiting[0].log.times[0], partition)
            for partition, waiting in enumerate(self._waiting)
            if waiting and not waiting[0].log.number
        ]
        if not heads:
            return None
        first = min(heads)
        # The earliest place that each other partition has or may still get; what is at a barrier goes on behind it.
        others = [head for head in heads if head is not first]
        others += [
            (self._read_times[other], other)
            for other, waiting in enumerate(self._waiting)
            if not waiting and other not in self.ended
        ]
        limit = min(others, default=None)
        if limit is not None and limit < first:
            return None
        waiting = self._waiting[first[1]]
        head = waiting.popleft()
        if limit is None:
            return head
        bisect = bisect_right if first[1] < limit[1] else bisect_left
        ready = bisect(head.log.times, limit[0])
        if ready < len(head.event_run):
            waiting.appendleft(cut_step(head, ready, len(head.event_run)))
            head = cut_step(head, 0, ready)
        return head


def cut_step(step: LogStep, start: int, end: int) -> LogStep:
    """Return some places of a step, by index."""
    return step._replace(event_run=step.event_run.part(start, end), log=cut_columns(step.log, start, end))


def cut_columns(log: LogColumns, start: int, end: int) -> LogColumns:
    """Return the columns of some events of a part, by index."""
    return LogColumns(
        log.times[start:end],
        None if log.sent is None else log.sent[start:end],
        None if log.keys is None else log.keys[KEY_BYTES * start : KEY_BYTES * end],
        log.number,
    )

"""Merging puts the partitions into the one order in which the projector applies their events.

Scores of different players are independent, so one partition may run ahead of another, with two exceptions. A control
event is in every partition: it is a barrier, applied when all partitions have reached it. Events that reach a team
board are applied in the order of their ordinals. So every projector of the same ledger computes the same ranks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rankd.ledger.event import CONTROLS, Context, EventRun
from rankd.ledger.port import NOT_ORDERED, Part


class Step(NamedTuple):
    """The next events to apply: of one partition, or a control event that all partitions have reached."""

    event_run: EventRun
    barrier: tuple[int, ...] | None = None  # the control event's sequence in each partition


class Merging:
    """Holds events that were read until their turn."""

    def __init__(self, partitions: int, context_of: Callable[[int], Context], ordinal: int) -> None:
        """`ordinal` is the last one applied."""
        self._waiting: list[deque[Part]] = [deque() for _ in range(partitions)]
        self._context_of = context_of
        self.ordinal = ordinal
        self.events = 0  # that wait

    def add(self, parts: Iterable[Part]) -> None:
        """Add events behind those read before."""
        for part in parts:
            self._waiting[part.partition].append(part)
            self.events += len(part.event_run)

    def holds_back(self, partition: int) -> bool:
        """Return whether a partition waits for the others to reach a control event."""
        waiting = self._waiting[partition]
        return bool(waiting) and self._is_control(waiting[0])

    def steps(self) -> Iterator[Step]:
        """Yield all steps that are ready."""
        moved = True
        while moved:
            moved = False
            for waiting in self._waiting:
                for event_run in self._take(waiting):
                    moved = True
                    self.events -= len(event_run)
                    yield Step(event_run)
            if all(waiting and self._is_control(waiting[0]) for waiting in self._waiting):
                moved = True
                firsts = [waiting.popleft() for waiting in self._waiting]
                self.events -= len(firsts)
                yield Step(firsts[0].event_run, tuple(part.event_run.first for part in firsts))

    def _is_control(self, part: Part) -> bool:
        return self._context_of(part.event_run.context).kind in CONTROLS

    def _take(self, waiting: deque[Part]) -> Iterator[EventRun]:
        while waiting and not self._is_control(waiting[0]):
            part = waiting[0]
            if part.ordinals is None:
                waiting.popleft()
                yield part.event_run
                continue
            ready = self._ready(part.ordinals)
            if ready == 0:
                return
            waiting.popleft()
            if ready == len(part.ordinals):
                yield part.event_run
                continue
            done, rest = part.event_run.part(0, ready), part.event_run.part(ready, len(part.event_run))
            waiting.appendleft(Part(part.partition, rest, part.ordinals[ready:]))
            yield done

    def _ready(self, ordinals: Sequence[int]) -> int:
        """Return how many events from the first on are ready."""
        for index, ordinal in enumerate(ordinals):
            if ordinal != NOT_ORDERED:
                if ordinal != self.ordinal + 1:
                    return index
                self.ordinal = ordinal
        return len(ordinals)

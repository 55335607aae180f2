"""Partitions become one order: the order in which the projector applies what it has read.

Scores of different players do not depend on each other, so partitions may go ahead of each other, with two exceptions.
A control event stands in every partition, and is applied when all of them have come to it. Events that reach a team
board are applied in the order of their ordinals. So every projector that reads the same ledger ranks the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rankd.ledger.event import CONTROLS, Context, Stretch
from rankd.ledger.port import NOT_ORDERED, Part


class Step(NamedTuple):
    """What is applied next: events of one partition, or a control event, which all partitions have come to."""

    stretch: Stretch
    barrier: tuple[int, ...] | None = None  # where the control event stands in each partition


class Merging:
    """Holds what was read until its turn has come."""

    def __init__(self, partitions: int, context_of: Callable[[int], Context], ordinal: int) -> None:
        """`ordinal` is that of the last event applied that has one."""
        self._waiting: list[deque[Part]] = [deque() for _ in range(partitions)]
        self._context_of = context_of
        self.ordinal = ordinal
        self.events = 0  # waiting

    def add(self, parts: Iterable[Part]) -> None:
        """Take what was read, behind what was read before."""
        for part in parts:
            self._waiting[part.partition].append(part)
            self.events += len(part.stretch)

    def is_at_barrier(self, partition: int) -> bool:
        """Tell whether a partition waits for the others to come to a control event."""
        waiting = self._waiting[partition]
        return bool(waiting) and self._is_control(waiting[0])

    def steps(self) -> Iterator[Step]:
        """Go through all that can be applied by now."""
        moved = True
        while moved:
            moved = False
            for waiting in self._waiting:
                for stretch in self._take(waiting):
                    moved = True
                    self.events -= len(stretch)
                    yield Step(stretch)
            if all(waiting and self._is_control(waiting[0]) for waiting in self._waiting):
                moved = True
                firsts = [waiting.popleft() for waiting in self._waiting]
                self.events -= len(firsts)
                yield Step(firsts[0].stretch, tuple(part.stretch.first for part in firsts))

    def _is_control(self, part: Part) -> bool:
        return self._context_of(part.stretch.context).kind in CONTROLS

    def _take(self, waiting: deque[Part]) -> Iterator[Stretch]:
        while waiting and not self._is_control(waiting[0]):
            part = waiting[0]
            if part.ordinals is None:
                waiting.popleft()
                yield part.stretch
                continue
            ready = self._ready(part.ordinals)
            if ready == 0:
                return
            waiting.popleft()
            if ready == len(part.ordinals):
                yield part.stretch
                continue
            done, rest = part.stretch.part(0, ready), part.stretch.part(ready, len(part.stretch))
            waiting.appendleft(Part(part.partition, rest, part.ordinals[ready:]))
            yield done

    def _ready(self, ordinals: Sequence[int]) -> int:
        """Return how many of the first events may be applied."""
        for index, ordinal in enumerate(ordinals):
            if ordinal != NOT_ORDERED:
                if ordinal != self.ordinal + 1:
                    return index
                self.ordinal = ordinal
        return len(ordinals)

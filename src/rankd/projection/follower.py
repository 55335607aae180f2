"""The ledger becomes ranks in this process: read, put into one order, applied to the engine.

    Ledger.read → Merging → Applier → EngineStore

Whoever reads the same ledger comes to the same ranks, whatever was read in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from rankd.domain.board import Board
from rankd.ledger.event import EventSpan, Stretch
from rankd.ledger.port import Ledger, Part
from rankd.projection.applier import Applier
from rankd.projection.catalogue import Catalogue
from rankd.projection.merging import Merging, Step
from rankd.projection.port import RankStore
from rankd.projection.rows import skip
from rankd.projection.state import BoardState, State

Store = TypeVar("Store", bound=RankStore)


class Follower(Generic[Store]):
    """Applies a ledger to an engine; used by one thread at a time."""

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        state: State,
        catalogue: Catalogue,
        *,
        ordinal: int = 0,
        controls: int = 0,
    ) -> None:
        """Continue where the store is; `ordinal` is its last one, `controls` the number of control events it has."""
        self.store = store
        self.applier = Applier(store, state, catalogue, ledger.context)
        self.apply: Callable[[Stretch], None] = self.applier.apply  # or what answers questions on the way
        self.controls = controls
        self.events = 0  # applied, since the start
        self._ledger = ledger
        self._merging = Merging(ledger.partitions, ledger.context, ordinal)
        self._read = list(self.positions)

    @property
    def positions(self) -> tuple[int, ...]:
        """How far each partition is applied."""
        return tuple(self.store.position(partition).sequence for partition in range(self._ledger.partitions))

    @property
    def ordinal(self) -> int:
        """The ordinal of the last event applied that has one."""
        return self._merging.ordinal

    @property
    def waiting(self) -> int:
        """How many events were read and wait for those of other partitions."""
        return self._merging.events

    def board(self, board_id: str) -> tuple[Board, BoardState]:
        """Return a board as it is defined, and what became of it."""
        live = self.applier.state.boards[board_id]
        return self.applier.catalogue.board(board_id, live.version), live

    def follow(self, events_max: int, upto: Sequence[int] | None = None) -> int:
        """Read some more and apply what can be; return how many events were read or applied.

        `upto` are the sequences to end at: those that some follower was at between two of its steps.
        """
        before = self.events
        not_read = [one for one in range(self._ledger.partitions) if self._merging.is_at_barrier(one)]
        if upto is not None:
            not_read += [one for one, sequence in enumerate(upto) if self._read[one] >= sequence]
        parts = self._ledger.read(self._read, events_max, not_read)
        if upto is not None:
            parts = [_cut(part, upto[part.partition]) for part in parts if part.stretch.first <= upto[part.partition]]
        self.take(parts)
        return max(self.events - before, sum(len(part.stretch) for part in parts))

    def take(self, parts: Sequence[Part]) -> None:
        """Apply what can be of events that were read, behind those that were read before."""
        for part in parts:
            self._read[part.partition] = part.stretch.first + len(part.stretch) - 1
        self._merging.add(parts)
        for step in self._merging.steps():
            self._apply(step)

    def apply_appended(self, runs: Iterable[Stretch]) -> None:
        """Apply what the sole writer has just appended behind everything that was applied: it need not be read."""
        for run in runs:
            self.apply(run)
            self.events += len(run)
            self._read[run.partition] = run.first + len(run) - 1

    def _apply(self, step: Step) -> None:
        self.apply(step.stretch)
        self.events += len(step.stretch)
        if step.barrier is not None:
            self.controls += 1
            for partition, sequence in enumerate(step.barrier[1:], start=1):
                skip(self.store, EventSpan(partition, sequence - 1, sequence))


def _cut(part: Part, upto: int) -> Part:
    count = min(len(part.stretch), upto - part.stretch.first + 1)
    return Part(part.partition, part.stretch.part(0, count), None if part.ordinals is None else part.ordinals[:count])

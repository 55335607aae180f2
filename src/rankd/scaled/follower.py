"""The ledger becomes ranks in this process: read, put into one order, applied to the engine.

    PartitionedLedger.read → Merging → Applier → RecordingStore

Whoever reads the same ledger comes to the same ranks, whatever was read in between.
"""

from __future__ import annotations

from collections.abc import Iterator

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.ledger.event import EventSpan
from rankd.ledger.partitioned import PartitionedLedger
from rankd.projection.applier import Applier
from rankd.projection.catalogue import Catalogue
from rankd.projection.redis.changes import InstanceChange, whole_instance, with_top
from rankd.projection.rows import skip
from rankd.projection.state import BoardState, State
from rankd.scaled.merging import Merging, Step
from rankd.scaled.recording import RecordingStore


class Follower:
    """Applies a ledger to an engine; used by one thread."""

    def __init__(
        self,
        ledger: PartitionedLedger,
        store: RecordingStore,
        state: State,
        catalogue: Catalogue,
        *,
        ordinal: int = 0,
        controls: int = 0,
    ) -> None:
        """Go on from where a store is: the last ordinal and the number of control events it has are told."""
        self.store = store
        self.applier = Applier(store, state, catalogue, ledger.context)
        self.controls = controls
        self.events = 0  # applied, since the start
        self._ledger = ledger
        self._merging = Merging(ledger.partitions, ledger.context, ordinal)
        self._read = list(self.positions)
        self.recorded_since: tuple[int, ...] = ()
        self.begin_recording()

    def begin_recording(self) -> None:
        """Forget what changed so far: it is noted anew, from here on."""
        self.store.take()
        self.recorded_since = self.positions

    @property
    def positions(self) -> tuple[int, ...]:
        """How far each partition is applied."""
        return tuple(self.store.position(partition).sequence for partition in range(self._ledger.partitions))

    @property
    def ordinal(self) -> int:
        """The ordinal of the last event applied that has one."""
        return self._merging.ordinal

    def board(self, board_id: str) -> tuple[Board, BoardState]:
        """Return a board as it is defined, and what became of it."""
        live = self.applier.state.boards[board_id]
        return self.applier.catalogue.board(board_id, live.version), live

    def whole(self, key: InstanceKey) -> Iterator[InstanceChange]:
        """Return everybody in an instance, for one whose form in Redis has to change."""
        board, _ = self.board(key.board)
        rules = board.rules_for(board.window_of(key.window))
        for page in whole_instance(self.store, key, rules, board.tie_resolution_ms):
            yield page if board.exact_top is None else with_top(self.store, page, board.exact_top, is_whole=True)

    def follow(self, events_max: int) -> int:
        """Read some more and apply what can be; return how many events were read or applied."""
        before = self.events
        waiting = [one for one in range(self._ledger.partitions) if self._merging.is_at_barrier(one)]
        parts = self._ledger.read(self._read, events_max, waiting)
        for part in parts:
            self._read[part.partition] = part.stretch.first + len(part.stretch) - 1
        self._merging.add(parts)
        for step in self._merging.steps():
            self._apply(step)
        return max(self.events - before, sum(len(part.stretch) for part in parts))

    def _apply(self, step: Step) -> None:
        stretch = step.stretch
        self.applier.apply(stretch)
        self.events += len(stretch)
        if step.barrier is not None:
            self.controls += 1
            for partition, sequence in enumerate(step.barrier[1:], start=1):
                skip(self.store, EventSpan(partition, sequence - 1, sequence))

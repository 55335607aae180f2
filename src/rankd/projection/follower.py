"""The follower reads the ledger, merges its partitions into one order and applies them to the engine.

    Ledger.read → Merging → Applier → EngineStore
    Ledger.read → LogMerging → Admission → Applier → EngineStore, where the ledger is a log

Every follower of the same ledger reaches the same ranks, however its reads were cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from rankd.domain.board import Board
from rankd.domain.board_selection import EVERY_BOARD, BoardSelection
from rankd.errors import LedgerDamaged
from rankd.ledger.event import EventRun, EventSpan
from rankd.ledger.port import Ledger, Part
from rankd.ledger.vector import reaches
from rankd.projection.admission import Admission, RefusedEvent
from rankd.projection.applier import Applier
from rankd.projection.catalogue import Catalogue
from rankd.projection.log_merging import cut_columns
from rankd.projection.log_state import LogState
from rankd.projection.merging import Merging, Step
from rankd.projection.port import RankStore
from rankd.projection.reacceptance import Reacceptances
from rankd.projection.rows import skip
from rankd.projection.state import BoardState, State

Store = TypeVar("Store", bound=RankStore)


class Follower(Generic[Store]):
    """Applies a ledger to an engine; one thread at a time uses it."""

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        state: State,
        catalogue: Catalogue,
        *,
        ordinal: int = 0,
        controls: int = 0,
        kept: BoardSelection = EVERY_BOARD,
        log: LogState | None = None,
    ) -> None:
        """Continue at the store's positions; `ordinal` is the last applied, `controls` the number of control events.

        Boards that are not kept have no rows. `log` is what was known of a log at these positions.
        """
        self.store = store
        self.applier = Applier(store, state, catalogue, ledger.context, kept)
        self.apply: Callable[[EventRun], None] = self.applier.apply  # AnsweringApplier replaces it
        self.controls = controls
        self.is_changing = False  # a control event is being applied
        self.events = 0  # applied since the start
        self._ledger = ledger
        self._read = list(self.positions)
        self.admission: Admission | None = None  # where the ledger is a log
        self._merging: Merging | Admission = Merging(ledger.partitions, ledger.context, ordinal)
        if not ledger.capabilities.appends_conditionally:
            _check_reaches(ledger.heads().firsts, self._read)
            reacceptances = Reacceptances(state, catalogue, self.applier.directory.boards)
            log = log or LogState.empty(ledger.partitions)
            self._merging = self.admission = Admission(ledger.context, reacceptances, log, self._read, controls)
            self.applier.context_of = self.admission.context

    @property
    def positions(self) -> tuple[int, ...]:
        """The sequence of the last applied event of each partition."""
        return tuple(self.store.position(partition).sequence for partition in range(self._ledger.partitions))

    @property
    def ordinal(self) -> int:
        """The last ordinal applied."""
        return self._merging.ordinal

    @property
    def waiting(self) -> int:
        """The number of events that were read and wait for other partitions."""
        return self._merging.events

    @property
    def time_awaited(self) -> int | None:
        """The time in a log that waiting events need every partition to pass, for `Ledger.tend`; None where none do."""
        return None if self.admission is None else self.admission.time_awaited

    def watch_refused(self, refused: Callable[[RefusedEvent], None]) -> None:
        """Have a function called with each event of a log that is refused from now on."""
        if self.admission is not None:
            self.admission.refused = refused

    def board(self, board_id: str) -> tuple[Board, BoardState]:
        """Return a board's current definition and its state."""
        live = self.applier.state.boards[board_id]
        return self.applier.catalogue.board(board_id, live.version), live

    def follow(self, events_max: int, upto: Sequence[int] | None = None) -> int:
        """Read more events and apply those that are ready; return how many were read or applied.

        `upto` are the sequences to stop at, which some follower reached between two of its steps.
        """
        before = self.events
        not_read = [partition for partition in range(self._ledger.partitions) if self._merging.holds_back(partition)]
        if upto is not None:
            not_read += [partition for partition, sequence in enumerate(upto) if self._read[partition] >= sequence]
        parts = self._ledger.read(self._read, events_max, not_read)
        if upto is not None:
            parts = [_cut(part, upto[part.partition]) for part in parts if part.event_run.first <= upto[part.partition]]
        self.take(parts, upto)
        return max(self.events - before, sum(len(part.event_run) for part in parts))

    def follow_to_head(self, events_max: int, progress: Callable[[int, int], None]) -> None:
        """Follow the ledger to its present head, in steps of `events_max`.

        `progress` is called after each step with (events followed, events to follow). Of a log, the last events may
        wait for other partitions to pass their time, or to get a control event.
        """
        heads = self._ledger.heads().sequences
        while not reaches(self.positions, heads):
            if not self.follow(events_max):
                return
            done = sum(self.positions)
            progress(done, max(done, sum(heads)))

    def take(self, parts: Sequence[Part], upto: Sequence[int] | None = None) -> None:
        """Take events that follow those read before, and apply all that are ready; nothing is read behind `upto`."""
        for part in parts:
            self._read[part.partition] = part.event_run.first + len(part.event_run) - 1
        if self.admission is not None:
            # A follower that stopped at `upto` had read on, and knew that no earlier event could follow.
            self.admission.end({number for number, end in enumerate(upto or ()) if self._read[number] >= end})
        self._merging.add(parts)
        for step in self._merging.steps():
            self._apply(step)

    def apply_appended(self, runs: Iterable[EventRun]) -> None:
        """Apply runs that the sole writer has just appended, without reading them back from the ledger."""
        for run in runs:
            self.apply(run)
            count = len(run.score)
            self.events += count
            self._read[run.partition] = run.first + count - 1

    def _apply(self, step: Step | EventSpan) -> None:
        if isinstance(step, EventSpan):  # of a log: without effect
            skip(self.store, step)
            self.events += step.upto - step.after
            return
        self.is_changing = step.barrier is not None
        self.apply(step.event_run)
        self.events += len(step.event_run)
        if step.barrier is not None:
            self.controls += 1
            self.is_changing = False
            for partition, sequence in enumerate(step.barrier[1:], start=1):
                skip(self.store, EventSpan(partition, sequence - 1, sequence))


def _cut(part: Part, upto: int) -> Part:
    count = min(len(part.event_run), upto - part.event_run.first + 1)
    return Part(
        part.partition,
        part.event_run.part(0, count),
        None if part.ordinals is None else part.ordinals[:count],
        None if part.log is None else cut_columns(part.log, 0, count),
    )


def _check_reaches(firsts: Sequence[int], positions: Sequence[int]) -> None:
    """Refuse to follow a log whose next events have expired."""
    for partition, (first, position) in enumerate(zip(firsts, positions, strict=False)):
        if position + 1 < first:
            newest = f"the newest checkpoint is at event {position}" if any(positions) else "there is no checkpoint"
            raise LedgerDamaged(
                f"partition {partition} of the ledger's log begins at event {first}, and {newest}: put a checkpoint "
                "there that reaches it, of another process or from the archive"
            )

"""What the clock does to boards on a shared ledger: the projector that ranks appends it, as control events.

    state of the follower → Schedule → append_control (midnight, close) → archives → append_control (retire)

Whoever appends names the control events it has seen, so what was decided on an older state is refused and decided
again. Scores that are in the ledger and not ranked yet stand before what is appended, and count.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.ledger.event import Accepted, Context, Detail, Kind
from rankd.ledger.partitioned import ControlEvent, DefinitionsChanged, PartitionedLedger
from rankd.projection.follower import Follower
from rankd.projection.state import BoardState, State
from rankd.scaled.archiving import Archiving
from rankd.seasons.due import NEVER, Due, Schedule

SENDER = "rankd"
EVENTS_AT_ONCE = 1_000


class RollOvers:
    """Appends what is due; used by the projector's thread."""

    def __init__(self, ledger: PartitionedLedger, clock: Clock, folder: Path) -> None:
        """Final standings are kept in a folder before they leave the ranks."""
        self._ledger = ledger
        self._clock = clock
        self.archiving = Archiving(folder)
        self._schedule: Schedule | None = None
        self._followed: Follower[Any] | None = None
        self._boards: dict[str, Board] = {}
        self._controls = -1
        self._seen: tuple[int, int] | None = None  # windows that came and went, and files that were written
        self._next_gone = 0

    def close(self) -> None:
        """Stop writing archives."""
        self.archiving.close()

    def roll_over(self, follower: Follower[Any]) -> int:
        """Append what is due by now; return how many events that were."""
        schedule = self._of(follower)
        now = self._clock.now()
        at = max(now, self._ledger.heads().at)  # the ledger's time does not go back when a clock does
        due = schedule.due(at) if schedule.is_due(at) else self._retired(follower, now)
        if not due:
            return 0
        events = [self._event(follower, one) for one in due[:EVENTS_AT_ONCE]]
        try:
            self._ledger.append_control(events, follower.controls)
        except DefinitionsChanged:
            return 1  # there is more to follow first
        return len(events)

    def _of(self, follower: Follower[Any]) -> Schedule:
        state, catalogue = follower.applier.state, follower.applier.catalogue
        if self._schedule is None or self._followed is not follower:
            self._followed = follower
            self._schedule = Schedule(state, lambda: self._boards)
            self._controls = -1
        if self._controls != follower.controls:
            self._controls = follower.controls
            self._boards = catalogue.current({one: live.version for one, live in state.boards.items()})
            self._schedule.replan()
        return self._schedule

    def _retired(self, follower: Follower[Any], now: int) -> list[Due]:
        """Have windows archived that are final, and return those whose time in the ranks is over and that are."""
        state, seen = follower.applier.state, (follower.applier.state.generation, self.archiving.finished)
        if self._seen == seen and now < self._next_gone:
            return []
        self._seen, self._next_gone = seen, NEVER
        due = []
        for board in self._boards.values():
            live = state.boards[board.id]
            for instance in [one for one in live.windows if one in live.closed]:
                gone_at = board.gone_at(board.window_of(instance), instance)
                if gone_at is None:
                    continue
                is_archived = self.archiving.has(
                    follower.store, board, live, instance, self._is_of(state, live, board.id)
                )
                if gone_at > now:
                    self._next_gone = min(self._next_gone, gone_at)
                elif is_archived:
                    due.append(Due(now, board.id, Kind.RETIRE, instance))
        if due:
            self._seen = None  # until they are gone
        return due

    @staticmethod
    def _is_of(state: State, live: BoardState, board_id: str) -> Callable[[], bool]:
        """Return what tells whether a board is still there, and not another of the same id."""
        return lambda: state.boards.get(board_id) is live

    def _event(self, follower: Follower[Any], due: Due) -> ControlEvent:
        board = self._boards[due.board]
        reading = board.read_clock(due.at)
        version = follower.applier.state.boards[due.board].version
        accepted = Accepted(version, reading.utc_offset_s, reading.resets)
        context = Context(due.kind, due.board, SENDER, {due.board: accepted})
        return ControlEvent(context, None if due.instance is None else Detail(window=due.instance), due.at)

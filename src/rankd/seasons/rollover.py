"""Appends the control events of the clock: midnights, the close of windows, and their retirement.

    state → Schedule → append_control (midnight, close) → Retirement: archived → append_control (retire)

An append names the control events its writer has seen, so the ledger refuses one decided on an older state. Scores in
the ledger that are not ranked yet come before the appended event, and count.

A write or a read appends what is due of its own boards before it; upkeep appends the rest, a few boards at a time, so
that nothing waits long at a midnight of many boards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rankd.ledger.event import (
    NO_DETAIL,
    PAYLOAD_OF_HOURS,
    PAYLOAD_WRITTEN,
    AcceptanceContext,
    Context,
    Detail,
    EventKind,
    Scored,
)
from rankd.ledger.port import ControlEvent, DefinitionsChanged, Ledger
from rankd.projection.applier import Applier
from rankd.projection.follower import Follower
from rankd.seasons.retirement import Retirement
from rankd.seasons.schedule import Due, Schedule

SENDER = "rankd"
BOARDS_AT_ONCE = 25
EVENTS_AT_ONCE = 100
Run = Callable[[Callable[[], int]], int]


class RollOvers:
    """Appends due control events; used by the follower's thread, except `is_due`."""

    def __init__(self, ledger: Ledger, follower: Follower[Any], retirement: Retirement) -> None:
        """The follower applies what is appended."""
        self._ledger = ledger
        self._follower = follower
        self._retirement = retirement
        applier = follower.applier
        self._schedule = Schedule(applier.state, lambda: applier.directory.boards)

    def is_due(self, now: int, board_ids: Iterable[str] | None = None) -> bool:
        """Return whether a midnight or the close of a window is due, of some boards or of any; from any thread."""
        return self._schedule.is_due(now, board_ids)

    def append_due(self, at: int, board_ids: Iterable[str] | None = None) -> int:
        """Append due midnights and closes in time order, of some boards or the next few; return their number."""
        return self._append(self._schedule.due(at, board_ids, BOARDS_AT_ONCE), at)

    def append_next(self, at: int, run: Run) -> int:
        """Append what is due next, else the retirement of archived windows; return the number of events."""
        return run(lambda: self.append_due(at)) if self.is_due(at) else self.append_retired(at, run)

    def append_retired(self, at: int, run: Run) -> int:
        """Append the next retirements of archived windows, and queue the archiving of others; return how many.

        It reads files, so the committing thread does not call it: `run` runs the append between two commits.
        """
        due = self._retirement.due(at, EVENTS_AT_ONCE)
        return run(lambda: self._append([event for event in due if self._is_there(event)], at)) if due else 0

    def _is_there(self, due: Due) -> bool:
        live = self._follower.applier.state.boards.get(due.board)
        return live is not None and due.instance in live.windows and due.instance in live.closed

    def _append(self, due: Sequence[Due], at: int) -> int:
        done = 0
        seen = self._follower.controls
        for start in range(0, len(due), EVENTS_AT_ONCE):
            events = [event_of(self._follower.applier, event) for event in due[start : start + EVENTS_AT_ONCE]]
            try:
                self._ledger.append_control(events, seen, at=at)
            except DefinitionsChanged:
                return done + 1  # there is more to follow first
            seen += len(events)
            done += len(events)
        return done


def apply_due(follower: Follower[Any], at: int) -> None:
    """Apply what is due by an instant to a follower that stopped there and will not go on: nothing is appended."""
    applier = follower.applier
    schedule = Schedule(applier.state, lambda: applier.directory.boards)
    sequence = follower.positions[0]
    while due := schedule.due(at):
        for event in due:
            sequence += 1
            control = event_of(applier, event)
            scored = Scored(sequence, control.at, "", 0, 0, control.detail or NO_DETAIL)
            applier.apply_control(control.context, scored)


def event_of(applier: Applier, due: Due) -> ControlEvent:
    """Return a due event as a control event."""
    board, live = applier.directory.boards[due.board], applier.state.boards[due.board]
    reading = board.read_clock(due.at)
    accepted = AcceptanceContext(live.version, reading.utc_offset_s, reading.resets)
    payload_version = PAYLOAD_OF_HOURS if due.kind is EventKind.HOUR else PAYLOAD_WRITTEN
    context = Context(due.kind, due.board, SENDER, {due.board: accepted}, payload_version)
    return ControlEvent(context, None if due.instance is None else Detail(window=due.instance), due.at)

"""What the clock does to boards, as control events: midnights, the end of windows, and when a final one leaves.

    state → Schedule → append_control (midnight, close) → Retirement: archived → append_control (retire)

Whoever appends names the control events it has seen, so what was decided on an older state is refused and decided
again. Scores that are in the ledger and not ranked yet stand before what is appended, and count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankd.ledger.event import Accepted, Context, Detail
from rankd.ledger.port import ControlEvent, DefinitionsChanged, Ledger
from rankd.projection.applier import Applier
from rankd.projection.follower import Follower
from rankd.seasons.due import Due, Schedule
from rankd.seasons.retirement import Retirement

SENDER = "rankd"
EVENTS_AT_ONCE = 1_000


class RollOvers:
    """Appends what is due, for a follower; used by the thread that follows, but for `is_due`."""

    def __init__(self, ledger: Ledger, follower: Follower[Any], retirement: Retirement) -> None:
        """What is appended is applied when it is followed."""
        self._ledger = ledger
        self._follower = follower
        self._retirement = retirement
        applier = follower.applier
        self._schedule = Schedule(applier.state, lambda: applier.directory.boards)

    def is_due(self, now: int) -> bool:
        """Tell whether a midnight or the end of a window is due; from any thread."""
        return self._schedule.is_due(now)

    def append_due(self, at: int) -> int:
        """Append midnights and ends of windows that are due, in the order of time; return how many events."""
        return self._append(self._schedule.due(at), at)

    def retired(self, now: int) -> list[Due]:
        """Have final windows archived, and return those that are and whose time in the ranks is over.

        It looks at files, so a thread that others wait for leaves it to another one.
        """
        return self._retirement.due(now)

    def append_retired(self, due: Sequence[Due], at: int) -> int:
        """Append what `retired` returned, but for windows that have gone meanwhile; return how many events."""
        return self._append([one for one in due if self._is_there(one)], at)

    def _is_there(self, due: Due) -> bool:
        live = self._follower.applier.state.boards.get(due.board)
        return live is not None and due.instance in live.windows and due.instance in live.closed

    def _append(self, due: Sequence[Due], at: int) -> int:
        done = 0
        seen = self._follower.controls
        for start in range(0, len(due), EVENTS_AT_ONCE):
            events = [event_of(self._follower.applier, one) for one in due[start : start + EVENTS_AT_ONCE]]
            try:
                self._ledger.append_control(events, seen, at=at)
            except DefinitionsChanged:
                return done + 1  # there is more to follow first
            seen += len(events)
            done += len(events)
        return done


def event_of(applier: Applier, due: Due) -> ControlEvent:
    """Return what is due as a control event."""
    board, live = applier.directory.boards[due.board], applier.state.boards[due.board]
    reading = board.read_clock(due.at)
    accepted = Accepted(live.version, reading.utc_offset_s, reading.resets)
    context = Context(due.kind, due.board, SENDER, {due.board: accepted})
    return ControlEvent(context, None if due.instance is None else Detail(window=due.instance), due.at)

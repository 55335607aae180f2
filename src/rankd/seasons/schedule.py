"""The schedule of control events: local midnights, hours and the end of windows, in time order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from rankd.domain.board import Board
from rankd.domain.history import HOUR_MS
from rankd.domain.instant import AT_MS_END
from rankd.domain.window import WindowKind
from rankd.ledger.event import EventKind
from rankd.projection.state import BoardState, State

NEVER = AT_MS_END
_WITHIN_A_DAY = (WindowKind.DAILY, WindowKind.HOURLY)


class Due(NamedTuple):
    """A control event that is due at a time."""

    at: int
    board: str
    kind: EventKind
    instance: str | None = None


class Schedule:
    """The next due events of all boards, recomputed only for changed boards."""

    def __init__(self, state: State, boards: Callable[[], Mapping[str, Board]]) -> None:
        """`boards` returns the current definitions."""
        self._state = state
        self._boards = boards
        self._changed = state.subscribe()
        self._lock = threading.Lock()  # readers call it, too
        self._generation = -1
        self._next = NEVER
        self._first_of: dict[str, int] = {}  # time of each board's first event
        self._heap: list[tuple[int, str]] = []  # of these, and outdated ones

    def is_due(self, now: int, board_ids: Iterable[str] | None = None) -> bool:
        """Return whether an event is due, of some boards or of any."""
        next_at = self._next if self._state.generation == self._generation else self.next_at
        if next_at > now:  # the usual case
            return False
        return board_ids is None or any(self._first_of.get(board_id, NEVER) <= now for board_id in board_ids)

    @property
    def next_at(self) -> int:
        """The time of the next event."""
        generation = self._state.generation
        if generation != self._generation:
            with self._lock:
                self._plan()
                self._next = self._heap[0][0] if self._heap else NEVER
                self._generation = generation
        return self._next

    def due(self, now: int, board_ids: Iterable[str] | None = None, boards_max: int | None = None) -> list[Due]:
        """Return the due events in time order; of several midnights or hours of a board, only the last.

        They are those of some boards, or else of all, the boards that have waited longest first.
        """
        with self._lock:
            self._plan()
            self._generation = -1
            ready = self._longest_due(now, boards_max) if board_ids is None else set(board_ids)
        boards = self._boards()
        events = [due for board_id in ready for due in self._of(board_id) if due.at <= now]
        for index, due in enumerate(events):
            if due.kind is EventKind.MIDNIGHT:
                events[index] = due._replace(at=boards[due.board].zone.midnights_around(now)[0])
            elif due.kind is EventKind.HOUR:
                events[index] = due._replace(at=boards[due.board].zone.hour_around(now)[0])
        return sorted(events, key=lambda due: (due.at, due.board, due.kind != EventKind.MIDNIGHT, due.instance or ""))

    def _longest_due(self, now: int, boards_max: int | None) -> set[str]:
        ready: dict[str, int] = {}
        while self._heap and self._heap[0][0] <= now and (boards_max is None or len(ready) < boards_max):
            at, board_id = heappop(self._heap)
            if self._first_of.get(board_id) == at:
                ready[board_id] = at
        for board_id, at in ready.items():  # due until their events are applied
            heappush(self._heap, (at, board_id))
        return set(ready)

    def _plan(self) -> None:
        """Recompute the first events of changed boards, and drop outdated ones from the top of the heap."""
        while self._changed:
            board_id, _ = self._changed.popitem()
            first = min((due.at for due in self._of(board_id)), default=None)
            if first is None:
                self._first_of.pop(board_id, None)
            elif self._first_of.get(board_id) != first:
                self._first_of[board_id] = first
                heappush(self._heap, (first, board_id))
        while self._heap and self._first_of.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)

    def _of(self, board_id: str) -> Iterator[Due]:
        board, live = self._boards().get(board_id), self._state.boards.get(board_id)
        if board is None or live is None:  # deleted
            return
        if (midnight := next_midnight(board, live)) is not None:
            yield Due(midnight, board_id, EventKind.MIDNIGHT)
        if board.history is not None and board.history.every_ms == HOUR_MS:
            yield Due(board.zone.hour_around(max(live.defined_at, live.hour or 0))[1], board_id, EventKind.HOUR)
        for instance in list(live.windows):  # a copy: another thread may add or remove windows
            if instance not in live.closed and (final := board.final_at(board.window_of(instance), instance)):
                yield Due(final, board_id, EventKind.CLOSE, instance)


def next_midnight(board: Board, live: BoardState) -> int | None:
    """Return the next local midnight at which a board's places are captured; None when they never are."""
    if not board.with_global or all(window.kind in _WITHIN_A_DAY for window in board.all_windows.values()):
        return None
    return board.zone.midnights_around(max(live.defined_at, live.midnight or 0))[1]

"""What the clock makes due: local midnights and the end of windows, in the order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rankd.domain.board import Board
from rankd.domain.instant import AT_MS_END
from rankd.domain.window import Kind as WindowKind
from rankd.ledger.event import Kind
from rankd.projection.state import BoardState, State

NEVER = AT_MS_END
_WITHIN_A_DAY = (WindowKind.DAILY, WindowKind.HOURLY)


class Due(NamedTuple):
    """An event that the clock calls for."""

    at: int
    board: str
    kind: Kind
    instance: str | None = None


class Schedule:
    """When the next event is due; worked out anew when windows or definitions have come or gone."""

    def __init__(self, state: State, boards: Callable[[], Mapping[str, Board]]) -> None:
        """`boards` are those defined now."""
        self._state = state
        self._boards = boards
        self._planned: object = None
        self._next = NEVER

    def is_due(self, now: int) -> bool:
        """Tell whether something is due."""
        return self.next_at <= now

    @property
    def next_at(self) -> int:
        """When the next event is due."""
        seen = (self._state.generation, id(self._boards()))
        if seen != self._planned:
            self._next = min((due.at for due in self._all()), default=NEVER)
            self._planned = seen
        return self._next

    def due(self, now: int) -> list[Due]:
        """Return what is due, in the order of time; of several midnights only the last matters."""
        self._planned = None
        found = [due for due in self._all() if due.at <= now]
        for index, due in enumerate(found):
            if due.kind is Kind.MIDNIGHT:
                found[index] = due._replace(at=self._boards()[due.board].zone.midnights_around(now)[0])
        return sorted(found, key=lambda due: (due.at, due.board, due.kind != Kind.MIDNIGHT, due.instance or ""))

    def _all(self) -> Iterator[Due]:
        for board in self._boards().values():
            live = self._state.boards.get(board.id)
            if live is None:  # deleted a moment ago
                continue
            if (midnight := next_midnight(board, live)) is not None:
                yield Due(midnight, board.id, Kind.MIDNIGHT)
            for instance in list(live.windows):  # a copy: readers ask while windows come and go
                if instance not in live.closed and (final := board.final_at(board.window_of(instance), instance)):
                    yield Due(final, board.id, Kind.CLOSE, instance)


def next_midnight(board: Board, live: BoardState) -> int | None:
    """Return the next local midnight at which a board's places are remembered; None when they never are."""
    if not board.with_global or all(window.kind in _WITHIN_A_DAY for window in board.all_windows.values()):
        return None
    return board.zone.midnights_around(max(live.defined_at, live.midnight or 0))[1]

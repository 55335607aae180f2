"""When final windows leave the ranks: archived as soon as they are final, gone when their retention is over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from heapq import heappop, heappush

from rankd.ledger.event import Kind
from rankd.projection.applier import Applier
from rankd.projection.port import RankStore
from rankd.projection.state import BoardState
from rankd.seasons.archiving import Archiving
from rankd.seasons.due import Due


class Retirement:
    """Has windows archived, and says which may leave; it looks at boards that have changed, and at those whose time has
    come.
    """

    def __init__(self, applier: Applier, store: RankStore, archiving: Archiving) -> None:
        """`store` is what the applier writes to."""
        self._applier = applier
        self._store = store
        self.archiving = archiving
        self._changed = applier.state.subscribe()  # boards of which a window may have become final
        self._leaving: list[tuple[int, str]] = []  # a heap: when a final window leaves, and its board
        self._waiting: set[str] = set()  # boards with a window that is not archived yet
        self._lock = threading.Lock()
        self._finished = 0  # files, when those were looked at

    def look_at_all(self) -> None:
        """Look at every board the next time."""
        self._changed.update(dict.fromkeys(list(self._applier.state.boards)))

    def due(self, now: int) -> list[Due]:
        """Return the windows whose time in the ranks is over and that are archived; have the others archived."""
        with self._lock:
            return self._due(now)

    def _due(self, now: int) -> list[Due]:
        while self._leaving and self._leaving[0][0] <= now:
            self._changed[heappop(self._leaving)[1]] = None
        if self._finished != self.archiving.finished:
            self._finished = self.archiving.finished
            self._changed.update(dict.fromkeys(self._waiting))
        found: list[Due] = []
        while self._changed:
            board_id, _ = self._changed.popitem()
            found += self._of(board_id, now)
        for board_id in {one.board for one in found}:
            self._changed[board_id] = None  # until they are gone
        return sorted(found, key=lambda one: (one.board, one.instance or ""))

    def _of(self, board_id: str, now: int) -> list[Due]:
        board, live = self._applier.directory.boards.get(board_id), self._applier.state.boards.get(board_id)
        self._waiting.discard(board_id)
        due: list[Due] = []
        if board is None or live is None:  # deleted
            return due
        for instance in [one for one in list(live.windows) if one in live.closed]:
            gone_at = board.gone_at(board.window_of(instance), instance)
            if gone_at is None:
                continue
            if not self.archiving.has(self._store, board, live, instance, self._is_of(live, board_id)):
                self._waiting.add(board_id)
            elif gone_at <= now:
                due.append(Due(now, board_id, Kind.RETIRE, instance))
            if gone_at > now:
                heappush(self._leaving, (gone_at, board_id))
        return due

    def _is_of(self, live: BoardState, board_id: str) -> Callable[[], bool]:
        """Return what tells whether a board is still there, and not another of the same id."""
        return lambda: self._applier.state.boards.get(board_id) is live

"""Retirement of final windows: archived as soon as they are final, removed when their retention is over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from heapq import heappop, heappush

from rankd.archive.manifest import Manifest
from rankd.archive.standings_file import FinalWindow
from rankd.archive.windows import archived_until
from rankd.ledger.event import EventKind
from rankd.projection.applier import Applier
from rankd.projection.port import RankStore
from rankd.projection.state import BoardState
from rankd.seasons.archiving import ArchiveStep
from rankd.seasons.schedule import Due

PRUNE_EVERY_MS = 3_600_000


class Retirement:
    """Archives final windows and returns those to retire; it checks only boards that changed or have one due."""

    def __init__(self, applier: Applier, store: RankStore, archiving: ArchiveStep) -> None:
        """`store` is the applier's."""
        self._applier = applier
        self._store = store
        self.archiving = archiving
        self._changed = applier.state.subscribe()  # boards to check
        self._leaving: list[tuple[int, str]] = []  # a heap: end of a final window's retention, and its board
        self._waiting: set[str] = set()  # boards with a window that is not archived yet
        self._prune_at = 0
        self._lock = threading.Lock()
        self._finished = 0  # archived files at the last check of `_waiting`

    def check_all(self) -> None:
        """Check every board the next time."""
        self._changed.update(dict.fromkeys(list(self._applier.state.boards)))

    def due(self, now: int, events_max: int) -> list[Due]:
        """Return archived windows whose retention is over, until there are enough; queue the archiving of others."""
        with self._lock:
            self._prune(now)
            return self._due(now, events_max)

    def _prune(self, now: int) -> None:
        """Let the archive be pruned once an hour, where a board says how long it is kept."""
        boards, live = self._applier.directory.boards, self._applier.state.boards
        if now < self._prune_at:
            return
        self._prune_at = now + PRUNE_EVERY_MS
        if not any(board.archive_keep_ms for board in list(boards.values())):
            return

        def kept_until(manifest: Manifest) -> int | None:
            state = live.get(manifest.board)
            if state is None or state.born != manifest.born:
                return archived_until(manifest)
            if manifest.window in state.windows:  # it would be archived again
                return None
            return archived_until(manifest, boards.get(manifest.board))

        self.archiving.prune(kept_until, now)

    def _due(self, now: int, events_max: int) -> list[Due]:
        while self._leaving and self._leaving[0][0] <= now:
            self._changed[heappop(self._leaving)[1]] = None
        if self._finished != self.archiving.finished:
            self._finished = self.archiving.finished
            self._changed.update(dict.fromkeys(self._waiting))
        events: list[Due] = []
        while self._changed and len(events) < events_max:
            board_id, _ = self._changed.popitem()
            events += self._of(board_id, now)
        for board_id in {due.board for due in events}:
            self._changed[board_id] = None  # until their windows are removed
        return sorted(events, key=lambda due: (due.board, due.instance or ""))

    def _of(self, board_id: str, now: int) -> list[Due]:
        board, live = self._applier.directory.boards.get(board_id), self._applier.state.boards.get(board_id)
        self._waiting.discard(board_id)
        due: list[Due] = []
        if board is None or live is None:  # deleted
            self.archiving.forget(board_id, lambda _instance: False)
            return due
        self.archiving.forget(board_id, live.windows.__contains__)
        for instance in [window for window in list(live.windows) if window in live.closed]:
            gone_at = board.gone_at(board.window_of(instance), instance)
            if not self.archiving.has(FinalWindow(self._store, board, live, instance), self._is_of(live, board_id)):
                self._waiting.add(board_id)
            elif gone_at is not None and gone_at <= now:
                due.append(Due(now, board_id, EventKind.RETIRE, instance))
            if gone_at is not None and gone_at > now:
                heappush(self._leaving, (gone_at, board_id))
        return due

    def _is_of(self, live: BoardState, board_id: str) -> Callable[[], bool]:
        """Return a check that the board is still the same, not deleted or redefined."""
        return lambda: self._applier.state.boards.get(board_id) is live

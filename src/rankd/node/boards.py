"""The boards that a node knows; one that it does not know may have been defined on another node a moment ago."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Any

from rankd.background import require_thread
from rankd.domain.board import Board
from rankd.errors import LedgerUnavailable

LOOK_EVERY_S = 0.005  # into the ledger, however many ask for boards that there are not
LOOK_WAIT_S = 2.0


class KnownBoards(Mapping[str, Board]):
    """The boards by id, for any thread but the committing one, which follows the ledger itself.

    Whoever asks for a board that is not known is answered when the ledger was followed after they asked. One thread
    looks for all who wait; an event loop is refused by ThreadNeeded.
    """

    def __init__(self, boards: Mapping[str, Board], follow: Callable[[], object]) -> None:
        """`boards` are those that are known at any moment, `follow` brings them up to date."""
        self._boards = boards
        self._follow = follow
        self._looking = threading.Lock()
        self._began_s = self._followed_s = 0.0  # by the monotonic clock: the last look, and the last that succeeded

    def __getitem__(self, board_id: str) -> Board:
        """Return a board that is known."""
        return self._boards[board_id]

    def __iter__(self) -> Iterator[str]:
        """Go through the ids."""
        return iter(self._boards)

    def __len__(self) -> int:
        """Return how many boards are known."""
        return len(self._boards)

    def get(self, board_id: str, default: Any = None) -> Any:
        """Return a board; LedgerUnavailable where it cannot be told whether there is one."""
        board = self._boards.get(board_id)
        if board is None:
            require_thread()
            self._look(monotonic())
            board = self._boards.get(board_id, default)
        return board

    def _look(self, asked_s: float) -> None:
        if not self._looking.acquire(timeout=LOOK_WAIT_S):
            raise LedgerUnavailable("the ledger does not answer, so new boards cannot be found; ask again in a moment")
        try:
            if self._began_s > asked_s:
                if self._followed_s < self._began_s:
                    raise LedgerUnavailable("the ledger did not answer a moment ago; ask again in a moment")
                return
            pause_s = self._began_s + LOOK_EVERY_S - monotonic()
            if pause_s > 0:
                threading.Event().wait(pause_s)
            self._began_s = monotonic()
            self._follow()
            self._followed_s = monotonic()
        finally:
            self._looking.release()

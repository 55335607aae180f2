"""The boards that a node knows; one that it does not know may have been defined on another node a moment ago."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any

from rankd.background import require_thread
from rankd.domain.board import Board
from rankd.errors import Closed, LedgerUnavailable

LOOK_EVERY_S = 0.005  # into the ledger, however many ask for boards that there are not
LOOK_WAIT_S = 2.0


class KnownBoards(Mapping[str, Board]):
    """The boards by id, for any thread but the committing one, which follows the ledger itself.

    Whoever asks for a board that is not known is answered once the ledger was followed after they asked: one look for
    all who wait. An event loop is refused by ThreadNeeded.
    """

    def __init__(self, boards: Mapping[str, Board], follow: Callable[[], object]) -> None:
        """`boards` are those that are known at any moment, `follow` brings them up to date."""
        self._boards = boards
        self._follow = follow
        self._lock = threading.Lock()
        self._next: Future[None] | None = None  # a look that has not begun
        self._began_s = 0.0  # the last that did, by the monotonic clock
        self._pause = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rankd-boards")

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
            self._look()
            board = self._boards.get(board_id, default)
        return board

    def close(self) -> None:
        """Look no more."""
        with self._lock:
            self._thread.shutdown(wait=False)

    def _look(self) -> None:
        with self._lock:
            look = self._next
            if look is None:
                try:
                    look = self._next = self._thread.submit(self._follow_soon)
                except RuntimeError:
                    raise Closed("the boards were closed; open them again") from None
        try:
            look.result(LOOK_WAIT_S)
        except TimeoutError:
            raise LedgerUnavailable(
                "the ledger does not answer, so it cannot be told whether there is such a board; ask again in a moment"
            ) from None

    def _follow_soon(self) -> None:
        self._pause.wait(max(0.0, self._began_s + LOOK_EVERY_S - monotonic()))
        with self._lock:
            self._next = None  # whoever asks from now on may mean a board that is defined after this look
        self._began_s = monotonic()
        self._follow()

"""Boards whose ranks lag behind the ledger when a test says so."""

from __future__ import annotations

from collections.abc import Mapping

from rankd.boards import Boards


class LaggingBoards:
    """The reads of boards that a relay makes."""

    def __init__(self, boards: Boards) -> None:
        self.is_lagging = False
        self._boards = boards
        self.board, self.resolve, self.top_in = boards.board, boards.resolve, boards.top_in

    def has_ranked(self, positions: Mapping[int, int], board: str | None = None) -> bool:
        return not self.is_lagging and self._boards.has_ranked(positions, board)

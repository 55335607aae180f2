"""Every version of every definition: the applier uses the version under which intake accepted an event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import msgspec

from rankd.domain.board import Board
from rankd.domain.definition import define_board, definition_of
from rankd.errors import LedgerDamaged


class Definition(msgspec.Struct, frozen=True):
    """A board's definition under one of its versions."""

    board: str
    version: int
    definition: dict[str, object]


class Catalogue:
    """Boards by id and version; append-only."""

    def __init__(self) -> None:
        self._boards: dict[tuple[str, int], Board] = {}

    def add(self, board: Board, version: int) -> None:
        """Add a version of a board."""
        self._boards[board.id, version] = board

    def definitions(self) -> list[Definition]:
        """Return all definitions, for a checkpoint."""
        return [
            Definition(board_id, version, definition_of(board)) for (board_id, version), board in self._boards.items()
        ]

    @classmethod
    def of(cls, definitions: Iterable[Definition]) -> Self:
        """Return a catalogue of these definitions."""
        catalogue = cls()
        for definition in definitions:
            catalogue.add(define_board(definition.board, definition.definition), definition.version)
        return catalogue

    def board(self, board_id: str, version: int) -> Board:
        """Return one version of a board."""
        board = self._boards.get((board_id, version))
        if board is None:
            raise LedgerDamaged(f"version {version} of board {board_id} is named by an event and not in the ledger")
        return board

    def current(self, versions: Mapping[str, int]) -> dict[str, Board]:
        """Return boards by id, each in its version of `versions`."""
        return {board_id: self.board(board_id, version) for board_id, version in versions.items()}

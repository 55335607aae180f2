"""Rules by which a board accepts events: asked by the intake, and again by the followers of a log."""

from __future__ import annotations

from collections.abc import Iterable

from rankd.domain.board import Board
from rankd.errors import BoardClosed, Forbidden


def check_open(board: Board) -> None:
    """Refuse scores for a board that is not open."""
    if not board.open:
        raise BoardClosed(f"board: {board.id} takes no scores now; define it with open = true")


def not_signed(board: Board) -> Forbidden:
    """Return the refusal of a score without the board's signature."""
    return Forbidden(f"board: {board.id} takes submissions signed with {board.signing} only; sign it and send it again")


def used_attributes(boards: Iterable[Board]) -> tuple[str, ...]:
    """Return the attributes that boards use, sorted: an event that reaches them is stored with those it has."""
    names = {name for board in boards for name in (*board.scopes, *([board.team.attribute] if board.team else []))}
    return tuple(sorted(names))

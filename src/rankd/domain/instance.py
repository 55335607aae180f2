"""An instance: one board in one window and one scope, the unit that is ranked."""

from __future__ import annotations

from typing import Self

SEPARATOR = "@"


class InstanceKey:
    """Names one instance, such as `arcade@weekly:2026-W18@country:BR`.

    Board ids and window names never hold an `@`, so the text splits one way only; the scope is its rest.
    """

    __slots__ = ("board", "scope", "text", "window")

    def __init__(self, board: str, window: str = "all_time", scope: str = "global") -> None:
        """The parts are not checked: `Board`, `Window` and `Scope` have done so."""
        self.board = board
        self.window = window
        self.scope = scope
        self.text = f"{board}{SEPARATOR}{window}{SEPARATOR}{scope}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a key from its text.

        >>> InstanceKey.parse("arcade@daily:2026-05-04@country:BR").scope
        'country:BR'
        """
        board, window, scope = text.split(SEPARATOR, 2)
        return cls(board, window, scope)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InstanceKey) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"InstanceKey({self.text!r})"

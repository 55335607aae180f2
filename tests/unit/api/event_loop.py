"""The event loop of a test, turn by turn."""

from __future__ import annotations

from collections.abc import Generator


class _NextTurn:
    def __await__(self) -> Generator[None, None, None]:
        yield  # what a task may yield without waiting for anything


def next_turn() -> _NextTurn:
    """Return what waits for the next turn of the event loop."""
    return _NextTurn()

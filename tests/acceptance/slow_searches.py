"""`rankd serve` whose searches take long, as on a disk that is slow: tests can fill the queue of dear work."""

from __future__ import annotations

from threading import Event

from rankd.boards import Boards
from rankd.cli.main import main

SEARCH_S = 0.5


def _search(_boards: Boards, _start: str, _limit: int = 20) -> list[object]:
    Event().wait(SEARCH_S)
    return []


if __name__ == "__main__":
    Boards.search = _search  # type: ignore[assignment,method-assign]
    main()

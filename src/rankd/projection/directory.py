"""The directory of defined boards, ordered by id and by title: a page costs the same however many boards there are.

A search returns the boards whose id begins with the text, then those whose title does. It skips titles of boards that
their id has already matched, so a page may end before it is full, after TITLES_LOOKED_AT_MAX titles.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from itertools import islice, takewhile
from typing import Any, NamedTuple

from rankd.domain.board import Board

TITLES_LOOKED_AT_MAX = 5_000  # for one page
_Titled = tuple[str, str]  # title and id
CURSOR_SEPARATOR = ":"  # in a cursor, between an id, which cannot hold it, and a title


class DirectoryEntry(NamedTuple):
    """A board on a page, and the cursor behind it."""

    board: Board
    cursor: str


class DirectoryPage(NamedTuple):
    """Boards in order; `next` is the cursor of the next page, None at the end."""

    boards: list[DirectoryEntry]
    next: str | None


class Directory:
    """All boards; one thread at a time changes it, any thread reads it."""

    def __init__(self, boards: Iterable[Board] = ()) -> None:
        self._lock = threading.Lock()
        self._boards = {board.id: board for board in boards}
        self._feeders: dict[str, set[str]] = {}  # by the board that is fed
        for board in self._boards.values():
            self._add_feeds(board)
        self._ids = sorted(self._boards)
        self._titles = sorted(_title_of(board) for board in self._boards.values() if _has_title(board))

    def __len__(self) -> int:
        """Return how many boards there are."""
        return len(self._ids)

    @property
    def boards(self) -> Mapping[str, Board]:
        """All boards by id, a live view: copy it before iterating in another thread."""
        return self._boards

    def feeders_of(self, board_id: str) -> list[Board]:
        """Return the boards that feed a board."""
        return [self._boards[feeder] for feeder in sorted(self._feeders.get(board_id, ()))]

    def _add_feeds(self, board: Board) -> None:
        for fed in board.feeds:
            self._feeders.setdefault(fed, set()).add(board.id)

    def _drop_feeds(self, board: Board) -> None:
        for fed in board.feeds:
            self._feeders[fed].discard(board.id)
            if not self._feeders[fed]:
                del self._feeders[fed]

    def ids(self) -> list[str]:
        """Return the ids of all boards, in order."""
        return self._ids.copy()

    def put(self, board: Board) -> None:
        """Add a board, or replace the one with its id."""
        with self._lock:
            before = self._boards.get(board.id)
            self._boards[board.id] = board
            if before is not None:
                self._drop_feeds(before)
            self._add_feeds(board)
            if before is None:
                insort(self._ids, board.id)
            elif _has_title(before):
                _take_out(self._titles, _title_of(before))
            if _has_title(board):
                insort(self._titles, _title_of(board))

    def remove(self, board_id: str) -> None:
        """Forget a board."""
        with self._lock:
            board = self._boards.pop(board_id)
            self._drop_feeds(board)
            _take_out(self._ids, board_id)
            if _has_title(board):
                _take_out(self._titles, _title_of(board))

    def page(self, limit: int, cursor: str | None = None, search: str = "") -> DirectoryPage:
        """Return boards behind a cursor whose id or title begins with `search`, ignoring case.

        A page with fewer than `limit` boards may still have a `next`.
        """
        start = search.casefold()
        after, is_among_titles, title = (cursor or "").partition(CURSOR_SEPARATOR)
        following = None
        with self._lock:
            entries = [] if is_among_titles else self._by_id(start, after, limit + 1)
            if start and len(entries) <= limit:
                candidates, following = self._titles_of(start, (title, after) if is_among_titles else None)
                others = (self._listed(*titled) for titled in candidates if not titled[1].startswith(start))
                entries += islice(others, limit + 1 - len(entries))
        if len(entries) > limit:
            return DirectoryPage(entries[:limit], entries[limit - 1].cursor)
        return DirectoryPage(entries, following)

    def _by_id(self, start: str, after: str, count: int) -> list[DirectoryEntry]:
        begin = max(bisect_left(self._ids, start), bisect_right(self._ids, after))
        ids = takewhile(lambda board_id: board_id.startswith(start), self._ids[begin : begin + count])
        return [DirectoryEntry(self._boards[board_id], board_id) for board_id in ids]

    def _titles_of(self, start: str, after: _Titled | None) -> tuple[list[_Titled], str | None]:
        """Return the candidate titles of a page, and the cursor behind them if there are more."""
        titles = self._titles
        begin = bisect_left(titles, (start,))
        end = bisect_left(titles, True, lo=begin, key=lambda titled: not titled[0].startswith(start))
        if after is not None:
            begin = max(begin, bisect_right(titles, after))
        candidates = titles[begin : min(end, begin + TITLES_LOOKED_AT_MAX)]
        return candidates, self._listed(*candidates[-1]).cursor if begin + len(candidates) < end else None

    def _listed(self, title: str, board_id: str) -> DirectoryEntry:
        return DirectoryEntry(self._boards[board_id], f"{board_id}{CURSOR_SEPARATOR}{title}")


def _has_title(board: Board) -> bool:
    """Return whether a board has a title other than its id."""
    return board.title.casefold() != board.id


def _title_of(board: Board) -> _Titled:
    return board.title.casefold(), board.id


def _take_out(ordered: list[Any], item: object) -> None:
    del ordered[bisect_left(ordered, item)]

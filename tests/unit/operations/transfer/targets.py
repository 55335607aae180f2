"""Targets that fail at a chosen moment, or that are less able than a data folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankd import Batched, Boards, Page
from rankd.errors import LedgerUnavailable


class Interrupted:
    """A target that fails once it has counted some batches; `is_answered` says whether the last answer arrives."""

    def __init__(self, boards: Boards, batches: int, is_answered: bool = True) -> None:
        self._boards = boards
        self._batches = batches
        self._is_answered = is_answered
        self.keys: list[str | None] = []

    def definition(self, board: str) -> Mapping[str, object]:
        return self._boards.definition(board)

    def top(
        self,
        board: str,
        limit: int = 10,
        *,
        cursor: str | None = None,
        window: str | None = None,
        scope: str | None = None,
    ) -> Page:
        return self._boards.top(board, limit, cursor=cursor, window=window, scope=scope)

    def submit_many(
        self, board: str, rows: Any = None, *, key: str | None = None, imported: bool = False, **columns: Any
    ) -> Batched:
        if len(self.keys) == self._batches and self._is_answered:
            raise LedgerUnavailable("the disk is full; make room")
        answer = self._boards.submit_many(board, rows, key=key, imported=imported, **columns)
        self.keys.append(key)
        if len(self.keys) == self._batches and not self._is_answered:
            raise LedgerUnavailable("the line went dead; send it again")
        return answer


class WithoutHistory(Interrupted):
    """A target whose batches have no keyword for an administrator's import; it remembers what it was sent."""

    def __init__(self, boards: Boards) -> None:
        super().__init__(boards, batches=1_000_000)
        self.sent: list[dict[str, Any]] = []

    def submit_many(self, board: str, rows: Any = None, *, key: str | None = None, **columns: Any) -> Batched:
        self.sent.append({"rows": rows, **columns})
        return self._boards.submit_many(board, rows, key=key, **columns)

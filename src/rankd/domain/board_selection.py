"""Which boards a process keeps, by patterns of their ids.

>>> BoardSelection(["arcade*", "daily"]).keeps("arcade-eu"), BoardSelection([]).keeps("words")
(True, True)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate


class BoardSelection:
    """The boards whose ids match a pattern, in which `*` stands for any characters; without patterns, every board."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self.is_everything = not patterns
        self._matches = re.compile("|".join(map(translate, patterns))).match

    def keeps(self, board: str) -> bool:
        """Return whether a board is kept."""
        return self.is_everything or self._matches(board) is not None


EVERY_BOARD = BoardSelection()

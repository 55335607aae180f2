"""Who changed in each board's first window since standings were written, in spans of time.

    changes → `add` → a span → `cut`, once in a while → spans that somebody has written are let go

A projector that stands by notes as well: whoever ranks writes the standings, a second or so behind, and when it dies
its successor knows what is missing there.
"""

from __future__ import annotations

from collections import deque

from rankd.domain.instance import InstanceKey
from rankd.scaled.boards_in_redis import window_of
from rankd.scaled.recorded_follower import RecordedFollower
from rankd.scaled.recording import Changes, Touched
from rankd.scaled.vector import Vector, reaches

Noted = dict[str, Touched]  # by instance


class Notes:
    """What changed since `since`; used by the projector's thread."""

    def __init__(self, follower: RecordedFollower) -> None:
        """Begin where the follower is."""
        self._follower = follower
        self._spans: deque[tuple[Vector, Noted]] = deque()  # with the positions that each ends at
        self._current: Noted = {}
        self.since = follower.positions

    @property
    def rows(self) -> int:
        """How many players are noted, each once an instance and span."""
        spans = [noted for _, noted in self._spans] + [self._current]
        return sum(len(touched.players) for noted in spans for touched in noted.values())

    def add(self, changes: Changes) -> None:
        """Note what changed."""
        boards = self._follower.applier.state.boards
        for board_id, of_board in changes.boards.items():
            if board_id in boards:
                board, _ = self._follower.board(board_id)
                for touched in of_board.values():
                    if window_of(board, touched.key) in (board.first_window, None):
                        _merge(self._current, touched)
                    elif touched.cleared:  # it may have been the first window's, before the board was defined anew
                        self._current[touched.key.text] = _cleared(touched.key)
            else:
                for touched in of_board.values():
                    _merge(self._current, touched)

    def cut(self) -> None:
        """Begin another span, behind the positions of now."""
        if self._current:
            self._spans.append((self._follower.positions, self._current))
            self._current = {}

    def let_go(self, written: Vector) -> None:
        """Forget what somebody has written."""
        if reaches(written, self._follower.positions):
            self.forget()
            return
        while self._spans and reaches(written, self._spans[0][0]):
            self.since, _ = self._spans.popleft()

    def forget(self) -> None:
        """Note anew, from here on."""
        self._spans.clear()
        self._current = {}
        self.since = self._follower.positions

    def all(self) -> Noted:
        """Return all that is noted, as one."""
        spans = [noted for _, noted in self._spans] + ([self._current] if self._current else [])
        if len(spans) == 1:
            return spans[0]
        together: Noted = {}
        for noted in spans:
            for touched in noted.values():
                _merge(together, touched)
        return together


def _cleared(key: InstanceKey) -> Touched:
    cleared = Touched(key, None)
    cleared.cleared = True
    return cleared


def _merge(noted: Noted, touched: Touched) -> None:
    known = noted.get(touched.key.text)
    if known is None or touched.cleared:
        known = noted[touched.key.text] = Touched(touched.key, touched.rules)
        known.cleared = touched.cleared
    known.rules = touched.rules or known.rules
    known.players.update(touched.players)

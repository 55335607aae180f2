"""The players of each board's first window whose stored standings are out of date, in spans of ledger positions.

    changes → `add` → current span → `cut`, regularly → spans covered by stored standings are discarded

A standby projector tracks them as well: the leader writes the standings with a lag of about a second, and when it dies
the standby knows what they lack.
"""

from __future__ import annotations

from collections import deque

from rankd.domain.instance import InstanceKey
from rankd.ledger.vector import Vector, reaches
from rankd.redis.write.boards import window_of
from rankd.redis.write.recorded_follower import RecordedFollower
from rankd.redis.write.recording import DirtyInstance, RecordedChanges

PendingSpan = dict[str, DirtyInstance]  # by instance


class PendingStandings:
    """The changes since the positions `since`; used by the projector's thread."""

    def __init__(self, follower: RecordedFollower) -> None:
        """Begin at the follower's positions."""
        self._follower = follower
        self._spans: deque[tuple[Vector, PendingSpan]] = deque()  # each with its end positions
        self._current: PendingSpan = {}
        self.since = follower.positions

    @property
    def rows(self) -> int:
        """The number of pending players, each once per instance and span."""
        spans = [span for _, span in self._spans] + [self._current]
        return sum(len(dirty.players) for span in spans for dirty in span.values())

    def add(self, changes: RecordedChanges) -> None:
        """Add changes to the current span."""
        boards = self._follower.applier.state.boards
        for board_id, of_board in changes.boards.items():
            if board_id in boards:
                board, _ = self._follower.board(board_id)
                for dirty in of_board.values():
                    if window_of(board, dirty.key) in (board.first_window, None):
                        _merge(self._current, dirty)
                    elif dirty.cleared:  # before the board was redefined, this may have been its first window
                        self._current[dirty.key.text] = _cleared(dirty.key)
            else:
                for dirty in of_board.values():
                    _merge(self._current, dirty)

    def cut(self) -> None:
        """End the current span at the follower's positions and begin another."""
        if self._current:
            self._spans.append((self._follower.positions, self._current))
            self._current = {}

    def discard(self, written: Vector) -> None:
        """Discard the spans that standings stored at these positions cover."""
        if reaches(written, self._follower.positions):
            self.restart()
            return
        while self._spans and reaches(written, self._spans[0][0]):
            self.since, _ = self._spans.popleft()

    def restart(self) -> None:
        """Discard everything and begin at the follower's positions."""
        self._spans.clear()
        self._current = {}
        self.since = self._follower.positions

    def all(self) -> PendingSpan:
        """Return all spans merged into one."""
        spans = [span for _, span in self._spans] + ([self._current] if self._current else [])
        if len(spans) == 1:
            return spans[0]
        merged: PendingSpan = {}
        for span in spans:
            for dirty in span.values():
                _merge(merged, dirty)
        return merged


def _cleared(key: InstanceKey) -> DirtyInstance:
    cleared = DirtyInstance(key, None)
    cleared.cleared = True
    return cleared


def _merge(span: PendingSpan, dirty: DirtyInstance) -> None:
    merged = span.get(dirty.key.text)
    if merged is None or dirty.cleared:
        merged = span[dirty.key.text] = DirtyInstance(dirty.key, dirty.rules)
        merged.cleared = dirty.cleared
    merged.rules = dirty.rules or merged.rules
    merged.players.update(dirty.players)

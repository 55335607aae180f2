"""Backfill of boards that lag in Redis: it restarted from an older log, or promoted a replica that lagged.

    Ledger.read, once for all lagging boards → the players of the missing events, by instance → sent with the next write

The ledger says which players changed; their current rows are in the engine. Where it does not say, the board is
reloaded.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import NamedTuple

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.scope import GLOBAL, scopes_of
from rankd.ledger.event import CONTROLS, NO_DETAIL, AcceptanceContext, Context, EventKind, EventRun
from rankd.ledger.port import Ledger
from rankd.ledger.vector import Vector
from rankd.projection.catalogue import Catalogue
from rankd.projection.state import BoardState
from rankd.redis.write.recording import DirtyInstance

BACKFILL_EVENTS_MAX = 500_000  # boards that lag further are reloaded
READ_EVENTS = 20_000
_QUARTER_S = 900  # windows begin and end at quarter hours, and at the edges of periods
_log = logging.getLogger("rankd")


class LaggingBoard(NamedTuple):
    """A board that lacks the changes of the events after `after` up to `upto`."""

    board: Board
    live: BoardState
    after: Vector
    upto: Vector
    dirty: dict[str, DirtyInstance]  # rows to send, by instance

    def find(self, window: str, scope: str) -> DirtyInstance:
        """Return the changes of an instance."""
        key = InstanceKey(self.board.id, window, scope)
        dirty = self.dirty.get(key.text)
        if dirty is None:
            rules = self.board.rules_for(self.board.window_of(window))
            dirty = self.dirty[key.text] = DirtyInstance(key, rules)
        return dirty


class Backfill:
    """Finds the rows to send again; used by the projector's thread."""

    def __init__(self, ledger: Ledger, catalogue: Catalogue) -> None:
        """`catalogue` has the definitions that events were accepted under."""
        self._ledger = ledger
        self._catalogue = catalogue

    def mark(self, lagging: Iterable[LaggingBoard]) -> set[str]:
        """Mark the players of the missing events dirty, in the instances these count in.

        Return the boards to reload instead: boards of teams, boards with a control event in between, and boards that
        lag too far; of a log all, whose events may count otherwise than they were accepted.
        """
        left = {lag.board.id: lag for lag in lagging}
        if not self._ledger.capabilities.appends_conditionally:
            return set(left)
        unknown = {board_id for board_id, lag in left.items() if lag.board.team is not None}
        for board_id in unknown:
            del left[board_id]
        while left and sum(_ends(left.values())) - sum(_starts(left.values())) > BACKFILL_EVENTS_MAX:
            furthest = min(left, key=lambda board_id: sum(left[board_id].after))
            unknown.add(furthest)
            del left[furthest]
        if left:
            unknown |= self._read(left)
        return unknown

    def _read(self, left: dict[str, LaggingBoard]) -> set[str]:
        unknown: set[str] = set()
        read, ends = list(_starts(left.values())), _ends(left.values())
        while left and (wanting := [number for number, end in enumerate(ends) if read[number] < end]):
            skipped = [number for number in range(len(ends)) if number not in wanting]
            parts = self._ledger.read(read, READ_EVENTS, skipped)
            if not parts:
                break
            for part in parts:
                event_run = part.event_run
                last = read[part.partition] = event_run.first + len(event_run) - 1
                context = self._ledger.context(event_run.context)
                for board_id in _reached(context):
                    lag = left.get(board_id)
                    if lag is None or last <= lag.after[part.partition]:
                        continue
                    # The engine no longer knows the scopes of a removed player.
                    if context.kind in CONTROLS or (context.kind is EventKind.REMOVE and lag.board.scopes):
                        unknown.add(board_id)
                        del left[board_id]
                    else:
                        self._mark_run(lag, context, event_run)
        for board_id, lag in left.items():
            rows = sum(len(dirty.players) for dirty in lag.dirty.values())
            _log.info("board %s lagged in Redis: %d entries are sent again", board_id, rows)
        return unknown

    def _mark_run(self, lag: LaggingBoard, context: Context, event_run: EventRun) -> None:
        if context.kind is EventKind.REMOVE:
            gone = dict.fromkeys(event_run.players)
            for window in lag.live.windows:
                dirty = lag.find(window, GLOBAL)
                dirty.players.update(gone)
                dirty.removed.update(gone)
            return
        accepted = context.boards[lag.board.id]
        board = self._catalogue.board(lag.board.id, accepted.version)
        windows = _Windows(board, accepted)
        details = event_run.detail or [None] * len(event_run)
        for player, at, detail in zip(event_run.players, event_run.at, details, strict=True):
            attributes = (detail or NO_DETAIL).attributes_for(board.id)
            scopes = scopes_of(attributes, board.scopes, board.with_global)
            for window in windows.at(at):
                if window in lag.live.windows:
                    for scope in scopes:
                        lag.find(window, scope).players[player] = None


class _Windows:
    """The windows that events of one context count in, by time; cached by the quarter hour."""

    def __init__(self, board: Board, accepted: AcceptanceContext) -> None:
        self._board = board
        self._accepted = accepted
        self._edges = [edge for period in board.periods for edge in (period.start, period.end)]
        self._is_even = accepted.utc_offset_s % _QUARTER_S == 0
        self._cached: dict[int, list[str]] = {}

    def at(self, at: int) -> list[str]:
        quarter = at // (_QUARTER_S * 1_000)
        windows = self._cached.get(quarter)
        if windows is None:
            windows = [window for _, window in self._board.instances_of(self._accepted.reading(at))]
            if self._is_even and not any(edge // (_QUARTER_S * 1_000) == quarter for edge in self._edges):
                self._cached[quarter] = windows
        return windows


def _reached(context: Context) -> Collection[str]:
    """Return the boards that events of a context change; closing a window changes no entries."""
    if context.kind is EventKind.CLOSE:
        return ()
    return (context.board,) if context.kind in CONTROLS or context.kind is EventKind.REMOVE else context.boards


def _starts(lagging: Iterable[LaggingBoard]) -> Vector:
    return tuple(map(min, zip(*(lag.after for lag in lagging), strict=True)))


def _ends(lagging: Iterable[LaggingBoard]) -> Vector:
    return tuple(map(max, zip(*(lag.upto for lag in lagging), strict=True)))

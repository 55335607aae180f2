"""What Redis has missed: it came back with an older log, or a replica was promoted that lacked something.

    Ledger.read, once for all boards behind → who changed in which instance → sent with the next write

What is kept of them now is in the engine; the ledger only says who. Where it does not say, a board is loaded anew.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import NamedTuple

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.scope import scopes_of
from rankd.ledger.event import CONTROLS, NO_DETAIL, Accepted, Context, Kind, Stretch
from rankd.ledger.port import Ledger
from rankd.projection.catalogue import Catalogue
from rankd.projection.state import BoardState
from rankd.scaled.boards_in_redis import instances_of
from rankd.scaled.recording import Touched
from rankd.scaled.vector import Vector

MISSED_EVENTS_MAX = 500_000  # read at most; boards that are further behind are loaded anew
READ_EVENTS = 20_000
_QUARTER_S = 900  # windows begin and end at quarter hours, and at the edges of periods
_log = logging.getLogger("rankd")


class Behind(NamedTuple):
    """A board that lacks what events after one position, up to another, have changed."""

    board: Board
    live: BoardState
    after: Vector
    upto: Vector
    touched: dict[str, Touched]  # who is sent, by instance

    def find(self, window: str, scope: str) -> Touched:
        """Return what changed in an instance."""
        key = InstanceKey(self.board.id, window, scope)
        found = self.touched.get(key.text)
        if found is None:
            rules = self.board.rules_for(self.board.window_of(window))
            found = self.touched[key.text] = Touched(key, rules)
        return found


class Missed:
    """Finds out who is to be sent again; used by the projector's thread."""

    def __init__(self, ledger: Ledger, catalogue: Catalogue) -> None:
        """`catalogue` has the definitions that events were accepted under."""
        self._ledger = ledger
        self._catalogue = catalogue

    def touch(self, behind: Iterable[Behind]) -> set[str]:
        """Have everybody sent whom the missed events were about, in the instances they reach.

        Return the boards of which that is not known, to be loaded anew: those that teams stand on, that were changed as
        a whole meanwhile, or that are too far behind.
        """
        left = {one.board.id: one for one in behind}
        unknown = {board_id for board_id, one in left.items() if one.board.team is not None}
        for board_id in unknown:
            del left[board_id]
        while left and sum(_ends(left.values())) - sum(_starts(left.values())) > MISSED_EVENTS_MAX:
            furthest = min(left, key=lambda board_id: sum(left[board_id].after))
            unknown.add(furthest)
            del left[furthest]
        if left:
            unknown |= self._read(left)
        return unknown

    def _read(self, left: dict[str, Behind]) -> set[str]:
        unknown: set[str] = set()
        read, ends = list(_starts(left.values())), _ends(left.values())
        while left and (wanting := [number for number, end in enumerate(ends) if read[number] < end]):
            skipped = [number for number in range(len(ends)) if number not in wanting]
            parts = self._ledger.read(read, READ_EVENTS, skipped)
            if not parts:
                break
            for part in parts:
                stretch = part.stretch
                last = read[part.partition] = stretch.first + len(stretch) - 1
                context = self._ledger.context(stretch.context)
                for board_id in _reached(context):
                    one = left.get(board_id)
                    if one is None or last <= one.after[part.partition]:
                        continue
                    if context.kind in CONTROLS:
                        unknown.add(board_id)
                        del left[board_id]
                    else:
                        self._touch(one, context, stretch)
        for board_id, one in left.items():
            rows = sum(len(touched.players) for touched in one.touched.values())
            _log.info("board %s was behind in Redis: %d entries are sent again", board_id, rows)
        return unknown

    def _touch(self, behind: Behind, context: Context, stretch: Stretch) -> None:
        if context.kind is Kind.REMOVE:
            gone = dict.fromkeys(stretch.players)
            for key, _ in instances_of(behind.board, behind.live):
                touched = behind.find(key.window, key.scope)
                touched.players.update(gone)
                touched.removed.update(gone)
            return
        accepted = context.boards[behind.board.id]
        board = self._catalogue.board(behind.board.id, accepted.version)
        names = _Windows(board, accepted)
        details = stretch.detail or [None] * len(stretch)
        for player, at, detail in zip(stretch.players, stretch.at, details, strict=True):
            attributes = (detail or NO_DETAIL).attributes_for(board.id)
            scopes = scopes_of(attributes, board.scopes, board.with_global)
            for window in names.at(at):
                stored = behind.live.windows.get(window, ())
                for scope in scopes:
                    if scope in stored:
                        behind.find(window, scope).players[player] = None


class _Windows:
    """Which window instances events of one context count in, by their time; remembered by the quarter hour."""

    def __init__(self, board: Board, accepted: Accepted) -> None:
        self._board = board
        self._accepted = accepted
        self._edges = [edge for period in board.periods for edge in (period.start, period.end)]
        self._is_even = accepted.utc_offset_s % _QUARTER_S == 0
        self._known: dict[int, list[str]] = {}

    def at(self, at: int) -> list[str]:
        quarter = at // (_QUARTER_S * 1_000)
        found = self._known.get(quarter)
        if found is None:
            found = [instance for _, instance in self._board.instances_of(self._accepted.reading(at))]
            if self._is_even and not any(edge // (_QUARTER_S * 1_000) == quarter for edge in self._edges):
                self._known[quarter] = found
        return found


def _reached(context: Context) -> Collection[str]:
    """Return the boards that events of a context change; nothing leaves a board when a window is closed."""
    if context.kind is Kind.CLOSE:
        return ()
    return (context.board,) if context.kind in CONTROLS or context.kind is Kind.REMOVE else context.boards


def _starts(behind: Iterable[Behind]) -> Vector:
    return tuple(map(min, zip(*(one.after for one in behind), strict=True)))


def _ends(behind: Iterable[Behind]) -> Vector:
    return tuple(map(max, zip(*(one.upto for one in behind), strict=True)))

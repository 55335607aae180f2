"""Where an event counts: the boards it reaches, and the window instances of each, from what was stored with it.

A placement holds for a stretch of time: names of windows change at quarter hours at most often, and at the edges of
periods. So it is worked out once and used for all events in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import gcd

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Rules
from rankd.domain.rollup import RollUp
from rankd.domain.scope import GLOBAL
from rankd.domain.window import Window
from rankd.ledger.event import Context
from rankd.projection.catalogue import Catalogue
from rankd.projection.state import BoardState, State

_QUARTER_S = 900
TEAM_SEPARATOR = "\x1f"  # between a scope and a team: no scope and no id holds a control character


class Target:
    """One window instance that an event counts in, with the instances of its scopes as they are asked for."""

    __slots__ = ("_keys", "_scopes", "board", "instance", "is_roll_up", "player_rules", "rules", "window")

    def __init__(self, board: Board, window: Window, instance: str, scopes: set[str]) -> None:
        """`scopes` is the board's list of what is in the store: each scope asked for is added."""
        self.board = board
        self.window = window
        self.instance = instance
        self.is_roll_up = isinstance(board.keep[window.name], RollUp)
        self.rules = board.rules_for(window)  # of the instance that is read
        self.player_rules = board.contribution_rules_for(window)  # the same unless teams stand in it
        self._scopes = scopes
        self._keys: dict[str, InstanceKey] = {}

    def key(self, scope: str) -> InstanceKey:
        """Return the instance of a scope."""
        key = self._keys.get(scope)
        if key is None:
            key = self._keys[scope] = InstanceKey(self.board.id, self.instance, scope)
            self._scopes.add(scope)
        return key


class Reached:
    """One board that an event reaches: the windows it counts in there, parts before the roll-ups made of them."""

    def __init__(self, board: Board, state: BoardState, found: list[tuple[Window, str]]) -> None:
        """Windows that are final take nothing any more; `state.windows` has those that are found."""
        self.board = board
        self.state = state
        self.targets = [
            Target(board, window, instance, state.windows[instance])
            for window, instance in found
            if instance in state.windows and instance not in state.closed
        ]
        self.kept = [target for target in self.targets if not target.is_roll_up]
        self.roll_ups: dict[str, list[Target]] = {}  # by the name of the part's window
        for target in self.targets:
            keep = board.keep[target.window.name]
            if isinstance(keep, RollUp):
                self.roll_ups.setdefault(board.all_windows[keep.part].name, []).append(target)

    @cached_property
    def is_plain(self) -> bool:
        """Tell whether every event has the same rows here: as many as windows, by score and time alone."""
        board = self.board
        return not board.scopes and board.team is None and board.decay is None and not self.roll_ups

    @cached_property
    def plain_rows(self) -> list[tuple[InstanceKey, Rules]]:
        """The instances of a plain board."""
        return [(target.key(GLOBAL), target.rules) for target in self.targets]


class Placement:
    """The boards reached by the events of one context in a stretch of time."""

    def __init__(self, context: Context, at: int, catalogue: Catalogue, state: State) -> None:
        """Work out where an event at this instant counts."""
        boards = [
            (catalogue.board(board_id, accepted.version), accepted) for board_id, accepted in context.boards.items()
        ]
        step_ms = 1_000 * gcd(_QUARTER_S, *(accepted.utc_offset_s for _, accepted in boards))
        self.valid_from = at - at % step_ms
        self.valid_until = self.valid_from + step_ms
        self.board_id = context.board
        self.reached: list[Reached] = []
        for board, accepted in boards:
            for edge in (edge for period in board.periods for edge in (period.start, period.end)):
                if self.valid_from < edge <= at:
                    self.valid_from = edge
                elif at < edge < self.valid_until:
                    self.valid_until = edge
            live = state.boards.get(board.id)
            if live is not None:
                found = board.instances_of(accepted.reading(at))
                for _, instance in found:
                    if instance not in live.windows and instance not in live.retired:
                        live.windows[instance] = set()
                        state.note_change(board.id)
                self.reached.append(Reached(board, live, found))

    @cached_property
    def plain_instances(self) -> tuple[tuple[InstanceKey, Rules], ...]:
        """The instances of a placement on plain boards, in the order of its rows."""
        return tuple(row for reached in self.reached for row in reached.plain_rows)

    @cached_property
    def has_first_window(self) -> bool:
        """Whether the first of these is the board's first window, of which the answer to a score speaks."""
        first = self.reached[0] if self.reached else None
        if first is None or first.board.id != self.board_id or not first.targets:
            return False
        return first.targets[0].window.name == first.board.first_window.name

    @cached_property
    def _counts(self) -> list[tuple[Board, int]]:
        return [(reached.board, len(reached.plain_rows)) for reached in self.reached]

    @cached_property
    def _is_plain(self) -> bool:
        return all(reached.is_plain for reached in self.reached)

    @cached_property
    def _fed(self) -> list[Board]:
        return [reached.board for reached in self.reached if reached.board.id != self.board_id]

    def is_plain(self, lowest: int, highest: int) -> bool:
        """Tell whether all events with scores from lowest to highest, and nothing to say beside, have the same rows."""
        if not self._is_plain:
            return False
        for reached in self.reached:
            if reached.state.metadata:
                return False
        # The board itself has refused what is outside its bounds; a board that is fed leaves such events out.
        return not self._fed or all(board.score_min <= lowest and highest <= board.score_max for board in self._fed)

    def ties(self, at: int, tiebreak: int) -> list[int]:
        """Return the tie field of an event in each of the plain instances."""
        counts = self._counts
        if len(counts) == 1:
            board, count = counts[0]
            return [board.tie_field(at, tiebreak)] * count
        return [tie for board, count in counts for tie in [board.tie_field(at, tiebreak)] * count]

    def holds(self, at: int) -> bool:
        """Tell whether events at this instant count in the same windows."""
        return self.valid_from <= at < self.valid_until


class Placements:
    """The placements in use; forgotten whenever a definition changes or a window is closed."""

    _CACHED_MAX = 1_000

    def __init__(self, catalogue: Catalogue, state: State) -> None:
        """Begin without any."""
        self._catalogue = catalogue
        self._state = state
        self._known: dict[tuple[int, int], Placement] = {}
        self._latest: dict[int, Placement] = {}

    def at(self, number: int, context: Context, at: int) -> Placement:
        """Return where the events of a context count at an instant."""
        latest = self._latest.get(number)
        if latest is not None and latest.holds(at):
            return latest
        found = self._known.get((number, at // (_QUARTER_S * 1_000)))
        if found is None or not found.holds(at):
            if len(self._known) >= self._CACHED_MAX:
                self._known.clear()
            found = Placement(context, at, self._catalogue, self._state)
            self._known[number, at // (_QUARTER_S * 1_000)] = found
        self._latest[number] = found
        return found

    def forget(self) -> None:
        """Work them out anew."""
        self._known.clear()
        self._latest.clear()


def team_scope(scope: str, team: str) -> str:
    """Name the hidden instance that holds what the players of a team contribute within a scope."""
    return f"{scope}{TEAM_SEPARATOR}{team}"


def is_team_scope(scope: str) -> bool:
    """Tell whether a scope holds the contributions to one team."""
    return TEAM_SEPARATOR in scope


def visible_scopes(scopes: Mapping[str, object] | set[str]) -> list[str]:
    """Return the scopes that can be read, in order."""
    return sorted(scope for scope in scopes if not is_team_scope(scope))

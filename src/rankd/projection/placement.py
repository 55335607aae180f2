"""Where an event counts: the boards it reaches and their window instances, from the context stored with it.

A placement is valid for a time span, until an hour or day of the board's clock or a period ends and a window changes
its name. It is computed once for all events in that span, and so are the rows of events with the same attributes
(`RowPlan`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from typing import NamedTuple

from rankd.domain.board import Board
from rankd.domain.board_selection import EVERY_BOARD, BoardSelection
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Rules
from rankd.domain.rollup import RollUp
from rankd.domain.window import Window, WindowKind
from rankd.ledger.event import Context, Detail
from rankd.projection.catalogue import Catalogue
from rankd.projection.port import InstanceTable
from rankd.projection.state import BoardState, State, note_scope_value

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_ANY_TIME = 1 << 62  # ms; later than every event
_BY_DATE = (WindowKind.DAILY, WindowKind.WEEKLY, WindowKind.MONTHLY, WindowKind.YEARLY)
_KEYS_MAX = 256  # cached for one window instance; an attribute may have millions of values
_PLANS_MAX = 10_000  # of one placement
_TARGETS_MAX = 500_000  # of all placements in use: some 400 bytes each
_TABLE_SMALL = 1_000  # instances; a table this small is rebuilt whenever a target is added
_TABLE_MAX = 50_000
TEAM_SEPARATOR = "\x1f"  # between a scope and a team: no scope and no id holds a control character


class WindowTarget:
    """One window instance that an event counts in, with a cache of its scopes' instance keys."""

    __slots__ = ("_keys", "board", "instance", "is_roll_up", "player_rules", "rules", "window")

    def __init__(self, board: Board, window: Window, instance: str) -> None:
        self.board = board
        self.window = window
        self.instance = instance
        self.is_roll_up = isinstance(board.keep[window.name], RollUp)
        self.rules = board.rules_for(window)  # of the instance that readers see
        self.player_rules = board.contribution_rules_for(window)  # the same unless the entries are teams
        self._keys: dict[str, InstanceKey] = {}

    def key(self, scope: str) -> InstanceKey:
        """Return the instance of a scope."""
        key = self._keys.get(scope)
        if key is None:
            if len(self._keys) >= _KEYS_MAX:
                self._keys.clear()
            key = self._keys[scope] = InstanceKey(self.board.id, self.instance, scope)
        return key


class ReachedBoard:
    """One board that an event reaches, with the windows it counts in, parts before their roll-ups."""

    def __init__(
        self, board: Board, state: BoardState, instances: list[tuple[Window, str]], *, is_never_negative: bool = False
    ) -> None:
        """Closed windows take no more scores; `state.windows` must already hold the window instances."""
        self.board = board
        self.state = state
        self.is_never_negative = is_never_negative  # no version of the board has taken a score below 0
        self.targets = [
            WindowTarget(board, window, instance)
            for window, instance in instances
            if instance in state.windows and instance not in state.closed
        ]
        self.kept = [target for target in self.targets if not target.is_roll_up]
        self.roll_ups: dict[str, list[WindowTarget]] = {}  # by the name of the part's window
        for target in self.targets:
            keep = board.keep[target.window.name]
            if isinstance(keep, RollUp):
                self.roll_ups.setdefault(board.all_windows[keep.part].name, []).append(target)


class RowTarget:
    """One instance that gets a row: of a window, a scope and, on a team board, a team."""

    __slots__ = ("board", "key", "reached", "rules", "scope", "target", "team")

    def __init__(self, board: int, reached: ReachedBoard, target: WindowTarget, scope: str, team: str | None) -> None:
        """`board` is the board's index among the reached boards."""
        self.board = board
        self.reached = reached
        self.target = target
        self.scope = scope
        self.team = team
        self.key = target.key(scope if team is None else team_scope(scope, team))
        self.rules = target.player_rules


class RowPlan:
    """The rows of every event with the same attributes, on all boards it reaches."""

    def __init__(self, reached: list[ReachedBoard], detail: Detail) -> None:
        """Only the attributes of the detail matter."""
        self.targets: list[RowTarget] = []
        self._values: list[tuple[ReachedBoard, str, str]] = []  # board, scope attribute, value
        self._is_recorded = False
        for board, reached_board in enumerate(reached):
            attributes = detail.attributes_for(reached_board.board.id)
            team = None
            if reached_board.board.team is not None:
                team = attributes.get(reached_board.board.team.attribute)
                if team is None:
                    continue
            self._values += [
                (reached_board, name, attributes[name]) for name in reached_board.board.scopes if name in attributes
            ]
            self.targets += [
                RowTarget(board, reached_board, target, scope, team)
                for scope in reached_board.board.scopes_of(attributes)
                for target in reached_board.kept
            ]
        self.boards = array("I", [target.board for target in self.targets])
        self.numbers = array("I")  # of its targets in the placement's list

    @cached_property
    def table(self) -> InstanceTable:
        """The instances of the targets, in their order."""
        return tuple((target.key, target.rules) for target in self.targets)

    @cached_property
    def _board_counts(self) -> list[tuple[Board, int]]:
        groups = (list(group) for _, group in groupby(self.targets, key=lambda target: target.board))
        return [(group[0].reached.board, len(group)) for group in groups]

    def ties(self, at: int, tiebreak: int) -> list[int]:
        """Return the tie field of an event in each of the targets."""
        counts = self._board_counts
        if len(counts) == 1:
            board, count = counts[0]
            return [board.tie_field(at, tiebreak)] * count
        return [tie for board, count in counts for tie in [board.tie_field(at, tiebreak)] * count]

    def record_all(self) -> None:
        """Record the scope values of all targets."""
        if not self._is_recorded:
            self.record(bytes([1]) * len(self.targets))

    def record(self, is_used: bytes) -> None:
        """Record the scope values of the targets with a 1: those that have rows."""
        if self._is_recorded:
            return
        used = [target for target, is_one in zip(self.targets, is_used, strict=True) if is_one]
        self._is_recorded = len(used) == len(self.targets)
        boards = {target.board for target in used}
        reached = [target.reached for target in self.targets if target.board in boards]
        for reached_board, name, value in self._values:
            if reached_board in reached:
                note_scope_value(reached_board.state, name, value)


class PlanColumns(NamedTuple):
    """By target of the previous step: where its totals begin among `wholes`, and their subject."""

    offsets: array[int]
    wholes: array[int]  # numbers of totals
    subjects: array[int] | None


class StepPlan:
    """The totals of one step, to which the changes of other targets are added."""

    def __init__(self, keep: Keep, *, as_kept: bool) -> None:
        """`keep` is the keep rule of the totals; with `as_kept` the kept score is sent, not its change."""
        self.keep = keep
        self.as_kept = as_kept
        self.targets: list[RowTarget] = []
        self.subjects: array[int] | None = None  # by target of the previous step, an index into the names
        self.offsets = array("I", [0])  # by target of the previous step, where its totals begin
        self.wholes = array("I")
        self._numbers: dict[str, int] = {}
        self._name_numbers: dict[str, int] = {}

    def add(self, wholes: Iterable[RowTarget], subject: str | None = None) -> None:
        """Add the totals of the next target."""
        for whole in wholes:
            number = self._numbers.setdefault(whole.key.text, len(self.targets))
            if number == len(self.targets):
                self.targets.append(whole)
            self.wholes.append(number)
        self.offsets.append(len(self.wholes))
        if self.subjects is not None:
            number = 0 if subject is None else self._name_numbers.setdefault(subject, len(self._name_numbers))
            self.subjects.append(number)

    @property
    def columns(self) -> PlanColumns:
        """The plan as columns."""
        return PlanColumns(self.offsets, self.wholes, self.subjects)

    @cached_property
    def names(self) -> list[str]:
        """The subjects, where they are not the players themselves."""
        return list(self._name_numbers)

    @cached_property
    def table(self) -> InstanceTable:
        """The instances of the totals."""
        return tuple((target.key, _with_keep(target.rules, self.keep)) for target in self.targets)

    def without(self, numbers: Collection[int]) -> PlanColumns:
        """Return the columns without some totals."""
        offsets, wholes = array("I", [0]), array("I")
        for start, end in pairwise(self.offsets):
            wholes.extend(number for number in self.wholes[start:end] if number not in numbers)
            offsets.append(len(wholes))
        return PlanColumns(offsets, wholes, self.subjects)


def _with_keep(rules: Rules, keep: Keep) -> Rules:
    return Rules(keep, rules.order, rules.ties, rules.score_min, rules.score_max)


class TargetCount:
    """The number of targets that all placements in use hold."""

    def __init__(self) -> None:
        self.targets = 0


class Placement:
    """The boards that the events of one context reach during a time span."""

    def __init__(
        self,
        context: Context,
        at: int,
        catalogue: Catalogue,
        state: State,
        count: TargetCount | None = None,
        *,
        kept: BoardSelection = EVERY_BOARD,
    ) -> None:
        """Compute where an event at this instant counts, of the boards kept; all placements share `count`."""
        self._count = count or TargetCount()
        boards = [
            (catalogue.board(board_id, accepted.version), accepted) for board_id, accepted in context.boards.items()
        ]
        self.valid_from, self.valid_until = 0, _ANY_TIME
        for board, accepted in boards:
            self._hold_within(board, accepted.utc_offset_s * 1_000, at)
        self.board_id = context.board
        self.reached: list[ReachedBoard] = []
        for board, accepted in boards:
            live = state.boards.get(board.id)
            if live is not None and kept.keeps(board.id):
                instances = board.instances_of(accepted.reading(at))
                for _, instance in instances:
                    if instance not in live.windows and instance not in live.retired:
                        live.windows.add(instance)
                        state.note_change(board.id)
                versions = (catalogue.board(board.id, version) for version in range(live.born, live.version + 1))
                never = all(version.score_min >= 0 for version in versions)
                self.reached.append(ReachedBoard(board, live, instances, is_never_negative=never))

        self._plans: dict[object, RowPlan] = {}
        self.targets: list[RowTarget] = []  # of all plans, each once
        self._numbers: dict[str, int] = {}
        self._table: InstanceTable = ()
        self._steps: dict[Callable[[Sequence[RowTarget]], StepPlan], tuple[int, StepPlan]] = {}

    def _hold_within(self, board: Board, offset_ms: int, at: int) -> None:
        """Narrow the time span to a board's windows, by the clock stored with the events."""
        kinds = {window.kind for window in board.all_windows.values()}
        step_ms = _HOUR_MS if WindowKind.HOURLY in kinds else _DAY_MS if kinds.intersection(_BY_DATE) else None
        start, end = 0, _ANY_TIME
        if step_ms is not None:
            start = (at + offset_ms) // step_ms * step_ms - offset_ms
            end = start + step_ms
        for edge in (edge for period in board.periods for edge in (period.start, period.end)):
            if start < edge <= at:
                start = edge
            elif at < edge < end:
                end = edge
        self.valid_from, self.valid_until = max(self.valid_from, start), min(self.valid_until, end)

    def make_room(self, plans: int) -> None:
        """Forget all plans if `plans` more would be too many. Only before a batch: its plans share target numbers."""
        if len(self._plans) + plans > _PLANS_MAX:
            self._plans, self.targets, self._numbers, self._steps, self._table = {}, [], {}, {}, ()

    def plan(self, detail: Detail) -> RowPlan:
        """Return the rows of events with these attributes."""
        key = _attributes_key(detail)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = RowPlan(self.reached, detail)
            self._count.targets += len(plan.targets)
            for target in plan.targets:
                number = self._numbers.setdefault(target.key.text, len(self.targets))
                if number == len(self.targets):
                    self.targets.append(target)
                plan.numbers.append(number)
        return plan

    def table_for(self, entries: int) -> InstanceTable | None:
        """Return a table of all targets for a batch with `entries` entries; None where the batch needs its own.

        It stays the same object until a target is added, so the store checks it once.
        """
        if len(self._table) != len(self.targets):
            if len(self.targets) > _TABLE_MAX or len(self.targets) > _TABLE_SMALL + 2 * entries:
                return None
            self._table = tuple((target.key, target.rules) for target in self.targets)
        return self._table

    def step_plan(self, make: Callable[[Sequence[RowTarget]], StepPlan]) -> StepPlan:
        """Return the plan of a later step for all targets, cached until a target is added."""
        count, plan = self._steps.get(make, (-1, None))
        if plan is None or count != len(self.targets):
            plan = make(self.targets)
            self._steps[make] = len(self.targets), plan
        return plan

    @cached_property
    def has_first_window(self) -> bool:
        """Whether the first target is in the board's first window, whose change answers a submission."""
        first = self.reached[0] if self.reached else None
        if first is None or first.board.id != self.board_id or not first.targets:
            return False
        return first.targets[0].window.name == first.board.first_window.name

    @cached_property
    def rows_max(self) -> int:
        """The most rows of one event in the first step."""
        return max(1, sum(len(reached.targets) * (1 + len(reached.board.scopes)) for reached in self.reached))

    def is_simple(self, score: int) -> bool:
        """Return whether a score is in bounds everywhere and needs no roll-up, team, decay or metadata."""
        lowest, highest = self._bounds
        if not self._has_one_step or not lowest <= score <= highest:
            return False
        return not any(reached.state.metadata for reached in self.reached)

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        """The scores that all reached boards take."""
        boards = [reached.board for reached in self.reached]
        return max(board.score_min for board in boards), min(board.score_max for board in boards)

    @cached_property
    def _has_one_step(self) -> bool:
        return not any(reached.roll_ups or reached.board.team or reached.board.decay for reached in self.reached)

    def holds(self, at: int) -> bool:
        """Return whether events at this instant count in the same windows."""
        return self.valid_from <= at < self.valid_until


def _attributes_key(detail: Detail) -> object:
    if not detail.left_out:
        return tuple(detail.attributes.items())
    left_out = tuple((board, *names) for board, names in detail.left_out.items())
    return tuple(detail.attributes.items()), left_out


class Placements:
    """A cache of placements; cleared when a definition changes or a window closes."""

    _CACHED_MAX = 1_000

    def __init__(self, catalogue: Catalogue, state: State, kept: BoardSelection = EVERY_BOARD) -> None:
        self._catalogue = catalogue
        self._state = state
        self._kept = kept
        self._known: dict[
            int, tuple[list[int], list[Placement]]
        ] = {}  # by context: starts and placements, in order of time
        self._count = 0
        self._target_count = TargetCount()
        self.latest: dict[int, Placement] = {}  # by context number

    def at(self, number: int, context: Context, at: int) -> Placement:
        """Return the placement of a context's events at an instant."""
        if self._target_count.targets > _TARGETS_MAX:
            self.forget()
        latest = self.latest.get(number)
        if latest is not None and latest.holds(at):
            return latest
        starts, known = self._known.get(number, ([], []))
        index = bisect_right(starts, at) - 1
        if index < 0 or not known[index].holds(at):
            if self._count >= self._CACHED_MAX:
                self.forget()
            placement = Placement(context, at, self._catalogue, self._state, self._target_count, kept=self._kept)
            starts, known = self._known.setdefault(number, ([], []))
            index = bisect_left(starts, placement.valid_from)
            starts.insert(index, placement.valid_from)
            known.insert(index, placement)
            self._count += 1
        self.latest[number] = known[index]
        return known[index]

    def forget(self) -> None:
        """Clear the cache."""
        self._known.clear()
        self.latest.clear()
        self._count = 0
        self._target_count = TargetCount()


def team_scope(scope: str, team: str) -> str:
    """Return the hidden scope that holds the contributions to a team within a scope."""
    return f"{scope}{TEAM_SEPARATOR}{team}"


def is_team_scope(scope: str) -> bool:
    """Return whether a scope holds the contributions to one team."""
    return TEAM_SEPARATOR in scope


def visible_scopes(scopes: Iterable[str]) -> list[str]:
    """Return the scopes that are not hidden, sorted."""
    return sorted(scope for scope in scopes if not is_team_scope(scope))

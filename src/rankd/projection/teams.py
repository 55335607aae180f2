"""The rows of teams, from the changes of their players' rows, many events at once.

sum      the store adds the changes (`scoring.py`)
average  from the sum and number of the players' scores, held beside the store
best     by `Keep.BEST` where no player's score can get worse; otherwise from the changed scores of a batch and the
         best of the players whose score it did not change
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence

from rankd._columns import averages, bests, contested_rows, distinct_rows
from rankd.domain.board import Board
from rankd.domain.order import Keep, Order, Ties
from rankd.domain.team import TeamBy
from rankd.projection.placement import Placement, RowTarget, StepPlan
from rankd.projection.port import READ_PLAYERS_MAX, RankWriter, walk
from rankd.projection.step_rows import StepRows

_CHUNK = 1_000  # entries read at once
_RISING = (Keep.BEST, Keep.FIRST)


def team_sum_plan(targets: Sequence[RowTarget]) -> StepPlan:
    """Return the teams ranked by the sum of their players."""
    return _team_plan(targets, StepPlan(Keep.SUM, as_kept=False), lambda target: _ranks_by(target) is TeamBy.SUM)


def team_rising_plan(targets: Sequence[RowTarget]) -> StepPlan:
    """Return the teams ranked by their best player, where no player's score can get worse."""
    return _team_plan(targets, StepPlan(Keep.BEST, as_kept=True), only_rises)


def team_average_plan(targets: Sequence[RowTarget]) -> StepPlan:
    """Return the teams ranked by the average of their players."""
    return _team_plan(targets, StepPlan(Keep.LATEST, as_kept=True), lambda target: _ranks_by(target) is TeamBy.AVERAGE)


def team_best_plan(targets: Sequence[RowTarget]) -> StepPlan:
    """Return the teams ranked by their best player, whose score may get worse."""
    return _team_plan(targets, StepPlan(Keep.LATEST, as_kept=True), _may_fall)


def _team_plan(targets: Sequence[RowTarget], plan: StepPlan, takes: Callable[[RowTarget], bool]) -> StepPlan:
    plan.subjects = array("I")
    for target in targets:
        is_taken = target.team is not None and takes(target)
        wholes = [RowTarget(target.board, target.reached, target.target, target.scope, None)] if is_taken else []
        plan.add(wholes, target.team if is_taken else None)
    return plan


def _ranks_by(target: RowTarget) -> TeamBy | None:
    team = target.reached.board.team
    return None if team is None else team.by


def only_rises(target: RowTarget) -> bool:
    """Return whether a target's teams are ranked by their best player, and no player's score can get worse."""
    return _ranks_by(target) is TeamBy.BEST and target.reached.board.keep[target.target.window.name] in _RISING


def _may_fall(target: RowTarget) -> bool:
    is_best = _ranks_by(target) is TeamBy.BEST
    return is_best and not only_rises(target) and not is_ranked_by_event(target.reached.board)


def is_ranked_by_event(board: Board) -> bool:
    """Return whether a board's teams are ranked anew after each event.

    Where ties are by value, a team takes its best player's tiebreak too. A batch says which scores it replaced and not
    which tiebreaks, and where players' scores may get worse those before count.
    """
    is_best = board.team is not None and board.team.by is TeamBy.BEST and board.ties is Ties.VALUE
    return is_best and not all(keep in _RISING for keep in board.keep.values())


def can_apply_together(placement: Placement) -> bool:
    """Return whether one batch can apply many events of a placement."""
    return not any(is_ranked_by_event(reached.board) for reached in placement.reached)


def average_rows(_store: RankWriter, rows: StepRows, plan: StepPlan) -> StepRows:
    """Note the changes of players in their teams' totals, and return the rows of the teams' averages."""
    totals = [target.reached.state.team_totals_of(target.key.text) for target in plan.targets]
    lowest = array("q", [target.rules.score_min for target in plan.targets])
    highest = array("q", [target.rules.score_max for target in plan.targets])
    *columns, team, _ = averages(*rows.changed, *plan.columns, totals, plan.names, lowest, highest)
    return StepRows(plan.targets, plan.table, columns, plan.names, memoryview(team).cast("I"))


def best_rows(store: RankWriter, rows: StepRows, plan: StepPlan) -> StepRows:
    """Return the rows of teams ranked by their best player, after the players' rows and before those of the teams."""
    names = rows.names if isinstance(rows.names, list) else list(rows.names)
    _, player = distinct_rows([names])
    has_rest, rest = _bests_before(store, rows, plan)
    _replace_contested(store, rows, has_rest, rest)
    is_ascending = bytes(target.rules.order is Order.ASC for target in plan.targets)
    *columns, team, _ = bests(*rows.changed, *plan.columns, is_ascending, player, has_rest, rest)
    return StepRows(plan.targets, plan.table, columns, plan.names, memoryview(team).cast("I"))


def _bests_before(store: RankWriter, rows: StepRows, plan: StepPlan) -> tuple[bytearray, array[int]]:
    """Return whether a team had a score before, and the score, by instance of contributions."""
    numbers_of: dict[int, list[int]] = defaultdict(list)  # instances by the total they count in
    for number in set(rows.instance):
        start = plan.offsets[number]
        if start < plan.offsets[number + 1]:
            numbers_of[plan.wholes[start]].append(number)
    count = len(plan.offsets) - 1
    has_best, best = bytearray(count), array("q", bytes(8 * count))
    subjects = plan.subjects or ()
    for whole, numbers in numbers_of.items():
        for begin in range(0, len(numbers), READ_PLAYERS_MAX):
            some = numbers[begin : begin + READ_PLAYERS_MAX]
            kept = store.scores(plan.targets[whole].key, [plan.names[subjects[number]] for number in some])
            for number, held in zip(some, kept, strict=True):
                if held is not None:
                    has_best[number], best[number] = 1, held.score
    return has_best, best


def _replace_contested(store: RankWriter, rows: StepRows, has_rest: bytearray, rest: array[int]) -> None:
    """Replace teams' bests by those of the players without a changed row, where these may be others.

    A team's best before the batch is that of such a player, unless a player with that score got another one.
    """
    instance, _, _, flags, before, _ = rows.changed
    changed: dict[int, set[str]] = defaultdict(set)
    for row in memoryview(contested_rows(instance, flags, before, has_rest, rest)).cast("I"):
        changed[rows.instance[row]].add(rows.names[rows.subject[row]])
    for number, players in changed.items():
        entries = walk(store, rows.targets[number].key, min(len(players) + 1, _CHUNK))
        other = next((entry for entry in entries if entry.player not in players), None)
        has_rest[number] = other is not None
        rest[number] = 0 if other is None else other.score

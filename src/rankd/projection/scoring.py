"""Scores become rows for every window, scope and fed board; then for roll-ups, then for teams.

    1. kept     one row for each (window, scope) by its own keep rule; on a team board within the team
    2. roll-ups the change of a part's row is added to the longer windows made of it
    3. teams    the change of a player's row is added to the player's team

Each step needs the changes of the step before, so each is a batch of columns; the position moves with the last one.
The result equals that of applying the events one after the other. In steps 2 and 3 the store itself adds changes to
totals (`Keep.SUM`) while no total can leave the bounds; `totals.py` does the others row by row. `teams.py` has the
averages and the bests of teams.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from rankd._columns import (
    MetadataIndex,
    changes,
    distinct,
    divided,
    expand,
    extent,
    instances_with_metadata,
    record_metadata_events,
)
from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Rules, Ties
from rankd.domain.team import TeamBy
from rankd.ledger.event import NO_DETAIL, Detail, EventRun, Scored, event_id
from rankd.projection.placement import Placement, PlanColumns, RowTarget, StepPlan
from rankd.projection.port import RankWriter
from rankd.projection.rows import KeptChange, Rows
from rankd.projection.step_rows import StepRows
from rankd.projection.teams import (
    average_rows,
    best_rows,
    is_ranked_by_event,
    only_rises,
    team_average_plan,
    team_best_plan,
    team_rising_plan,
    team_sum_plan,
)
from rankd.projection.totals import ScoreMove, TotalsSoFar, add_to_total, apply_teams, record_metadata


class PlacedRun:
    """Consecutive scores of one context, grouped by placement and attributes."""

    def __init__(self, run: EventRun, placements: Sequence[Placement], place: Sequence[int] | None) -> None:
        """`place` is the index of each event's placement; None when all share one."""
        self.run = run
        self.reached = placements[0].reached  # all placements have the same boards in the same order
        self.rows_max = len(run) * max(placement.rows_max for placement in placements)
        self.has_roll_ups = any(reached.roll_ups for placement in placements for reached in placement.reached)
        details, detail_index = _details_of(run)
        if place is None:
            pairs: Iterable[tuple[int, int]] = ((0, index) for index in range(len(details)))
            self.group: array[int] | memoryview = detail_index
        else:
            both = list(zip(place, detail_index, strict=True))
            numbers = {pair: number for number, pair in enumerate(dict.fromkeys(both))}
            pairs, self.group = numbers, array("I", map(numbers.__getitem__, both))
        grouped = [(placements[index], details[number]) for index, number in pairs]
        for placement in placements:
            placement.make_room(len(details))
        self.plans = [placement.plan(detail) for placement, detail in grouped]
        self.has_metadata = any(detail.has_metadata for detail in details)
        self._metadata_groups = bytes(detail.has_metadata for _, detail in grouped)
        self._placement = placements[0] if place is None else None

    @property
    def boards(self) -> list[Board]:
        """The boards that the events reach."""
        return [reached.board for reached in self.reached]

    def kept_rows(self) -> StepRows:
        """Return the rows of the first step."""
        run, plans = self.run, self.plans
        targets, table, instance = self._table()
        offsets = array("I", [0])
        for plan in plans:
            offsets.append(offsets[-1] + len(plan.targets))
        boards = self.boards
        *columns, is_used = expand(
            self.group,
            offsets,
            b"".join(plan.boards for plan in plans),
            instance,
            run.score,
            [_ranked_column(board, run) for board in boards],
            [_tie_column(board, run) for board in boards],
            array("q", [board.score_min for board in boards]),
            array("q", [board.score_max for board in boards]),
        )
        for plan, start, end in zip(plans, offsets, offsets[1:], strict=False):
            plan.record(is_used[start:end])
        return StepRows(targets, table, columns, run.players)

    def _table(self) -> tuple[Sequence[RowTarget], Sequence[tuple[InstanceKey, Rules]], bytes]:
        """Return the targets, their table, and the table index of each target of each plan."""
        placement = self._placement
        table = None if placement is None else placement.table_for(sum(len(plan.targets) for plan in self.plans))
        if placement is not None and table is not None:
            return placement.targets, table, b"".join(plan.numbers for plan in self.plans)
        numbers: dict[str, int] = {}
        targets: list[RowTarget] = []
        instance = array("I")
        for target in chain.from_iterable(plan.targets for plan in self.plans):
            number = numbers.setdefault(target.key.text, len(targets))
            if number == len(targets):
                targets.append(target)
            instance.append(number)
        return targets, [(target.key, target.rules) for target in targets], instance.tobytes()

    def step_plan(self, kept: StepRows, of: Callable[[Sequence[RowTarget]], StepPlan]) -> StepPlan:
        """Return the plan of a later step for the targets of the first."""
        placement = self._placement
        if placement is not None and kept.targets is placement.targets:
            return placement.step_plan(of)
        return of(kept.targets)

    def record_metadata(self, rows: StepRows) -> None:
        """Record the event of each kept score in instances where an event has metadata."""
        if not self.has_metadata and not any(reached.state.metadata for reached in self.reached):
            return
        applied = rows.applied
        if applied is None:
            raise AssertionError("record metadata after the rows were applied")
        run = self.run
        has_metadata = bytes(map(self._metadata_groups.__getitem__, self.group))
        new = set(instances_with_metadata(rows.instance, rows.event, applied.flags, has_metadata))
        tables: list[MetadataIndex | None] = [
            None  # readers never see contributions
            if target.team is not None
            else target.reached.state.metadata_index_of(target.key.text, is_new=number in new)
            for number, target in enumerate(rows.targets)
        ]
        first = event_id(run.partition, run.first)
        names = rows.names if isinstance(rows.names, list) else list(rows.names)
        record_metadata_events(
            tables, rows.instance, rows.event, rows.subject, applied.flags, has_metadata, names, first
        )

    def move(self, rows: StepRows, row: int) -> ScoreMove:
        """Return one row of a step with its event and target."""
        run, index, target = self.run, rows.event[row], rows.targets[rows.instance[row]]
        detail = (None if run.detail is None else run.detail[index]) or NO_DETAIL
        event = Scored(
            run.first + index,
            run.at[index],
            run.players[index],
            run.score[index],
            run.tiebreak[index],
            detail,
            run.partition,
        )
        return ScoreMove(row, target.reached, target.target, target.scope, target.team, event)


def apply_scores(store: RankWriter, placed: PlacedRun) -> None:
    """Apply consecutive scores of one context, one batch for each step."""
    span, kept = placed.run.span, placed.kept_rows()
    has_teams = any(board.team is not None for board in placed.boards)
    if not placed.has_roll_ups and not has_teams:
        kept.apply(store, span)
        placed.record_metadata(kept)
        return
    kept.apply(store, span.start)
    placed.record_metadata(kept)
    steps = [kept]
    row_by_row: list[tuple[ScoreMove, KeptChange]] = []
    if placed.has_roll_ups:
        totals, odd = _total_rows(store, placed, kept, placed.step_plan(kept, roll_up_plan))
        if any(board.team is not None and board.team.by is TeamBy.BEST for board in placed.boards):
            # A team's best is read from the store, so after each change.
            for total in odd:
                apply_teams(store, _roll_up_each(store, placed, kept, [total]), span.start)
        else:
            row_by_row = _roll_up_each(store, placed, kept, odd)
        steps.append(totals)
    if has_teams:
        for rows in steps:
            for plan in (placed.step_plan(rows, team_sum_plan), placed.step_plan(rows, team_rising_plan)):
                if plan.targets:
                    _, odd = _total_rows(store, placed, rows, plan)
                    row_by_row += [(placed.move(rows, row), rows.change(row)) for row, _ in odd]
            for make_plan, make_rows in ((team_average_plan, average_rows), (team_best_plan, best_rows)):
                plan = placed.step_plan(rows, make_plan)
                if plan.targets:
                    teams = make_rows(store, rows, plan)
                    teams.apply(store, span.start)
                    placed.record_metadata(teams)
            row_by_row += _changes_to_each(placed, rows)
    apply_teams(store, row_by_row, span)


# Steps 2 and 3 in columns


def roll_up_plan(targets: Sequence[RowTarget]) -> StepPlan:
    """Return the roll-ups that windows count in."""
    plan = StepPlan(Keep.SUM, as_kept=False)
    for target in targets:
        wholes = target.reached.roll_ups.get(target.target.window.name, ())
        plan.add(RowTarget(target.board, target.reached, whole, target.scope, target.team) for whole in wholes)
    return plan


def _total_rows(
    store: RankWriter, placed: PlacedRun, rows: StepRows, plan: StepPlan
) -> tuple[StepRows, list[tuple[int, RowTarget]]]:
    """Add the changes of rows to totals; return the totals' rows, and (row, total) of those the store cannot add."""
    is_folded = plan.subjects is not None and not plan.as_kept
    *columns, subject, _, raised, lowered, is_small = _changes_of(rows, plan, plan.columns, is_folded=is_folded)
    odd: list[tuple[int, RowTarget]] = []
    full = set()
    if not plan.as_kept:
        ups, downs = memoryview(raised).cast("q"), memoryview(lowered).cast("q")
        full = {
            number
            for number, total in enumerate(plan.targets)
            if not (is_small and _has_room(store, total, ups[number], -downs[number]))
        }
    if full:
        each, _, _, _, _, source = _changes_of(rows, plan, plan.columns, is_folded=False)[:6]
        pairs = zip(memoryview(source).cast("I"), memoryview(each).cast("I"), strict=True)
        odd = [(row, plan.targets[number]) for row, number in pairs if number in full]
        *columns, subject, _, _, _, _ = _changes_of(rows, plan, plan.without(full), is_folded=is_folded)
    names = placed.run.players if plan.subjects is None else plan.names
    totals = StepRows(plan.targets, plan.table, columns, names, memoryview(subject).cast("I"))
    totals.apply(store, placed.run.span.start)
    placed.record_metadata(totals)
    return totals, odd


def _changes_of(
    rows: StepRows, plan: StepPlan, columns: PlanColumns, *, is_folded: bool
) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bool]:
    return changes(*rows.changed, *columns, len(plan.targets), plan.as_kept, is_folded)


def _has_room(store: RankWriter, total: RowTarget, up: int, down: int) -> bool:
    """Return whether no total of an instance can leave the bounds, even if one player had all the changes.

    Where no part was ever below 0, a sum of parts does not fall below the least possible part.
    """
    state, rules, text = total.reached.state, total.rules, total.key.text
    if state.wide.get(text) or state.uncounted.get(text):
        return False
    if up == down == 0:
        return True
    # A total that is not in `wide` may be outside the current bounds: it was within those of its time.
    lowest, highest = _extremes(store, total.key)
    is_above = total.reached.is_never_negative or lowest - down >= rules.score_min
    return is_above and highest + up <= rules.score_max


def _extremes(store: RankWriter, key: InstanceKey) -> tuple[int, int]:
    """Return the least and the greatest total of an instance, with the 0 that a new total starts from."""
    count = store.total(key)
    if count == 0:
        return 0, 0
    first, last = store.range(key, 1, 1).entries[0].score, store.range(key, count, count).entries[0].score
    return min(first, last, 0), max(first, last, 0)


# Row by row


def _roll_up_each(
    store: RankWriter, placed: PlacedRun, kept: StepRows, odd: list[tuple[int, RowTarget]]
) -> list[tuple[ScoreMove, KeptChange]]:
    if not odd:
        return []
    rows, totals, moves = Rows(), TotalsSoFar(), []
    for row, whole in odd:
        part = placed.move(kept, row)
        number = add_to_total(store, rows, totals, part, whole.target, change=kept.change(row))
        moves.append(part._replace(row=number, target=whole.target))
    rows.apply(store, placed.run.span.start)
    record_metadata(rows, moves)
    return [(move, rows.change(move.row)) for move in moves]


def _changes_to_each(placed: PlacedRun, rows: StepRows) -> list[tuple[ScoreMove, KeptChange]]:
    """Return the changes that concern teams which are ranked event by event."""
    if not any(is_ranked_by_event(board) for board in placed.boards):
        return []
    by_event = {
        number
        for number, target in enumerate(rows.targets)
        if target.team is not None and is_ranked_by_event(target.reached.board) and not only_rises(target)
    }
    return [
        (placed.move(rows, row), change)
        for row, number in enumerate(rows.instance)
        if number in by_event and (change := rows.change(row)).changed
    ]


# Columns of a run


def _details_of(run: EventRun) -> tuple[list[Detail], memoryview]:
    """Return the distinct details, and the index of each event's detail."""
    if run.detail is None:
        return [NO_DETAIL], memoryview(bytes(4 * len(run))).cast("I")
    details, index = distinct(run.detail)
    return [detail or NO_DETAIL for detail in details], memoryview(index).cast("I")


def _ranked_column(board: Board, run: EventRun) -> array[int]:
    """Return the values to rank: the scores, or the keys of decaying scores."""
    if board.decay is None:
        return run.score
    keys = board.decay.keys(run.score, run.at)
    for index, detail in enumerate(run.detail or ()):
        if detail is not None and board.id in detail.keys:
            keys[index] = detail.keys[board.id]
    return keys


def _tie_column(board: Board, run: EventRun) -> array[int]:
    match board.ties:
        case Ties.VALUE:
            return run.tiebreak
        case Ties.PLAYER:
            return array("q", bytes(8 * len(run)))
    first, resolution_ms = run.at[0], board.tie_resolution_ms
    if extent(run.at) == (first, first):
        return array("q", [first // resolution_ms]) * len(run)
    return array("q", divided(run.at, resolution_ms))

"""Totals row by row: the effect of one change on a roll-up or a team.

    ScoreMove, KeptChange → add_to_total → a row of a roll-up;  apply_teams → rows of teams

For totals that `scoring.py` cannot compute in columns: those outside the bounds, roll-ups with parts that do not
count, the best of teams on boards with `ties = "value"` where players' scores may get worse, and removals.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rankd.domain.order import Ties
from rankd.domain.rollup import rolled_up
from rankd.domain.score import clamped
from rankd.domain.team import TeamBy
from rankd.ledger.event import EventSpan, Scored
from rankd.projection.placement import ReachedBoard, WindowTarget, team_scope
from rankd.projection.port import Op, RankWriter
from rankd.projection.rows import KeptChange, Rows
from rankd.projection.shares import count_part

TotalsSoFar = dict[tuple[str, str], int]  # totals by instance and subject, after the rows so far


class ScoreMove(NamedTuple):
    """One row of a player: where it counts, and its event."""

    row: int
    reached: ReachedBoard
    target: WindowTarget
    scope: str
    team: str | None
    event: Scored


def add_to_total(
    store: RankWriter, rows: Rows, totals: TotalsSoFar, move: ScoreMove, whole: WindowTarget, *, change: KeptChange
) -> int:
    """Add the row of a total after one part's change, and return its number."""
    board, player, state = whole.board, move.event.player, move.reached.state
    key = whole.key(move.scope if move.team is None else team_scope(move.scope, move.team))
    counted = count_part(state, key.text, move.target.instance, player)
    before = _total(store, move.reached, totals, key.text, player, held_in=whole, scope=key.scope)
    total = rolled_up(before, change.before if counted else None, change.after)
    shown = _hold(move.reached, totals, key.text, player, total)
    return rows.add(key, whole.player_rules, player, shown, board.tie_field(move.event.at, move.event.tiebreak))


def _total(
    store: RankWriter,
    reached: ReachedBoard,
    totals: TotalsSoFar,
    text: str,
    subject: str,
    *,
    held_in: WindowTarget,
    scope: str,
) -> int:
    total = totals.get((text, subject))
    if total is None:
        total = reached.state.wide.get(text, {}).get(subject)
    if total is None:
        held = store.score(held_in.key(scope), subject)
        total = 0 if held is None else held.score
    return total


def _hold(reached: ReachedBoard, totals: TotalsSoFar, text: str, subject: str, total: int) -> int:
    """Record a total and return its ranked value; the state holds only totals outside the bounds."""
    totals[text, subject] = total
    shown = clamped(total, reached.board.score_min, reached.board.score_max)
    if shown != total:
        reached.state.wide.setdefault(text, {})[subject] = total
    elif text in reached.state.wide:
        reached.state.wide[text].pop(subject, None)
    return shown


def apply_teams(store: RankWriter, changes: Iterable[tuple[ScoreMove, KeptChange]], span: EventSpan) -> None:
    """Apply the changes of players to their teams, and move the position."""
    rows = Rows()
    totals: TotalsSoFar = {}
    moves = []
    for move, change in changes:
        if move.team is None or not change.changed:
            continue
        row = _add_team_row(store, rows, totals, move, move.team, change=change)
        moves.append(move._replace(row=row, team=None, event=move.event._replace(player=move.team)))
    rows.apply(store, span)
    record_metadata(rows, moves)


def _add_team_row(
    store: RankWriter, rows: Rows, totals: TotalsSoFar, move: ScoreMove, team: str, *, change: KeptChange
) -> int:
    board, target = move.target.board, move.target
    key, contributions_key = target.key(move.scope), target.key(team_scope(move.scope, team))
    tie = board.tie_field(move.event.at, move.event.tiebreak)
    by = TeamBy.SUM if board.team is None else board.team.by
    if by is TeamBy.AVERAGE:
        averages = move.reached.state.team_totals_of(key.text)
        averages.replace(team, change.before, change.after)
        average = averages.average(team)
        if average is None:
            return rows.add(key, target.rules, team, op=Op.REMOVE)
        return rows.add(key, target.rules, team, clamped(average, board.score_min, board.score_max), tie)
    before = _total(store, move.reached, totals, key.text, team, held_in=target, scope=move.scope)
    best = store.range(contributions_key, 1, 1).entries
    if not best:  # this event removes the team's last players
        move.reached.state.wide.get(key.text, {}).pop(team, None)
        return rows.add(key, target.rules, team, op=Op.REMOVE)
    if by is TeamBy.BEST:
        return rows.add(key, target.rules, team, best[0].score, best[0].tie if board.ties is Ties.VALUE else tie)
    shown = _hold(move.reached, totals, key.text, team, rolled_up(before, change.before, change.after))
    return rows.add(key, target.rules, team, shown, tie)


def record_metadata(rows: Rows, moves: Iterable[ScoreMove]) -> None:
    """Record the event of each kept score in instances where an event has metadata; contributions are hidden."""
    for move in moves:
        if move.team is not None:
            continue
        if not rows.change(move.row).changed:
            continue
        has_metadata = move.event.detail.has_metadata
        index = move.reached.state.metadata_index_of(move.target.key(move.scope).text, is_new=has_metadata)
        if index is None:
            continue
        if has_metadata:
            index.put(move.event.player, move.event.id)
        else:
            index.remove(move.event.player)

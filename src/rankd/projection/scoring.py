"""Scores become rows: every window, every scope, every board that is fed; then roll-ups, then teams.

    1. kept     one row for each (window, scope) by its own keep rule; on a team board within the team
    2. roll-ups what a row of a part changed is added to the longer windows made of it
    3. teams    what a row of a player changed is added to the team it counts for

Each step needs what the one before it did, row by row, so each is a batch; the position moves with the last one. All of
it has the result of applying the events one after the other.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from rankd._columns import extent
from rankd.domain.board import Board
from rankd.domain.order import Ties
from rankd.domain.rollup import rolled_up
from rankd.domain.score import clamped
from rankd.domain.team import Contributions, TeamBy
from rankd.ledger.event import EventSpan, Scored, Stretch
from rankd.projection.placement import Placement, Reached, Target, team_scope
from rankd.projection.port import Applied, Batch, Op, RankWriter
from rankd.projection.rows import Change, Rows, send
from rankd.projection.shares import count_part


class Move(NamedTuple):
    """One row about a player: where it counts and what it came from."""

    row: int
    reached: Reached
    target: Target
    scope: str
    team: str | None
    event: Scored


def can_apply_plain(placement: Placement, stretch: Stretch) -> bool:
    """Tell whether every event of a stretch has the same rows, so that whole columns can be applied."""
    if stretch.detail is not None:
        return False
    return placement.is_plain(*extent(stretch.score))


def apply_plain(store: RankWriter, placement: Placement, stretch: Stretch) -> Applied:
    """Apply a stretch as whole columns, the rows of the first instance first."""
    count = len(stretch)
    instances = placement.plain_instances
    tie: array[int] = array("q")
    for reached in placement.reached:
        tie.extend(_tie_column(reached.board, stretch) * len(reached.plain_rows))
    instance, player = array("I"), _first_numbers(count) * len(instances)
    for index in range(len(instances)):
        instance.extend(array("I", [index]) * count)
    batch = Batch(
        instances=instances,
        players=stretch.players,
        score=stretch.score * len(instances),
        tie=tie,
        instance=instance,
        player=player,
        partition=stretch.partition,
        after=stretch.first - 1,
        upto=stretch.first + count - 1,
    )
    return send(store, batch)


@lru_cache(maxsize=8)
def _first_numbers(count: int) -> array[int]:
    return array("I", range(count))


def _tie_column(board: Board, stretch: Stretch) -> array[int]:
    match board.ties:
        case Ties.VALUE:
            return stretch.tiebreak
        case Ties.PLAYER:
            return array("q", bytes(8 * len(stretch)))
    first, resolution_ms = stretch.at[0], board.tie_resolution_ms
    if extent(stretch.at) == (first, first):
        return array("q", [first // resolution_ms]) * len(stretch)
    return array("q", [at // resolution_ms for at in stretch.at])


def apply_each(store: RankWriter, placed: Iterable[tuple[Placement, Scored]], span: EventSpan) -> None:
    """Apply events that differ in where they count."""
    kept = Rows()
    moves = [
        move
        for placement, event in placed
        for reached in placement.reached
        for move in _kept_moves(kept, reached, event)
    ]
    needs_more = any(move.team is not None or move.target.window.name in move.reached.roll_ups for move in moves)
    if not needs_more:
        kept.apply(store, span)
        note_metadata(kept, moves)
        return
    kept.apply(store, span.start)
    totals = Rows()
    roll_moves = list(_roll_up_moves(store, totals, kept, moves))
    totals.apply(store, span.start)
    changes = [(move, kept.change(move.row)) for move in moves] + [
        (move, totals.change(move.row)) for move in roll_moves
    ]
    note_metadata(kept, moves)
    note_metadata(totals, roll_moves)
    apply_teams(store, changes, span)


def _kept_moves(rows: Rows, reached: Reached, event: Scored) -> Iterable[Move]:
    board = reached.board
    attributes = event.detail.attributes_for(board.id)
    if not board.score_min <= event.score <= board.score_max:
        return
    team = None
    if board.team is not None:
        team = attributes.get(board.team.attribute)
        if team is None:
            return
    for name in board.scopes:
        if name in attributes:
            reached.state.scope_values.setdefault(name, set()).add(attributes[name])
    score = event.score if board.decay is None else event.detail.keys[board.id]
    tie = board.tie_field(event.at, event.tiebreak)
    for scope in board.scopes_of(attributes):
        for target in reached.kept:
            key = target.key(scope if team is None else team_scope(scope, team))
            if team is not None:
                target.key(scope)
            row = rows.add(key, target.player_rules, event.player, score, tie)
            yield Move(row, reached, target, scope, team, event)


def _roll_up_moves(store: RankWriter, rows: Rows, kept: Rows, moves: Iterable[Move]) -> Iterable[Move]:
    running: dict[tuple[str, str], int] = {}
    for move in moves:
        for whole in move.reached.roll_ups.get(move.target.window.name, ()):
            change = kept.change(move.row)
            if change.changed:
                row = add_to_total(store, rows, running, move, whole, change=change)
                yield Move(row, move.reached, whole, move.scope, move.team, move.event)


def add_to_total(
    store: RankWriter,
    rows: Rows,
    running: dict[tuple[str, str], int],
    move: Move,
    whole: Target,
    *,
    change: Change,
) -> int:
    """Add a row for what one part's change makes of a total, and return its number."""
    board, player = whole.board, move.event.player
    key = whole.key(move.scope if move.team is None else team_scope(move.scope, move.team))
    wide = move.reached.state.wide.setdefault(key.text, {})
    total = running.get((key.text, player))
    if total is None:
        total = wide.get(player)
    if total is None:
        held = store.score(key, player)
        total = None if held is None else held.score
    counted = count_part(move.reached.state, key.text, move.target.instance, player)
    total = rolled_up(total or 0, change.before if counted else None, change.after)
    running[key.text, player] = total
    shown = clamped(total, board.score_min, board.score_max)
    if shown == total:
        wide.pop(player, None)
    else:
        wide[player] = total
    tie = board.tie_field(move.event.at, move.event.tiebreak)
    return rows.add(key, whole.player_rules, player, shown, tie)


def apply_teams(store: RankWriter, changes: Iterable[tuple[Move, Change]], span: EventSpan) -> None:
    """Apply to the teams what changed for their players, and move the position."""
    rows = Rows()
    moves = []
    for move, change in changes:
        if move.team is None or not change.changed:
            continue
        row = _add_team_row(store, rows, move, move.team, change)
        moves.append(move._replace(row=row, team=None, event=move.event._replace(player=move.team)))
    rows.apply(store, span)
    note_metadata(rows, moves)


def _add_team_row(store: RankWriter, rows: Rows, move: Move, team: str, change: Change) -> int:
    board, target = move.target.board, move.target
    key = target.key(move.scope)
    tie = board.tie_field(move.event.at, move.event.tiebreak)
    held = move.reached.state.teams.setdefault(key.text, {})
    contributions = held.get(team, Contributions()).replaced(change.before, change.after)
    if contributions.players == 0:
        held.pop(team, None)
        return rows.add(key, target.rules, team, op=Op.REMOVE)
    held[team] = contributions
    if board.team is not None and board.team.by is TeamBy.BEST:
        best = store.range(target.key(team_scope(move.scope, team)), 1, 1).entries
        if not best:  # all players of the team leave with this event
            return rows.add(key, target.rules, team, op=Op.REMOVE)
        return rows.add(key, target.rules, team, best[0].score, best[0].tie if board.ties is Ties.VALUE else tie)
    by = TeamBy.SUM if board.team is None else board.team.by
    score = contributions.score(by, board.score_min, board.score_max)
    return rows.add(key, target.rules, team, score or 0, tie)


def note_metadata(rows: Rows, moves: Iterable[Move]) -> None:
    """Remember which event a kept score came with, where some event came with metadata; what is hidden needs none."""
    for move in moves:
        if move.team is not None:
            continue
        noted = move.reached.state.metadata
        text = move.target.key(move.scope).text
        if not move.event.detail.has_metadata and text not in noted:
            continue
        if rows.change(move.row).changed:
            if move.event.detail.has_metadata:
                noted.setdefault(text, {})[move.event.player] = move.event.id
            else:
                noted[text].pop(move.event.player, None)

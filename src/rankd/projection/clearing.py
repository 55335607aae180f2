"""Taking scores out again: one player everywhere on a board, or everybody from its current windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.rollup import rolled_up
from rankd.domain.score import clamped
from rankd.domain.window import Window
from rankd.ledger.event import Scored
from rankd.projection.placement import TEAM_SEPARATOR, Reached, Target
from rankd.projection.port import Entry, Op, RankWriter, walk
from rankd.projection.rows import Change, Rows
from rankd.projection.scoring import Move, apply_teams
from rankd.projection.shares import count_part, forget_player, has_other_part, parts_of, take_out_parts, wholes_of
from rankd.projection.state import BoardState

_CHUNK = 10_000


def remove_player(store: RankWriter, board: Board, state: BoardState, event: Scored) -> bool:
    """Take a player out of every instance of a board, contributions to teams included; tell whether there was one."""
    rows = Rows()
    moves = []
    reached = Reached(board, state, [])
    for target, scope, team in _player_instances(board, state):
        key = target.key(_scope_text(scope, team))
        row = rows.add(key, target.player_rules, event.player, op=Op.REMOVE)
        moves.append(Move(row, reached, target, scope, team, event))
        state.wide.get(key.text, {}).pop(event.player, None)
        forget_player(state, key.text, event.player)
        state.metadata.get(key.text, {}).pop(event.player, None)
    rows.apply(store, event.span.start)
    changes = [(move, rows.change(move.row)) for move in moves]
    apply_teams(store, changes, event.span)
    return any(change.changed for _, change in changes)


def reset_windows(
    store: RankWriter, board: Board, state: BoardState, windows: list[tuple[Window, str]], event: Scored
) -> bool:
    """Empty some window instances; what they added to roll-ups that are not emptied with them is withdrawn."""
    cleared = {instance for _, instance in windows}
    reached = Reached(board, state, [])
    changes: list[tuple[Move, Change]] = []
    for window, instance in windows:
        for whole_window, whole_instance in wholes_of(board, window, instance):
            if whole_instance in cleared or whole_instance not in state.windows:
                continue
            whole = Target(board, whole_window, whole_instance, state.windows[whole_instance])
            part = Target(board, window, instance, state.windows.get(instance, set()))
            for scope, team in _split_scopes(board, state.windows.get(instance, set())):
                changes.extend(_withdraw(store, reached, part, whole, scope=scope, team=team, event=event))
    rows = Rows()
    had_scores = False
    for window, instance in windows:
        for scope in sorted(state.windows.get(instance, ())):
            key = InstanceKey(board.id, instance, scope)
            hidden = TEAM_SEPARATOR in scope
            had_scores = had_scores or store.total(key) > 0
            rows.clear(key, board.contribution_rules_for(window) if hidden else board.rules_for(window))
            state.forget_instance(key.text)
    rows.apply(store, event.span.start)
    for window, instance in windows:
        take_out_parts(store, board, state, window, instance)
    apply_teams(store, changes, event.span)
    return had_scores


def _withdraw(
    store: RankWriter,
    reached: Reached,
    part: Target,
    whole: Target,
    *,
    scope: str,
    team: str | None,
    event: Scored,
) -> Iterator[tuple[Move, Change]]:
    """Take the kept scores of a part out of the totals it was added to."""
    board, state = part.board, reached.state
    text_scope = _scope_text(scope, team)
    key = whole.key(text_scope)
    wide = state.wide.setdefault(key.text, {})
    others = [
        InstanceKey(board.id, other, text_scope)
        for _, other in parts_of(board, state, whole.window, whole.instance)
        if other != part.instance and text_scope in state.windows[other]
    ]
    tie = board.tie_field(event.at, 0)
    for entries in _chunks(walk(store, part.key(text_scope), _CHUNK)):
        players = [entry.player for entry in entries]
        totals = store.scores(key, players)
        rows = Rows()
        moves = []
        for entry, held in zip(entries, totals, strict=True):
            if held is None or not count_part(state, key.text, part.instance, entry.player):
                continue
            total = rolled_up(wide.pop(entry.player, held.score), entry.score, None)
            about = event._replace(player=entry.player)
            if total == 0 and not has_other_part(store, state, key.text, others, entry.player):
                row = rows.add(key, whole.player_rules, entry.player, op=Op.REMOVE)
            else:
                shown = clamped(total, board.score_min, board.score_max)
                if shown != total:
                    wide[entry.player] = total
                row = rows.add(key, whole.player_rules, entry.player, shown, tie)
            moves.append(Move(row, reached, whole, scope, team, about))
        rows.apply(store, event.span.start)
        for move in moves:
            change = rows.change(move.row)
            if change.changed:  # what came with the score before does not belong to this one
                state.metadata.get(key.text, {}).pop(move.event.player, None)
            yield move, change


def _player_instances(board: Board, state: BoardState) -> Iterator[tuple[Target, str, str | None]]:
    """Go through every instance of a board in which players stand: with teams, those of their contributions."""
    for instance, scopes in list(state.windows.items()):
        target = Target(board, board.window_of(instance), instance, scopes)
        for scope, team in _split_scopes(board, scopes):
            yield target, scope, team


def _split_scopes(board: Board, scopes: set[str]) -> list[tuple[str, str | None]]:
    """Return (scope, team) of the instances in which players stand."""
    if board.team is None:
        return [(scope, None) for scope in sorted(scopes)]
    split = [scope.partition(TEAM_SEPARATOR) for scope in sorted(scopes)]
    return [(scope, team) for scope, separator, team in split if separator]


def _scope_text(scope: str, team: str | None) -> str:
    return scope if team is None else f"{scope}{TEAM_SEPARATOR}{team}"


def _chunks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    chunk: list[Entry] = []
    for entry in entries:
        chunk.append(entry)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk

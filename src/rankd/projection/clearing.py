"""Removal of scores: one player from a whole board, or all players from its current windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.rollup import rolled_up
from rankd.domain.score import clamped
from rankd.domain.window import Window
from rankd.ledger.event import Scored
from rankd.projection.placement import TEAM_SEPARATOR, ReachedBoard, WindowTarget
from rankd.projection.port import Op, RankedEntry, RankWriter, walk
from rankd.projection.rows import KeptChange, Rows
from rankd.projection.shares import count_part, forget_player, has_other_part, parts_of, take_out_parts, wholes_of
from rankd.projection.state import BoardState
from rankd.projection.totals import ScoreMove, apply_teams

_CHUNK = 10_000


def remove_player(store: RankWriter, board: Board, state: BoardState, event: Scored) -> bool:
    """Remove a player from every instance of a board, team contributions included; return whether a score changed."""
    rows = Rows()
    moves = []
    reached = ReachedBoard(board, state, [])
    for target, scope, team in _player_instances(store, board, state, event.player):
        key = target.key(_scope_text(scope, team))
        row = rows.add(key, target.player_rules, event.player, op=Op.REMOVE)
        moves.append(ScoreMove(row, reached, target, scope, team, event))
    forget_player(state, event.player)
    rows.apply(store, event.span.start)
    changes = [(move, rows.change(move.row)) for move in moves]
    apply_teams(store, changes, event.span)
    return any(change.changed for _, change in changes)


def reset_windows(
    store: RankWriter, board: Board, state: BoardState, windows: list[tuple[Window, str]], event: Scored
) -> bool:
    """Empty window instances, and withdraw their scores from roll-ups that stay."""
    cleared = {instance for _, instance in windows}
    reached = ReachedBoard(board, state, [])
    changes: list[tuple[ScoreMove, KeptChange]] = []
    for window, instance in windows:
        for whole_window, whole_instance in wholes_of(board, window, instance):
            if whole_instance in cleared or whole_instance not in state.windows:
                continue
            whole = WindowTarget(board, whole_window, whole_instance)
            part = WindowTarget(board, window, instance)
            for scope, team in _split_scopes(board, store.scopes(board.id, instance)):
                changes.extend(_withdraw(store, reached, part, whole, scope=scope, team=team, event=event))
    had_scores = False
    for _, instance in windows:
        had_scores |= store.drop_window(board.id, instance).entries > 0
        state.forget_window(InstanceKey(board.id, instance, "").text)
    for window, instance in windows:
        take_out_parts(store, board, state, window, instance)
    apply_teams(store, changes, event.span)
    return had_scores


def _withdraw(
    store: RankWriter,
    reached: ReachedBoard,
    part: WindowTarget,
    whole: WindowTarget,
    *,
    scope: str,
    team: str | None,
    event: Scored,
) -> Iterator[tuple[ScoreMove, KeptChange]]:
    """Subtract the kept scores of a part from its roll-up's totals."""
    board, state = part.board, reached.state
    text_scope = _scope_text(scope, team)
    key = whole.key(text_scope)
    wide = state.wide.setdefault(key.text, {})
    others = [
        InstanceKey(board.id, other, text_scope)
        for _, other in parts_of(board, state, whole.window, whole.instance)
        if other != part.instance
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
            moves.append(ScoreMove(row, reached, whole, scope, team, about))
        rows.apply(store, event.span.start)
        for move in moves:
            change = rows.change(move.row)
            if change.changed:  # the metadata belonged to the score before
                state.forget_metadata(key.text, move.event.player)
            yield move, change


def _player_instances(
    store: RankWriter, board: Board, state: BoardState, player: str
) -> Iterator[tuple[WindowTarget, str, str | None]]:
    """Yield the instances that hold a player; on a team board, the instances of contributions."""
    for instance in sorted(state.windows):
        target = WindowTarget(board, board.window_of(instance), instance)
        for scope, team in _split_scopes(board, store.scopes(board.id, instance, player)):
            yield target, scope, team


def _split_scopes(board: Board, scopes: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return (scope, team) of the instances that hold players."""
    if board.team is None:
        return [(scope, None) for scope in sorted(scopes)]
    split = [scope.partition(TEAM_SEPARATOR) for scope in sorted(scopes)]
    return [(scope, team) for scope, separator, team in split if separator]


def _scope_text(scope: str, team: str | None) -> str:
    return scope if team is None else f"{scope}{TEAM_SEPARATOR}{team}"


def _chunks(entries: Iterable[RankedEntry]) -> Iterator[list[RankedEntry]]:
    chunk: list[RankedEntry] = []
    for entry in entries:
        chunk.append(entry)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk

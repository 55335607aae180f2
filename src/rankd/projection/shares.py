"""The parts that count in a roll-up's total, recorded only where they are not all parts in the store.

A total is normally the sum of its parts' kept scores, with nothing to record. There are two exceptions. A roll-up that
was reset, or declared while its parts had scores, starts empty: those parts do not count until an event sets them
(`uncounted`, by player), which cannot happen to closed parts (`uncounted_parts`). And a part that has left the store
still counts in the total (`lost`).
"""

from __future__ import annotations

from collections.abc import Iterator

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.rollup import RollUp
from rankd.domain.window import Window
from rankd.projection.port import RankWriter, walk
from rankd.projection.state import BoardState

_CHUNK = 10_000


def wholes_of(board: Board, part: Window, instance: str) -> Iterator[tuple[Window, str]]:
    """Yield the roll-ups that a part's instance adds to, each with the name of its instance."""
    start = part.span(instance).start
    for name, keep in board.keep.items():
        if isinstance(keep, RollUp) and start is not None and board.all_windows[keep.part].name == part.name:
            whole = board.all_windows[name].instance_at(start)
            if whole is not None:
                yield board.all_windows[name], whole


def parts_of(board: Board, state: BoardState, whole: Window, instance: str) -> Iterator[tuple[Window, str]]:
    """Yield the parts of a roll-up that are in the store, each with the name of its instance."""
    keep = board.keep[whole.name]
    if not isinstance(keep, RollUp):
        return
    part, span = board.all_windows[keep.part], whole.span(instance)
    for name in list(state.windows):
        if board.window_of(name) is part:
            start = part.span(name).start
            if start is not None and span.holds(start):
                yield part, name


def take_out_parts(store: RankWriter, board: Board, state: BoardState, whole: Window, instance: str) -> None:
    """Record that a roll-up starts empty: the current scores of its parts do not count."""
    for _, part in parts_of(board, state, whole, instance):
        for scope in store.scopes(board.id, part):
            if part in state.closed:
                state.uncounted_parts.setdefault(InstanceKey(board.id, instance, scope).text, set()).add(part)
                continue
            players = {entry.player for entry in walk(store, InstanceKey(board.id, part, scope), _CHUNK)}
            if players:
                text = InstanceKey(board.id, instance, scope).text
                state.uncounted.setdefault(text, {})[part] = players


def note_lost_part(store: RankWriter, board: Board, state: BoardState, part: str) -> None:
    """Record whose totals hold a part that is about to leave the store."""
    for _, whole in wholes_of(board, board.window_of(part), part):
        if whole not in state.windows or whole in state.closed:
            continue
        for scope in store.scopes(board.id, part):
            text = InstanceKey(board.id, whole, scope).text
            uncounted = state.uncounted.get(text, {}).pop(part, set())
            if part in state.uncounted_parts.get(text, ()):
                continue
            players = (entry.player for entry in walk(store, InstanceKey(board.id, part, scope), _CHUNK))
            state.lost.setdefault(text, set()).update(player for player in players if player not in uncounted)


def count_part(state: BoardState, whole: str, part: str, player: str) -> bool:
    """Count a part in a total from now on; return whether it counted before."""
    uncounted = state.uncounted.get(whole, {}).get(part)
    if uncounted is None or player not in uncounted:
        return True
    uncounted.discard(player)
    return False


def has_other_part(store: RankWriter, state: BoardState, whole: str, others: list[InstanceKey], player: str) -> bool:
    """Return whether a player's total holds another part than the one being withdrawn."""
    if player in state.lost.get(whole, ()):
        return True
    uncounted, parts = state.uncounted.get(whole, {}), state.uncounted_parts.get(whole, ())
    return any(
        other.window not in parts
        and player not in uncounted.get(other.window, ())
        and store.score(other, player) is not None
        for other in others
    )


def forget_player(state: BoardState, player: str) -> None:
    """Forget everything about a player who left the board."""
    for parts in state.uncounted.values():
        for players in parts.values():
            players.discard(player)
    for lost in state.lost.values():
        lost.discard(player)
    for totals in state.wide.values():
        totals.pop(player, None)
    for events in state.metadata.values():
        events.remove(player)

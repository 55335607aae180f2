"""What a roll-up's total is made of: which parts count in it, where that is not all of them.

A total is the sum of its parts' kept scores, and nothing is remembered of that as long as it is so. Two things make it
otherwise. A roll-up that was reset, or declared while its parts had scores, starts empty: those parts do not count in
it until an event sets them (`uncounted`, by player), which nothing does where they are final (`uncounted_parts`). And a
part that left the store still counts in the total (`lost`).
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
    """Go through the roll-ups that an instance of a part adds to, each with the name of its own instance."""
    start = part.span(instance).start
    for name, keep in board.keep.items():
        if isinstance(keep, RollUp) and start is not None and board.all_windows[keep.part].name == part.name:
            whole = board.all_windows[name].instance_at(start)
            if whole is not None:
                yield board.all_windows[name], whole


def parts_of(board: Board, state: BoardState, whole: Window, instance: str) -> Iterator[tuple[Window, str]]:
    """Go through the parts of a roll-up that are in the store, each with the name of its own instance."""
    keep = board.keep[whole.name]
    if not isinstance(keep, RollUp):
        return
    part, span = board.all_windows[keep.part], whole.span(instance)
    for found in list(state.windows):
        if board.window_of(found) is part:
            start = part.span(found).start
            if start is not None and span.holds(start):
                yield part, found


def take_out_parts(store: RankWriter, board: Board, state: BoardState, whole: Window, instance: str) -> None:
    """Note that a roll-up starts empty: what its parts have now does not count in it."""
    for _, part in parts_of(board, state, whole, instance):
        for scope in state.windows[part]:
            if part in state.closed:
                state.uncounted_parts.setdefault(InstanceKey(board.id, instance, scope).text, set()).add(part)
                continue
            players = {entry.player for entry in walk(store, InstanceKey(board.id, part, scope), _CHUNK)}
            if players:
                text = InstanceKey(board.id, instance, scope).text
                state.uncounted.setdefault(text, {})[part] = players


def note_lost_part(store: RankWriter, board: Board, state: BoardState, part: str) -> None:
    """Note whose totals a part counts in that is about to leave the store."""
    for _, whole in wholes_of(board, board.window_of(part), part):
        if whole not in state.windows or whole in state.closed:
            continue
        for scope in state.windows[part]:
            text = InstanceKey(board.id, whole, scope).text
            uncounted = state.uncounted.get(text, {}).pop(part, set())
            if part in state.uncounted_parts.get(text, ()):
                continue
            players = (entry.player for entry in walk(store, InstanceKey(board.id, part, scope), _CHUNK))
            state.lost.setdefault(text, set()).update(player for player in players if player not in uncounted)


def count_part(state: BoardState, whole: str, part: str, player: str) -> bool:
    """Count a part in a total from now on; tell whether it did before."""
    uncounted = state.uncounted.get(whole, {}).get(part)
    if uncounted is None or player not in uncounted:
        return True
    uncounted.discard(player)
    return False


def has_other_part(store: RankWriter, state: BoardState, whole: str, others: list[InstanceKey], player: str) -> bool:
    """Tell whether a player's total holds another part than the one that is taken out of it."""
    if player in state.lost.get(whole, ()):
        return True
    uncounted, parts = state.uncounted.get(whole, {}), state.uncounted_parts.get(whole, ())
    return any(
        other.window not in parts
        and player not in uncounted.get(other.window, ())
        and store.score(other, player) is not None
        for other in others
    )


def forget_player(state: BoardState, whole: str, player: str) -> None:
    """Forget what is noted of a player's total: the player left the board."""
    for players in state.uncounted.get(whole, {}).values():
        players.discard(player)
    state.lost.get(whole, set()).discard(player)

"""What of a board stands in Redis: over how many shards, which instances, and what is sent of those who changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking, Rules
from rankd.domain.window import Window
from rankd.errors import InvalidValue
from rankd.ledger.event import place_of
from rankd.projection.placement import visible_scopes
from rankd.projection.redis.changes import InstanceChange, captured_places, changed, whole_instance, with_top
from rankd.projection.state import BoardState
from rankd.scaled.recording import RecordingStore, Touched


def change_of(store: RecordingStore, board: Board, live: BoardState, touched: Touched) -> InstanceChange:
    """Return what is kept now of those who changed in an instance."""
    key = touched.key
    change = changed(
        store,
        key,
        touched.rules or rules_of(board, key),
        list(touched.players),
        board.tie_resolution_ms,
        cleared=touched.cleared,
        returned=list(touched.removed),
    )
    if board.exact_top is not None:
        change = with_top(store, change, board.exact_top)
    if touched.captured:
        change.captured = captured_places(store, key)
        change.forget_captured = not change.captured
    change.metadata = metadata_of(live, key, change.players)
    return change


def window_of(board: Board, key: InstanceKey) -> Window | None:
    """Return the window of an instance; None for one that a board had before it was deleted and defined anew."""
    return board.all_windows.get(key.window) or board.all_windows.get(key.window.partition(":")[0])


def rules_of(board: Board, key: InstanceKey) -> Rules:
    """Return the rules of an instance; any for one that has no window, since it is empty."""
    return board.rules_for(window_of(board, key) or board.first_window)


def metadata_of(live: BoardState, key: InstanceKey, players: Sequence[str]) -> dict[str, tuple[int, int] | None] | None:
    """Return the events that metadata of some players came with; None where no event came with any."""
    noted = live.metadata.get(key.text)
    if noted is None:
        return None
    return {one: place_of(noted[one]) if one in noted else None for one in players}


def is_dense(board: Board) -> bool:
    """Tell whether distinct scores of a board are kept in Redis, to count dense places by."""
    return board.ranking is Ranking.DENSE and shards_of(board) == 1 and board.exact_top is None


def check_board(board: Board) -> None:
    """Refuse a board that Redis cannot rank."""
    if board.ranking is Ranking.DENSE and board.shards > 1 and board.team is None:
        raise InvalidValue("ranking", "cannot be dense on a board of several shards; use competition, or one shard")


def shards_of(board: Board) -> int:
    """Return how many shards a board has in Redis: teams gather players of all of them."""
    return 1 if board.team is not None else board.shards


def instances_of(board: Board, live: BoardState) -> Iterator[tuple[InstanceKey, Rules]]:
    """Go through the instances of a board that are read by anybody."""
    for window, scopes in list(live.windows.items()):
        rules = board.rules_for(board.window_of(window))
        for scope in visible_scopes(scopes):
            yield InstanceKey(board.id, window, scope), rules


def whole_board(store: RecordingStore, board: Board, live: BoardState) -> Iterator[InstanceChange]:
    """Go through everybody on a board, instance by instance and page by page, to load it anew."""
    for key, rules in instances_of(board, live):
        captured = captured_places(store, key) if key.text in live.captured else None
        for page in whole_instance(store, key, rules, board.tie_resolution_ms):
            page.captured, captured = captured, None
            page.metadata = metadata_of(live, key, page.players)
            yield page if board.exact_top is None else with_top(store, page, board.exact_top, is_whole=True)

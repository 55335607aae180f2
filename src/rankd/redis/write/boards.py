"""The mirrored part of a board: its shards, its instances, and the rows of changed players."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking, Rules
from rankd.domain.window import Window
from rankd.errors import InvalidValue
from rankd.ledger.event import place_of
from rankd.projection.engine import EngineStore
from rankd.projection.placement import visible_scopes
from rankd.projection.state import BoardState
from rankd.redis.write.changes import InstanceChange, captured_places, changed, whole_instance, with_top
from rankd.redis.write.recording import DirtyInstance, RecordingStore


def change_of(store: RecordingStore, board: Board, live: BoardState, dirty: DirtyInstance) -> InstanceChange:
    """Return the current rows of the changed players of an instance."""
    key = dirty.key
    change = changed(
        store,
        key,
        dirty.rules or rules_of(board, key),
        list(dirty.players),
        board.tie_resolution_ms,
        cleared=dirty.cleared,
        returned=list(dirty.removed),
    )
    if board.exact_top is not None:
        change = with_top(store, change, board.exact_top)
    if dirty.captured:
        change.captured = captured_places(store, key)
        change.forget_captured = not change.captured
    change.metadata = metadata_of(live, key, change.players)
    return change


def window_of(board: Board, key: InstanceKey) -> Window | None:
    """Return the window of an instance; None for one that the board had before it was deleted and redefined."""
    return board.all_windows.get(key.window) or board.all_windows.get(key.window.partition(":")[0])


def rules_of(board: Board, key: InstanceKey) -> Rules:
    """Return the rules of an instance; an instance without a window is empty, so any rules do."""
    return board.rules_for(window_of(board, key) or board.first_window)


def metadata_of(live: BoardState, key: InstanceKey, players: Sequence[str]) -> dict[str, tuple[int, int] | None] | None:
    """Return the events that carried the players' metadata; None for an instance without metadata."""
    events = live.metadata.get(key.text)
    if events is None:
        return None
    return {player: place_of(event) if (event := events.get(player)) else None for player in players}


def is_dense(board: Board) -> bool:
    """Return whether Redis keeps the distinct scores of a board, for dense places."""
    return board.ranking is Ranking.DENSE and shards_of(board) == 1 and board.exact_top is None


def check_board(board: Board) -> None:
    """Refuse a board that Redis cannot rank."""
    if board.ranking is Ranking.DENSE and board.shards > 1 and board.team is None:
        raise InvalidValue("ranking", "cannot be dense on a board of several shards; use competition, or one shard")


def shards_of(board: Board) -> int:
    """Return the number of shards of a board in Redis; a team board has one, since teams gather players of all."""
    return 1 if board.team is not None else board.shards


def instances_of(store: EngineStore, board: Board, live: BoardState) -> Iterator[tuple[InstanceKey, Rules]]:
    """Iterate over the instances of a board that readers see and that have an entry."""
    for window in list(live.windows):
        rules = board.rules_for(board.window_of(window))
        for scope in visible_scopes(store.scopes(board.id, window)):
            yield InstanceKey(board.id, window, scope), rules


def whole_board(store: RecordingStore, board: Board, live: BoardState) -> Iterator[InstanceChange]:
    """Iterate over all rows of a board, instance by instance and page by page, to reload it."""
    for key, rules in instances_of(store, board, live):
        captured = captured_places(store, key) if key.text in live.captured else None
        for page in whole_instance(store, key, rules, board.tie_resolution_ms):
            page.captured, captured = captured, None
            page.metadata = metadata_of(live, key, page.players)
            yield page if board.exact_top is None else with_top(store, page, board.exact_top, is_whole=True)

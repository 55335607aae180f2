"""Redis anew from the ledger, beside what is served: filled first, then put in its place at once.

    ledger → RecordedFollower (from the first event) → a new generation of each board → caught up → switched

The projector goes on meanwhile. After the switch it finds that Redis is somewhere else, asks, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rankd.domain.board import Board
from rankd.errors import RanksUnavailable
from rankd.ledger.port import Ledger
from rankd.projection.catalogue import Catalogue
from rankd.projection.port import Verdict
from rankd.projection.redis.loading import Loading
from rankd.projection.redis.mirror import Mirror
from rankd.projection.state import BoardState, State
from rankd.scaled.boards_in_redis import change_of, is_dense, shards_of, whole_board
from rankd.scaled.recorded_follower import RecordedFollower
from rankd.scaled.recording import RecordingStore

FOLLOW_EVENTS = 50_000
SWITCHES_MAX = 20  # attempts to be as far as the projector at the moment of the switch
ATTEMPTS_MAX = 3  # a board that is defined otherwise meanwhile is loaded from the beginning
Progress = Callable[[int, int], None]


class Rebuilt(msgspec.Struct, frozen=True):
    """What was put in place."""

    events: int
    boards: int
    entries: int


class Rebuilding:
    """Fills Redis from the ledger; used by one thread."""

    def __init__(
        self, ledger: Ledger, connect: Callable[[RecordedFollower], Mirror], progress: Progress | None = None
    ) -> None:
        """`connect` makes the mirror of what a follower ranks."""
        self._ledger = ledger
        self._follower = RecordedFollower(ledger, RecordingStore(), State(), Catalogue())
        self._mirror = connect(self._follower)
        self._progress = progress or (lambda _done, _all: None)

    def run(self, now_ms: int, only: str | None = None) -> Rebuilt:
        """Rebuild every board, or one; a board that is deleted meanwhile is left out."""
        self._follow()
        boards = [one for one in sorted(self._boards) if only in (None, one)]
        entries = [self._rebuild(board_id, now_ms) for board_id in boards]
        rebuilt = [one for one in entries if one is not None]
        return Rebuilt(self._follower.events, len(rebuilt), sum(rebuilt))

    @property
    def _boards(self) -> dict[str, BoardState]:
        return self._follower.applier.state.boards

    def _follow(self) -> None:
        total = sum(self._ledger.heads().sequences)
        while self._follower.follow(FOLLOW_EVENTS):
            done = sum(self._follower.positions)
            self._progress(done, max(done, total))

    def _rebuild(self, board_id: str, now_ms: int) -> int | None:
        """Rebuild one board; None when it is gone. What is not put in place is given up."""
        for _ in range(ATTEMPTS_MAX):
            if board_id not in self._boards:
                return None
            board, live = self._follower.board(board_id)
            with self._begin(board) as loading:
                try:
                    entries = self._load(loading, board, live)
                    if self._switch(loading, board, live, now_ms):
                        return entries
                except RanksUnavailable:
                    self._follow()
                    if self._boards.get(board_id) is live:
                        raise  # else what we loaded went with the board
        raise RanksUnavailable(f"{board_id} is defined anew again and again; run it again when that is over")

    def _begin(self, board: Board) -> Loading:
        shards = shards_of(board)
        stored = [one for one in self._mirror.positions(board.id, shards) if one is not None]
        epoch = max((position.epoch for one in stored for position in one.values()), default=0)
        loading = self._mirror.begin(board.id, shards, epoch)
        if loading is None:
            raise RanksUnavailable(f"another projector took over while {board.id} was rebuilt; run it again")
        self._follower.begin_recording()
        return loading

    def _load(self, loading: Loading, board: Board, live: BoardState) -> int:
        entries = 0
        for page in whole_board(self._follower.store, board, live):
            loading.load([page], dense=is_dense(board))
            entries += len(page.players)
        return entries

    def _switch(self, loading: Loading, board: Board, live: BoardState, now_ms: int) -> bool:
        """Put what was loaded in place, shard by shard; False when the board is another by now, or gone."""
        for _ in range(SWITCHES_MAX):
            answers = loading.finish(list(enumerate(self._follower.positions)), time_ms=now_ms)
            if all(answer.verdict is Verdict.APPLIED for answer in answers):
                return True
            if any(answer.verdict is Verdict.FENCED for answer in answers):
                raise RanksUnavailable(f"another projector took over while {board.id} was rebuilt; run it again")
            self._follow()  # the projector is ahead: what it has is loaded too, where ours is not live yet
            if self._boards.get(board.id) is not live:
                return False
            now, _ = self._follower.board(board.id)
            if (is_dense(now), now.exact_top) != (is_dense(board), board.exact_top):
                return False
            for touched in self._follower.store.take().boards.get(board.id, {}).values():
                loading.load([change_of(self._follower.store, now, live, touched)], dense=is_dense(now))
        raise RanksUnavailable(f"{board.id} changes too fast to be switched; run it again when less is written")

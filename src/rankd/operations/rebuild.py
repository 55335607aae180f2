"""Rebuilds Redis from the ledger, in a new generation beside the live one, and switches atomically.

    ledger → RecordedFollower (from the first event) → a new generation of each board → caught up → switched

The projector goes on meanwhile. After the switch, Redis refuses its write; it reads the positions and continues there.
The head of the ledger moves on too: the rebuild comes closer to it round by round. Where it does not, it has writes
slowed down (`WriteHold`), and where the projector was ahead at HOLD_AFTER switches, it has them refused for the next.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rankd.background import rare_collections
from rankd.domain.board import Board
from rankd.errors import RanksUnavailable
from rankd.ledger.port import SharedLedger
from rankd.operations.hold import WriteHold
from rankd.projection.catalogue import Catalogue
from rankd.projection.port import Verdict
from rankd.projection.state import BoardState, State
from rankd.redis.write.boards import change_of, is_dense, shards_of, whole_board
from rankd.redis.write.loading import Loading
from rankd.redis.write.mirror import Mirror
from rankd.redis.write.recorded_follower import RecordedFollower
from rankd.redis.write.recording import RecordingStore

FOLLOW_EVENTS = 50_000
SWITCHES_MAX = 20  # attempts to be level with the projector at the switch
HOLD_AFTER = 5  # attempts: the further ones with writes held
CLOSE_S = 1.0  # a round that takes no longer ends at the head
ATTEMPTS_MAX = 3  # a board redefined meanwhile is loaded again
Progress = Callable[[int, int], None]


class Rebuilt(msgspec.Struct, frozen=True):
    """The result of a rebuild."""

    events: int
    boards: int
    entries: int


class Rebuild:
    """Fills Redis from the ledger; used by one thread."""

    def __init__(
        self,
        ledger: SharedLedger,
        connect: Callable[[RecordedFollower], Mirror],
        progress: Progress | None = None,
    ) -> None:
        """`connect` opens a mirror for a follower; `progress` is called with (events followed, events to follow)."""
        self._hold = WriteHold(ledger)
        self._follower = RecordedFollower(ledger, RecordingStore(), State(), Catalogue())
        self._mirror = connect(self._follower)
        self._progress = progress or (lambda _done, _all: None)

    def run(self, now_ms: int, only: str | None = None) -> Rebuilt:
        """Rebuild every board, or one, except boards deleted meanwhile."""
        with rare_collections(), self._hold:
            self._catch_up()
            boards = [board_id for board_id in sorted(self._boards) if only in (None, board_id)]
            entries = [self._rebuild(board_id, now_ms) for board_id in boards]
        rebuilt = [count for count in entries if count is not None]
        return Rebuilt(self._follower.events, len(rebuilt), sum(rebuilt))

    @property
    def _boards(self) -> dict[str, BoardState]:
        return self._follower.applier.state.boards

    def _catch_up(self) -> None:
        """Follow the ledger until its head is close."""
        self._hold.catch_up(self._follow, CLOSE_S, "the rebuild does not come closer to the head of the ledger")

    def _follow(self) -> None:
        """Follow the ledger to its present head."""

        def step(done: int, total: int) -> None:
            self._hold.renew()
            self._progress(done, total)

        self._follower.follow_to_head(FOLLOW_EVENTS, step)

    def _rebuild(self, board_id: str, now_ms: int) -> int | None:
        """Rebuild one board; None when it was deleted."""
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
                        raise  # else the board was deleted, and our generation with it
        raise RanksUnavailable(f"{board_id} is redefined again and again; run it again when that is over")

    def _begin(self, board: Board) -> Loading:
        shards = shards_of(board)
        stored = [positions for positions in self._mirror.positions(board.id, shards) if positions is not None]
        epoch = max((position.epoch for positions in stored for position in positions.values()), default=0)
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
        """Make the new generation live on every shard; False when the board was redefined or deleted."""

        def follow_and_load() -> None:
            self._follow()
            self._load_changes(loading, board, live)

        reason = f"{board.id} changes faster than it is switched"
        try:
            self._hold.catch_up(follow_and_load, CLOSE_S, reason)  # others have appended while it was loaded
            for attempt in range(SWITCHES_MAX):
                answers = loading.finish(list(enumerate(self._follower.positions)), time_ms=now_ms)
                if all(answer.verdict is Verdict.APPLIED for answer in answers):
                    return True
                if any(answer.verdict is Verdict.FENCED for answer in answers):
                    raise RanksUnavailable(f"another projector took over while {board.id} was rebuilt; run it again")
                if attempt >= HOLD_AFTER:
                    self._hold.stop_writes(follow_and_load, CLOSE_S, reason)
                follow_and_load()  # the projector is ahead: load its events too
        except _RedefinedError:
            return False
        finally:
            self._hold.release()
        raise RanksUnavailable(f"{board.id} changes too fast to be switched; run it again when less is written")

    def _load_changes(self, loading: Loading, board: Board, live: BoardState) -> None:
        """Load what was followed since the last time."""
        if self._boards.get(board.id) is not live:
            raise _RedefinedError
        now, _ = self._follower.board(board.id)
        if (is_dense(now), now.exact_top) != (is_dense(board), board.exact_top):
            raise _RedefinedError
        for dirty in self._follower.store.take().boards.get(board.id, {}).values():
            loading.load([change_of(self._follower.store, now, live, dirty)], dense=is_dense(now))


class _RedefinedError(Exception):
    """The board was redefined or deleted while it was loaded."""

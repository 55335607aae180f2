"""Redis anew from the ledger, beside what is served: filled first, then put in its place at once.

    ledger → Follower (from the first event) → a new generation of each board → caught up → switched

The projector goes on meanwhile. After the switch it finds that Redis is somewhere else, asks, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rankd.domain.board import Board
from rankd.errors import RanksUnavailable
from rankd.ledger.partitioned import PartitionedLedger
from rankd.projection.catalogue import Catalogue
from rankd.projection.port import Verdict
from rankd.projection.redis.changes import captured_places, whole_instance, with_top
from rankd.projection.redis.loading import Loading
from rankd.projection.redis.mirror import Mirror
from rankd.projection.state import BoardState, State
from rankd.scaled.follower import Follower
from rankd.scaled.mirroring import change_of, instances_of, is_dense, metadata_of, shards_of
from rankd.scaled.recording import RecordingStore

FOLLOW_EVENTS = 50_000
SWITCHES_MAX = 20  # attempts to be as far as the projector at the moment of the switch
Progress = Callable[[int, int], None]


class Rebuilt(msgspec.Struct, frozen=True):
    """What was put in place."""

    events: int
    boards: int
    entries: int


class Rebuilding:
    """Fills Redis from the ledger; used by one thread."""

    def __init__(
        self, ledger: PartitionedLedger, connect: Callable[[Follower], Mirror], progress: Progress | None = None
    ) -> None:
        """`connect` makes the mirror of what a follower ranks."""
        self._ledger = ledger
        self._follower = Follower(ledger, RecordingStore(), State(), Catalogue())
        self._mirror = connect(self._follower)
        self._progress = progress or (lambda _done, _all: None)

    def run(self, now_ms: int, only: str | None = None) -> Rebuilt:
        """Rebuild every board, or one."""
        self._follow()
        boards = [one for one in sorted(self._follower.applier.state.boards) if only in (None, one)]
        entries = sum(self._rebuild(board_id, now_ms) for board_id in boards)
        return Rebuilt(self._follower.events, len(boards), entries)

    def _follow(self) -> None:
        total = sum(self._ledger.heads().sequences)
        while self._follower.follow(FOLLOW_EVENTS):
            done = sum(self._follower.positions)
            self._progress(done, max(done, total))

    def _rebuild(self, board_id: str, now_ms: int) -> int:
        board, live = self._follower.board(board_id)
        shards = shards_of(board)
        stored = [one for one in self._mirror.positions(board_id, shards) if one is not None]
        epoch = max((position.epoch for one in stored for position in one.values()), default=0)
        loading = self._mirror.begin(board_id, shards, epoch)
        if loading is None:
            raise RanksUnavailable(f"another projector took over while {board_id} was rebuilt; run it again")
        self._follower.begin_recording()
        entries = self._load(loading, board, live)
        for _ in range(SWITCHES_MAX):
            answers = loading.finish(list(enumerate(self._follower.positions)), time_ms=now_ms)
            if all(answer.verdict is Verdict.APPLIED for answer in answers):
                return entries
            self._follow()  # the projector is ahead: what it has is loaded too
            board, live = self._follower.board(board_id)
            for touched in self._follower.store.take().boards.get(board_id, {}).values():
                loading.load([change_of(self._follower.store, board, live, touched)], dense=is_dense(board))
        raise RanksUnavailable(f"{board_id} changes too fast to be switched; run it again when less is written")

    def _load(self, loading: Loading, board: Board, live: BoardState) -> int:
        store, entries = self._follower.store, 0
        for key, rules in instances_of(board, live):
            captured = captured_places(store, key) if key.text in live.captured else None
            for page in whole_instance(store, key, rules, board.tie_resolution_ms):
                page.captured, captured = captured, None
                page.metadata = metadata_of(live, key, page.players)
                if board.exact_top is not None:
                    page = with_top(store, page, board.exact_top, is_whole=True)  # noqa: PLW2901
                loading.load([page], dense=is_dense(board))
                entries += len(page.players)
        return entries

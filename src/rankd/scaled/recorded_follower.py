"""The projector's follower: what changed is recorded for the mirror."""

from __future__ import annotations

from collections.abc import Iterator

from rankd.domain.instance import InstanceKey
from rankd.ledger.port import Ledger
from rankd.projection.catalogue import Catalogue
from rankd.projection.follower import Follower
from rankd.projection.redis.changes import InstanceChange, whole_instance, with_top
from rankd.projection.state import State
from rankd.scaled.recording import RecordingStore


class RecordedFollower(Follower[RecordingStore]):
    """Applies a ledger to an engine and records what changed; used by one thread."""

    def __init__(
        self,
        ledger: Ledger,
        store: RecordingStore,
        state: State,
        catalogue: Catalogue,
        *,
        ordinal: int = 0,
        controls: int = 0,
    ) -> None:
        """Recording begins where the store is."""
        super().__init__(ledger, store, state, catalogue, ordinal=ordinal, controls=controls)
        self.recorded_since: tuple[int, ...] = ()
        self.begin_recording()

    def begin_recording(self) -> None:
        """Drop what was recorded, and record what changes from here on."""
        self.store.take()
        self.recorded_since = self.positions

    def whole(self, key: InstanceKey) -> Iterator[InstanceChange]:
        """Return everybody in an instance, for one whose form in Redis has to change."""
        board, _ = self.board(key.board)
        rules = board.rules_for(board.window_of(key.window))
        for page in whole_instance(self.store, key, rules, board.tie_resolution_ms):
            yield page if board.exact_top is None else with_top(self.store, page, board.exact_top, is_whole=True)

"""The projector's follower, which records changes for the mirror."""

from __future__ import annotations

from collections.abc import Iterator

from rankd.domain.instance import InstanceKey
from rankd.ledger.port import Ledger
from rankd.projection.catalogue import Catalogue
from rankd.projection.follower import Follower
from rankd.projection.log_state import LogState
from rankd.projection.state import State
from rankd.redis.write.changes import InstanceChange, whole_instance, with_top
from rankd.redis.write.recording import RecordingStore


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
        log: LogState | None = None,
    ) -> None:
        """Record from the store's positions on."""
        super().__init__(ledger, store, state, catalogue, ordinal=ordinal, controls=controls, log=log)
        self.recorded_since: tuple[int, ...] = ()
        self.begin_recording()

    def begin_recording(self) -> None:
        """Drop recorded changes, and record from here on."""
        self.store.take()
        self.recorded_since = self.positions

    def whole(self, key: InstanceKey) -> Iterator[InstanceChange]:
        """Iterate over all rows of an instance, to rewrite it in another form."""
        board, _ = self.board(key.board)
        rules = board.rules_for(board.window_of(key.window))
        for page in whole_instance(self.store, key, rules, board.tie_resolution_ms):
            yield page if board.exact_top is None else with_top(self.store, page, board.exact_top, is_whole=True)

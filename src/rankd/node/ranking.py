"""What every process that ranks is made of, alone or as one of several."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from itertools import islice

from rankd.backend import Figures, Started
from rankd.clock import Clock
from rankd.errors import LedgerUnavailable, RankdError, SaveInterrupted
from rankd.intake.writer import Writer
from rankd.ledger.port import Ledger, PastEvent
from rankd.node.ranks import EngineRanks
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.verify import Report, digests, verify
from rankd.reads.looking import LookHere
from rankd.settings import Settings

SNAPSHOT_ATTEMPTS = 3  # a save gives up when too much changes while it is written
_log = logging.getLogger("rankd")


class RankingBackend:
    """A ledger that is followed into an engine of this process."""

    remote = None  # ranks are made here

    def __init__(
        self,
        *,
        ledger: Ledger,
        ranks: EngineRanks,
        writer: Writer,
        checkpoints: Checkpoints,
        clock: Clock,
        settings: Settings,
        started: Started,
        is_stale: Callable[[], bool] = lambda: False,
    ) -> None:
        """The ranks have caught up with the ledger."""
        self.clock = clock
        self.settings = settings
        self.started = started
        self.applier = ranks.applier
        self.writer = writer
        self.rank_store = ranks.store
        self.looking = LookHere(ranks.store, lambda: ranks.position_token, is_stale)
        self._ledger = ledger
        self._ranks = ranks
        self._checkpoints = checkpoints
        self._snapshotting = threading.Lock()  # an engine has one save under way
        self._checkpoint_at = started.snapshot or 0  # events of the newest checkpoint

    def watch_commits(self, committed: Callable[[], None]) -> None:
        """Have a function called whenever the ranks have moved on, in the thread that moved them."""
        self._ranks.moved = committed

    def figures(self) -> Figures:
        """Return how much there is."""
        return Figures(
            position=self._ranks.events,
            snapshot=self._checkpoint_at or None,
            entries=self.rank_store.entries,
            engine_bytes=self.rank_store.memory().total_bytes,
        )

    def entries_by_board(self, boards_max: int) -> dict[str, int]:
        """Return how many entries the instances of each board have, of at most so many boards."""
        boards = islice(list(self.writer.boards), boards_max)
        return {board_id: self.rank_store.board_entries(board_id) for board_id in boards}

    def history(self, player: str, limit: int, before: int | None, board: str | None) -> list[PastEvent]:
        """Return a player's own events, the newest first."""
        return self._ledger.history(player, limit, before, board)

    def snapshot(self) -> None:
        """Write a checkpoint: its instant is between two commits, its writing beside them."""
        with self._snapshotting:
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        for attempt in range(1, SNAPSHOT_ATTEMPTS + 1):
            checkpoint = self.writer.run_for(lambda: self._checkpoints.begin(self._ledger, self._ranks.follower))
            try:
                checkpoint.write()
            except OSError as problem:
                raise LedgerUnavailable(f"the snapshot cannot be written: {problem}") from problem
            except SaveInterrupted:
                if attempt == SNAPSHOT_ATTEMPTS:
                    raise
                continue
            self._checkpoint_at = checkpoint.events
            return

    def verify(self, progress: Callable[[int], None] = lambda _events: None) -> Report:
        """Compare what is ranked here with what the ledger says."""
        ranked, upto = self.writer.run_for(lambda: (digests(self.rank_store), self._ranks.follower.positions))
        return verify(self._ledger, ranked, upto, progress)

    def _snapshot_at_end(self) -> None:
        """Write a checkpoint where there is something new: the ledger has everything, but a start is faster with it."""
        try:
            if self._ranks.events != self._checkpoint_at:
                self.snapshot()
        except (RankdError, OSError) as problem:
            _log.warning("no snapshot at the end: %s", problem)

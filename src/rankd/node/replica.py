"""A replica: a worker beside the process that writes an embedded folder, with its own engine.

    the writer → SQLite ← followed read-only → engine → reads, live streams

It appends nothing and does no timed work. The API hands every change to the writer before it comes here.
"""

from __future__ import annotations

from collections.abc import Callable

from rankd.archive.windows import WindowArchive
from rankd.backend import Started
from rankd.clock import Clock
from rankd.domain.board_selection import BoardSelection
from rankd.errors import Refused
from rankd.intake.changes import Changes
from rankd.intake.writer import Writer
from rankd.ledger.sqlite.replica import SqliteReplicaLedger
from rankd.node.event_metadata import EventMetadata
from rankd.node.following import FollowingBackend
from rankd.node.lag import LagMonitor
from rankd.node.ranks import EngineRanks
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.verify import Report
from rankd.reads.joined import Joined
from rankd.registry.port import Registry
from rankd.seasons.history import PlaceHistory
from rankd.settings import Settings


class Replica(FollowingBackend):
    """The parts of a replica, until `close`."""

    def __init__(
        self,
        *,
        ledger: SqliteReplicaLedger,
        registry: Registry,
        ranks: EngineRanks,
        checkpoints: Checkpoints,
        archive: WindowArchive,
        clock: Clock,
        settings: Settings,
        started: Started,
        stale_after_ms: int,
        lag: LagMonitor,
        kept: BoardSelection,
        places: PlaceHistory,
        close_parts: Callable[[], None],
    ) -> None:
        """The ranks have caught up with the ledger; `close_parts` closes what was opened for the replica."""
        super().__init__(
            ledger=ledger,
            ranks=ranks,
            writer=Writer(ledger, ranks, registry, clock, settings, backpressure=lag.backpressure),
            checkpoints=checkpoints,
            archive=archive,
            clock=clock,
            settings=settings,
            started=started,
            stale_after_ms=stale_after_ms,
            lag=lag,
            kept=kept,
            places=places,
        )
        self.registry = registry
        self.changes = Changes(self.writer, ledger, ranks, instances_per_event_max=settings.instances_per_event_max)
        self.joined = Joined(self.applier.state, EventMetadata(ledger), registry, settings.metadata_cached_max)
        self._kept = kept
        self._close_parts = close_parts
        self._following.start()

    def settle(self) -> None:
        """Follow everything committed by now."""
        self.writer.run_for(self._ranks.catch_up)

    def snapshot(self) -> None:
        """Refuse: the writer writes checkpoints, from which replicas start."""
        raise Refused("a worker that reads writes no checkpoints: the process that writes does")

    def verify(self, progress: Callable[[int], None] = lambda _events: None) -> Report:
        """Compare what is ranked here with what the ledger says; refused where only some boards are ranked."""
        if not self._kept.is_everything:
            raise Refused("a worker that keeps some boards cannot be verified: verify the one that writes")
        return super().verify(progress)

    def close(self) -> None:
        """End following, and close all parts."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._following.join()
        self.past.close()
        self.writer.close()
        self._close_parts()

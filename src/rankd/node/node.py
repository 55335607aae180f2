"""A node: one of several `rankd serve` processes on a shared ledger, with its own engine.

    clients → writer → ledger ← followed → engine → reads, live streams
                          ↑ roll-overs, archives: the node that holds the lease

Nodes do not know each other. Each follows what the others append; the holder of the lease does timed work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic

import msgspec

from rankd.backend import Figures, Started
from rankd.clock import Clock, SystemClock
from rankd.errors import RankdError
from rankd.intake.changes import Changes
from rankd.intake.newcomers import Newcomers
from rankd.intake.writer import Writer
from rankd.ledger.port import SharedLedger
from rankd.ledger.postgres.lease import Lease
from rankd.node.coalesced_reads import CoalescedMetadata, CoalescedProfiles
from rankd.node.following import FollowingBackend
from rankd.node.lag import LagMonitor
from rankd.node.late_answers import LateAnswers
from rankd.node.ledger_tending import LedgerTending
from rankd.node.ledger_upkeep import LedgerUpkeep
from rankd.node.ranks import EngineRanks
from rankd.projection.checkpoints import Checkpoints
from rankd.reads.joined import Joined
from rankd.reads.past import OpenLedger
from rankd.registry.postgres.registry import PostgresRegistry
from rankd.seasons.history import PlaceRecorder
from rankd.seasons.retirement import Retirement
from rankd.seasons.rollover import RollOvers
from rankd.settings import Settings

LEASE_EVERY_S = 1.0
ROLL_OVER_EVERY_S = 0.2
_log = logging.getLogger("rankd")


class Node(FollowingBackend):
    """The parts of a node, until `close`."""

    def __init__(
        self,
        *,
        ledger: SharedLedger,
        registry: PostgresRegistry,
        ranks: EngineRanks,
        lease: Lease,
        retirement: Retirement,
        checkpoints: Checkpoints,
        clock: Clock,
        settings: Settings,
        started: Started,
        stale_after_ms: int,
        lag: LagMonitor,
        open_past: OpenLedger,
        recorder: PlaceRecorder,
        close_parts: Callable[[], None],
    ) -> None:
        """The ranks have caught up with the ledger; `close_parts` closes what was opened for the node."""
        newcomers = Newcomers()
        super().__init__(
            ledger=ledger,
            ranks=ranks,
            writer=Writer(ledger, ranks, registry, clock, settings, newcomers=newcomers, backpressure=lag.backpressure),
            checkpoints=checkpoints,
            archive=retirement.archiving.archive,
            clock=clock,
            settings=settings,
            started=started,
            stale_after_ms=stale_after_ms,
            lag=lag,
            open_past=open_past,
            places=recorder.history,
            recorder=recorder,
        )
        self.registry = registry
        instances_max = settings.instances_per_event_max
        if ledger.capabilities.appends_conditionally:
            self.changes = Changes(self.writer, ledger, ranks, instances_per_event_max=instances_max)
        else:
            source, wait_ms = self.rank_source, settings.at_least_wait_ms
            later = LateAnswers(self.writer, source, source.open, clock=clock, wait_ms=wait_ms)
            self.changes = Changes(
                self.writer, ledger, ranks, is_there=later.is_there, instances_per_event_max=instances_max
            )
            self.later = later
        self.joined = Joined(
            self.applier.state,
            CoalescedMetadata(ledger),
            CoalescedProfiles(registry, registry.held_profiles),
            settings.metadata_cached_max,
        )
        self._lease = lease
        self._lease_lock = threading.Lock()
        self._retirement = retirement
        self._roll_overs = RollOvers(ledger, ranks.follower, retirement)
        self._saving: threading.Thread | None = None
        self._close_parts = close_parts
        self._lease_checked_s = self._rolled_over_s = -LEASE_EVERY_S
        self.holds_lease = False
        self._upkeep = LedgerUpkeep(ledger, newcomers, clock, settings.idempotency_ttl_ms, meet=registry.meet)
        self._tending = LedgerTending(ledger, lambda: self.holds_lease, lambda: ranks.follower.time_awaited)
        self._following.start()

    def figures(self) -> Figures:
        """Return the backend's figures, with this node's lag and lease."""
        figures = msgspec.structs.replace(super().figures(), holds_lease=self.holds_lease)
        admission = self._ranks.follower.admission
        if admission is None:
            return figures
        return msgspec.structs.replace(figures, refused=admission.refusals, repeats=admission.repeats)

    def settle(self) -> None:
        """Follow the ledger to its head, and do all due work if this node holds or gets the lease."""
        self._run_alone(self._ranks.catch_up)
        self._claim_or_keep_lease()
        archiving = self._retirement.archiving
        while self.holds_lease:
            archived = archiving.finished
            if not self._roll_over():
                archiving.wait()
                if archiving.finished == archived:
                    return

    def close(self) -> None:
        """Finish running work, write a checkpoint, and close all parts."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._following.join()
        self._upkeep.close()
        self._tending.close()
        self.past.close()
        self._lease.release()  # another node takes over meanwhile
        self._retirement.archiving.close()
        if self._saving is not None:
            self._saving.join()
        try:
            self._save_at_end()
        finally:
            self.writer.close()
            self._close_parts()

    # The follower's thread

    def _after_step(self, *, is_at_head: bool) -> None:
        if is_at_head:
            self._do_timed_work()
        self._save_if_due()

    def _do_timed_work(self) -> None:
        if monotonic() - self._lease_checked_s >= LEASE_EVERY_S:
            self._lease_checked_s = monotonic()
            self._claim_or_keep_lease()
        is_time = isinstance(self.clock, SystemClock) and monotonic() - self._rolled_over_s >= ROLL_OVER_EVERY_S
        if self.holds_lease and is_time:
            self._rolled_over_s = monotonic()
            self._roll_over()

    def _claim_or_keep_lease(self) -> None:
        with self._lease_lock:
            held = self._lease.is_held() if self.holds_lease else self._lease.claim()
            if held != self.holds_lease:
                _log.info("this node %s", "holds the lease and does timed work" if held else "has lost the lease")
            self.holds_lease = held

    def _roll_over(self) -> int:
        """Append due control events and return their number; called by threads that commits do not wait for."""
        return self._roll_overs.append_next(max(self.writer.at, self.clock.now()), self.writer.run_control)

    def _save_if_due(self) -> None:
        behind = self._ranks.events - self._checkpoint_at
        is_saving = self._saving is not None and self._saving.is_alive()
        if behind >= self.settings.snapshot_events and not is_saving:
            self._saving = threading.Thread(target=self._save, name="rankd-checkpoint")
            self._saving.start()

    def _save(self) -> None:
        try:
            self.snapshot()
        except RankdError as problem:
            _log.warning("no checkpoint: %s; the next start reads more of the ledger", problem)

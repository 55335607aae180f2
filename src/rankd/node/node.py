"""A node: one `rankd serve` of several on a PostgreSQL ledger, which ranks in an engine of its own.

    clients → writer → PostgreSQL ← followed → engine → reads, live streams
                          ↑ roll-overs, archives: the node that holds the lease

Nodes do not know each other. What one appends the others follow; what is timed is done by whoever holds the lease.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic

import msgspec

from rankd.backend import Figures, Started
from rankd.clock import Clock, SystemClock
from rankd.complaints import Complaints
from rankd.errors import Closed, RankdError
from rankd.intake.changes import Changes
from rankd.intake.newcomers import Newcomers
from rankd.intake.writer import Writer
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node.ranking import RankingBackend
from rankd.node.ranks import STEP_EVENTS, EngineRanks
from rankd.projection.checkpoints import Checkpoints
from rankd.reads.joined import Joined
from rankd.registry.postgres import PostgresRegistry
from rankd.scaled.lease import Lease
from rankd.scaled.running import CoalescedMetadata, Names
from rankd.scaled.upkeep import LedgerUpkeep
from rankd.seasons.retirement import Retirement
from rankd.seasons.rollover import RollOvers
from rankd.settings import Settings

IDLE_WAIT_S = 0.2  # for something to be appended; the ledger is looked at all the while
AFTER_FAILURE_S = 0.1
LEASE_EVERY_S = 1.0
ROLL_OVER_EVERY_S = 0.2
_log = logging.getLogger("rankd")


class Node(RankingBackend):
    """Everything between opening a node and closing it."""

    def __init__(
        self,
        *,
        ledger: PostgresLedger,
        registry: PostgresRegistry,
        ranks: EngineRanks,
        lease: Lease,
        retirement: Retirement,
        checkpoints: Checkpoints,
        clock: Clock,
        settings: Settings,
        started: Started,
        stale_after_ms: int,
        let_go: Callable[[], None],
    ) -> None:
        """The ranks have caught up with the ledger; `let_go` closes whatever was opened for it."""
        newcomers = Newcomers()
        super().__init__(
            ledger=ledger,
            ranks=ranks,
            writer=Writer(ledger, ranks, registry, clock, settings, newcomers=newcomers),
            checkpoints=checkpoints,
            clock=clock,
            settings=settings,
            started=started,
            is_stale=lambda: clock.now() - ranks.complete_as_of > stale_after_ms,
        )
        self.registry = registry
        self.changes = Changes(self.writer, ledger, ranks, instances_per_event_max=settings.instances_per_event_max)
        self.joined = Joined(
            self.applier.state,
            CoalescedMetadata(ledger),
            Names(registry, registry.held_profiles),
            settings.metadata_cached_max,
        )
        self._lease = lease
        self._lease_lock = threading.Lock()
        self._retirement = retirement
        self._roll_overs = RollOvers(ledger, ranks.follower, retirement)
        self._saving: threading.Thread | None = None
        self._let_go = let_go
        self._lease_seen_s = self._rolled_over_s = -LEASE_EVERY_S
        self.holds_lease = False
        self._closing = threading.Event()
        self._upkeep = LedgerUpkeep(
            ledger,
            newcomers,
            clock,
            settings.idempotency_ttl_ms,
            meet=registry.meet,
            make_months=ledger.make_months,
        )
        self._following = threading.Thread(target=self._follow, name="rankd-follower", daemon=True)
        self._following.start()

    def figures(self) -> Figures:
        """Return how much there is, and how this node does."""
        return msgspec.structs.replace(
            super().figures(), followed_at=self._ranks.complete_as_of, holds_lease=self.holds_lease
        )

    def settle(self) -> None:
        """Follow the ledger to its end, and do all that is due if this node holds the lease or can have it."""
        self.writer.run_for(self._ranks.catch_up)
        self._claim_or_keep_lease()
        archiving = self._retirement.archiving
        while self.holds_lease:
            archived = archiving.finished
            if not self._roll_over():
                archiving.wait()
                if archiving.finished == archived:
                    return

    def close(self) -> None:
        """Finish what is under way, write a checkpoint and let everything go."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._following.join()
        self._upkeep.close()
        self._lease.release()  # so that another takes over meanwhile
        self._retirement.archiving.close()
        if self._saving is not None:
            self._saving.join()
        try:
            self._snapshot_at_end()
        finally:
            self.writer.close()
            self._let_go()

    # The follower's thread

    def _follow(self) -> None:
        complaints = Complaints(_log)
        while not self._closing.is_set():
            try:
                self._ledger.wait(IDLE_WAIT_S)
                if self.writer.run_for(self._ranks.follow) < STEP_EVENTS:
                    self._do_timed_work()
                self._save_now_and_then()
            except Closed:
                return
            except RankdError as problem:
                complaints.tell("this node waits and goes on reading: %s", problem)
                self._closing.wait(AFTER_FAILURE_S)
            except Exception:
                _log.exception("following the ledger failed, and goes on")
                self._closing.wait(AFTER_FAILURE_S)

    def _do_timed_work(self) -> None:
        if monotonic() - self._lease_seen_s >= LEASE_EVERY_S:
            self._lease_seen_s = monotonic()
            self._claim_or_keep_lease()
        is_time = isinstance(self.clock, SystemClock) and monotonic() - self._rolled_over_s >= ROLL_OVER_EVERY_S
        if self.holds_lease and is_time:
            self._rolled_over_s = monotonic()
            self._roll_over()

    def _claim_or_keep_lease(self) -> None:
        with self._lease_lock:
            held = self._lease.is_held() if self.holds_lease else self._lease.claim()
            if held != self.holds_lease:
                _log.info("this node %s", "does what is timed now" if held else "has lost the lease")
            self.holds_lease = held

    def _roll_over(self) -> int:
        """Append what is due, and return how many events; called by threads that commits do not wait for."""
        roll_overs, now = self._roll_overs, max(self.writer.at, self.clock.now())
        if roll_overs.is_due(now):
            append = partial(roll_overs.append_due, now)
        elif due := roll_overs.retired(now):
            append = partial(roll_overs.append_retired, due, now)
        else:
            return 0
        return self.writer.run_for(partial(self.writer.append_control, append))

    def _save_now_and_then(self) -> None:
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

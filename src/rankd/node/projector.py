"""`rankd project`: follows the ledger, ranks it, and mirrors the ranks into Redis.

    claim the lease → [ follow the ledger → append due control events → mirror changes ] … → release the lease

Any number of projectors may run. All follow the ledger and have the ranks in memory; the holder of the lease mirrors
them. When it dies, another continues from the positions in Redis.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import msgspec

from rankd.archive.windows import WindowArchive
from rankd.clock import Clock
from rankd.domain.position import tokens
from rankd.errors import LedgerUnavailable, RanksUnavailable, SaveInterrupted
from rankd.ledger.port import SharedLedger
from rankd.ledger.postgres.lease import Lease
from rankd.node.archives import open_archive
from rankd.node.ledger_tending import LedgerTending
from rankd.node.projector_figures import ACTIVE, STANDBY, ProjectorFigures
from rankd.node.projector_observer import ProjectorObserver
from rankd.node.refused_events import RefusedEvents
from rankd.projection.catalogue import Catalogue
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.state import State
from rankd.redis.connection.client import RedisClient
from rankd.redis.fallback.standings_sync import StandingsSync
from rankd.redis.heartbeat import HeartbeatRecord, claim_redis, write_beat
from rankd.redis.write.mirror import Mirror
from rankd.redis.write.mirroring import Fenced, MirrorSync
from rankd.redis.write.recorded_follower import RecordedFollower
from rankd.redis.write.recording import RecordingStore
from rankd.registry.postgres.standings_writer import StandingsWriter
from rankd.seasons.archiving import ArchiveStep
from rankd.seasons.retirement import Retirement
from rankd.seasons.rollover import RollOvers
from rankd.settings import Settings
from rankd.throttled_warnings import ThrottledWarnings

READ_EVENTS = 5_000  # per step of the leader: small, to keep the lag of reads low
REPLAY_EVENTS = 50_000  # per step of a standby
IDLE_WAIT_S = 0.5  # longest wait for an append
BOARD_IDLE_MS = 250  # between two advances of a board without changes
BEAT_MS = 250
LEASE_EVERY_S = 1.0
ROLL_OVER_EVERY_S = 1.0  # under load; at every step when idle
AFTER_FAILURE_S = 0.2
CHECKPOINTS = "checkpoints"  # in its folder
_log = logging.getLogger("rankd")


class ProjectorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a projector."""

    checkpoint_events: int = 2_000_000
    checkpoints_kept: int = 2
    redis_call_updates_max: int = 5_000


class Projector:
    """Ranks a ledger; one thread calls `run`."""

    def __init__(
        self,
        ledger: SharedLedger,
        connect: Callable[[], RedisClient],
        lease: Lease,
        *,
        clock: Clock,
        folder: Path,
        settings: ProjectorSettings,
        standings: Callable[[], StandingsWriter] | None = None,
        figures: ProjectorFigures | None = None,
        refused: RefusedEvents | None = None,
        archive: WindowArchive | None = None,
    ) -> None:
        """`connect` opens Redis, `standings` the writer of stored standings; nothing is read before `run`.

        `refused` gets the events of a log that are refused; the archive is in `folder` by default.
        """
        self._ledger = ledger
        self._connect = connect
        self._lease = lease
        self._clock = clock
        self._settings = settings
        self._checkpoints = Checkpoints(folder / CHECKPOINTS, settings.checkpoints_kept)
        self._follower: RecordedFollower | None = None
        self._mirroring: MirrorSync | None = None
        self._client: RedisClient | None = None
        self._standings = standings
        self._standings_sync: StandingsSync | None = None
        self._figures = figures or ProjectorFigures()
        self._observer = ProjectorObserver(self._figures)
        self._checkpoint_at = 0
        self._lease_checked_at = 0.0
        self._rolled_over_at = 0.0
        self._saving: threading.Thread | None = None
        self._beaten_at = 0.0
        self._warnings = ThrottledWarnings(_log)
        self.archiving = ArchiveStep(
            archive or open_archive(Settings(), folder), lambda: tokens(dict(enumerate(self.follower.positions)))
        )
        self._roll_overs: RollOvers | None = None
        self.is_active = False
        self._refused = refused
        if refused is not None:
            refused.holds_lease = lambda: self.is_active
        self._tending = LedgerTending(ledger, lambda: self.is_active, self._time_awaited)

    def _time_awaited(self) -> int | None:
        return None if self._follower is None else self._follower.time_awaited

    @property
    def follower(self) -> RecordedFollower:
        """The follower, with the ranks."""
        if self._follower is None:
            raise AssertionError("the ledger has not been opened yet")
        return self._follower

    @property
    def standings_sync(self) -> StandingsSync | None:
        """The sync of stored standings; None before the ledger was opened, and where none are stored."""
        return self._standings_sync

    def run(self, stop: threading.Event) -> None:
        """Rank until `stop` is set; wait for PostgreSQL, Kafka and Redis while they are away."""
        while not stop.is_set():
            try:
                if self.step():
                    continue
                self._ledger.wait(IDLE_WAIT_S if not self.is_active else BOARD_IDLE_MS / 1_000)
            except (LedgerUnavailable, RanksUnavailable) as problem:
                self._warnings.warn("the projector waits: %s", problem)
                is_ledger = isinstance(problem, LedgerUnavailable)
                self._figures.set_waiting((problem.away or "PostgreSQL") if is_ledger else "Redis")
                stop.wait(AFTER_FAILURE_S)
            except Fenced as problem:
                _log.warning("the projector becomes a standby: %s", problem)
                self._stand_by()
        self._save_at_end()
        self.close()

    def close(self) -> None:
        """Release the lease, and close all parts."""
        self._tending.close()
        if self._refused is not None:
            self._refused.close()
        self._lease.release()
        self.archiving.close()
        standings_sync, self._standings_sync = self._standings_sync, None
        if standings_sync is not None:
            standings_sync.close()
        if self._saving is not None:
            self._saving.join()
        client, self._client = self._client, None
        if client is not None:
            client.close()
        self._ledger.close()

    def step(self) -> int:
        """Follow the ledger, append due control events, mirror changes; return the amount of work found."""
        began = monotonic()
        if self._follower is None:
            self._follower = self._open()
        done = self._follow(READ_EVENTS if self.is_active else REPLAY_EVENTS)
        if not done:  # what was refused before it was first at the head, and has no checkpoint, has been sent
            self._watch_refused(self._follower)
        if not self._hold_lease(done):
            self._follower.begin_recording()  # the leader sends these changes
            if self._standings_sync is not None:
                self._standings_sync.watch()
            self._save_if_due()
            self._figures.set_role(STANDBY, 0)
            if done < READ_EVENTS:
                self._figures.set_level(None)
            self._observe(began, None, None)
            return done
        now = self._clock.now()
        self._figures.set_role(ACTIVE, self._lease.epoch)
        # None of this waits for Redis.
        if self._standings_sync is not None:
            self._standings_sync.keep(now, self._lease.epoch, is_behind=done >= READ_EVENTS)
        self._save_if_due()
        due = self._roll_over(done)
        mirroring = self._need_mirroring()
        mirroring.send(self._follower.store.take(), now, BOARD_IDLE_MS, is_all=done < READ_EVENTS)
        if done == 0 and not mirroring.settle():
            return 1
        self._beat(mirroring)
        self._observe(began, mirroring, now)
        return done or due

    def _follow(self, events_max: int) -> int:
        """Apply some events, and track their changes for the stored standings."""
        follower = self.follower
        unsent = follower.store.take()
        try:
            return follower.follow(events_max)
        finally:
            changes = follower.store.take()
            if self._standings_sync is not None:
                self._standings_sync.add(changes)
            follower.store.put_behind(changes)
            follower.store.give_back(unsent)

    def _roll_over(self, done: int) -> int:
        if done and monotonic() - self._rolled_over_at < ROLL_OVER_EVERY_S:
            return 0
        self._rolled_over_at = monotonic()
        if self._roll_overs is None:
            raise AssertionError("the ledger has not been opened yet")
        # The ledger's time is monotonic, the clock is not.
        return self._roll_overs.append_next(max(self._clock.now(), self._ledger.heads().at), lambda append: append())

    def _observe(self, began: float, mirroring: MirrorSync | None, now_ms: int | None) -> None:
        self._observer.step(began, self.follower, mirroring)
        if self._observer.is_time():
            self._observer.observe(self._ledger.heads(), self.follower, self._standings_sync, self.archiving, now_ms)

    def _watch_refused(self, follower: RecordedFollower) -> None:
        if self._refused is not None:
            follower.watch_refused(self._refused.add)

    # The lease

    def _hold_lease(self, done: int) -> bool:
        if self.is_active:
            if monotonic() - self._lease_checked_at < LEASE_EVERY_S:
                return True
            self._lease_checked_at = monotonic()
            if self._lease.is_held():
                return True
            _log.warning("the lease was lost")
            self._stand_by()
            return False
        if done >= REPLAY_EVENTS // 2 or monotonic() - self._lease_checked_at < LEASE_EVERY_S / 4:
            return False  # catch up first
        self._lease_checked_at = monotonic()
        if not self._lease.claim():
            return False
        self.is_active = True
        _log.info("ranking, epoch %d", self._lease.epoch)
        return True

    def _stand_by(self) -> None:
        self.is_active = False
        mirroring, self._mirroring = self._mirroring, None
        if mirroring is not None:
            mirroring.close()
        self.follower.begin_recording()  # the positions in Redis are unknown from now on
        self._lease.release()
        if self._standings_sync is not None:
            self._standings_sync.stand_by()

    def _need_mirroring(self) -> MirrorSync:
        if self._mirroring is None:
            try:
                if self._client is None:
                    self._client = self._connect()
                claim_redis(self._client, self._ledger.identity)
            except RanksUnavailable:
                # Nothing was sent yet: the backfill finds what Redis lacks, so changes need not be recorded.
                self.follower.begin_recording()
                raise
            mirror = Mirror(
                self._client, whole=self.follower.whole, call_updates_max=self._settings.redis_call_updates_max
            )
            self._mirroring = MirrorSync(self._ledger, self.follower, mirror, self._lease.epoch)
        return self._mirroring

    def _beat(self, mirroring: MirrorSync) -> None:
        """Write the heartbeat, at most every BEAT_MS."""
        as_of, positions = mirroring.complete_as_of, self.follower.positions
        if self._client is None or as_of is None or monotonic() - self._beaten_at < BEAT_MS / 1_000:
            return
        self._beaten_at = monotonic()
        beat = HeartbeatRecord(self._ledger.identity, self._lease.epoch, as_of, positions, mirroring.mirrored)
        if not write_beat(self._client, beat):
            raise Fenced("another projector has a higher epoch")

    # Start and end

    def _open(self) -> RecordedFollower:
        writer = None if self._standings is None else self._standings()
        heads = self._ledger.heads()
        loaded = self._checkpoints.newest(self._ledger, heads, RecordingStore.load, RecordedFollower)
        follower = loaded or RecordedFollower(self._ledger, RecordingStore(), State(), Catalogue())
        if loaded is not None:
            self._watch_refused(follower)
        if writer is not None:
            self._standings_sync = StandingsSync(follower, writer)
        retirement = Retirement(follower.applier, follower.store, self.archiving)
        self._roll_overs = RollOvers(self._ledger, follower, retirement)
        self._checkpoint_at = sum(follower.positions)
        _log.info("following the ledger from event %d on", self._checkpoint_at)
        return follower

    def _save_if_due(self) -> None:
        if sum(self.follower.positions) - self._checkpoint_at >= self._settings.checkpoint_events and (
            self._saving is None or not self._saving.is_alive()
        ):
            self._checkpoint_at = sum(self.follower.positions)
            checkpoint = self._checkpoints.begin(self._ledger, self.follower)
            self._saving = threading.Thread(target=_write, args=(checkpoint.write,), name="rankd-checkpoint")
            self._saving.start()

    def _save_at_end(self) -> None:
        self._lease.release()  # a standby takes over meanwhile
        if self._saving is not None:
            self._saving.join()
        if self._follower is not None and sum(self._follower.positions) > self._checkpoint_at:
            _write(self._checkpoints.begin(self._ledger, self._follower).write)


def _write(write: Callable[[], None]) -> None:
    try:
        write()
    except (OSError, SaveInterrupted) as problem:
        _log.warning("no checkpoint: %s; the next start reads more of the ledger", problem)

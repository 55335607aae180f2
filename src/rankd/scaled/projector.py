"""`rankd project`: the ledger is followed, ranked, and mirrored into Redis.

    claim the lease → [ follow the ledger → do what the clock has made due → mirror what changed ] … → let go

Any number of projectors may run. All follow the ledger, so that each has the ranks in memory; the one that holds the
lease mirrors them. When it dies another goes on from where Redis is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import msgspec

from rankd.clock import Clock
from rankd.complaints import Complaints
from rankd.errors import LedgerUnavailable, RanksUnavailable, SaveInterrupted
from rankd.ledger.port import SharedLedger
from rankd.projection.catalogue import Catalogue
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.redis.client import Client
from rankd.projection.redis.heartbeat import Beat, claim_redis, write_beat
from rankd.projection.redis.mirror import Mirror
from rankd.projection.state import State
from rankd.registry.standings_writer import StandingsWriter
from rankd.scaled.figures import ACTIVE, STANDBY, Figures
from rankd.scaled.keeping import Keeping
from rankd.scaled.lease import Lease
from rankd.scaled.mirroring import Fenced, Mirroring
from rankd.scaled.observing import Observing
from rankd.scaled.recorded_follower import RecordedFollower
from rankd.scaled.recording import RecordingStore
from rankd.seasons.archiving import Archiving
from rankd.seasons.retirement import Retirement
from rankd.seasons.rollover import RollOvers

READ_EVENTS = 5_000  # of one step: small, so that a read is not long behind
REPLAY_EVENTS = 50_000  # of one step while nobody waits for it
IDLE_WAIT_S = 0.5  # for something to be appended; the ledger wakes us
BOARD_IDLE_MS = 250  # a board that nothing happens on says so this often
BEAT_MS = 250
LEASE_EVERY_S = 1.0
ROLL_OVER_EVERY_S = 1.0  # however much there is to rank; at once when there is nothing
AFTER_FAILURE_S = 0.2
CHECKPOINTS, ARCHIVE = "checkpoints", "archive"  # in its folder
_log = logging.getLogger("rankd")


class ProjectorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a projector may be told."""

    checkpoint_events: int = 2_000_000
    checkpoints_kept: int = 2
    redis_call_updates_max: int = 5_000


class Projector:
    """Ranks a ledger; `run` is its thread."""

    def __init__(
        self,
        ledger: SharedLedger,
        connect: Callable[[], Client],
        lease: Lease,
        *,
        clock: Clock,
        folder: Path,
        settings: ProjectorSettings,
        standings: Callable[[], StandingsWriter] | None = None,
        figures: Figures | None = None,
    ) -> None:
        """`connect` opens Redis, `standings` what is kept for when it is away; nothing is read before `run`."""
        self._ledger = ledger
        self._connect = connect
        self._lease = lease
        self._clock = clock
        self._settings = settings
        self._checkpoints = Checkpoints(folder / CHECKPOINTS, settings.checkpoints_kept)
        self._follower: RecordedFollower | None = None
        self._mirroring: Mirroring | None = None
        self._client: Client | None = None
        self._standings = standings
        self._keeping: Keeping | None = None
        self._figures = figures or Figures()
        self._observing = Observing(self._figures)
        self._checkpoint_at = 0
        self._lease_seen = 0.0
        self._rolled_over_at = 0.0
        self._saving: threading.Thread | None = None
        self._beaten_at = 0.0
        self._complaints = Complaints(_log)
        self.archiving = Archiving(folder / ARCHIVE)
        self._roll_overs: RollOvers | None = None
        self.is_active = False

    @property
    def follower(self) -> RecordedFollower:
        """What is ranked here."""
        if self._follower is None:
            raise AssertionError("the ledger has not been opened yet")
        return self._follower

    @property
    def keeping(self) -> Keeping | None:
        """What keeps standings; None before the ledger was opened, and where none are kept."""
        return self._keeping

    def run(self, stop: threading.Event) -> None:
        """Rank until told to stop; whatever is away is waited for."""
        while not stop.is_set():
            try:
                if self.step():
                    continue
                self._ledger.wait(IDLE_WAIT_S if not self.is_active else BOARD_IDLE_MS / 1_000)
            except (LedgerUnavailable, RanksUnavailable) as problem:
                self._complaints.tell("the projector waits: %s", problem)
                self._figures.set_waiting("PostgreSQL" if isinstance(problem, LedgerUnavailable) else "Redis")
                stop.wait(AFTER_FAILURE_S)
            except Fenced as problem:
                _log.warning("the projector stands by: %s", problem)
                self._stand_by()
        self._save_at_end()
        self.close()

    def close(self) -> None:
        """Let go of the lease and of everything that was opened."""
        self._lease.release()
        self.archiving.close()
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            keeping.close()
        if self._saving is not None:
            self._saving.join()
        client, self._client = self._client, None
        if client is not None:
            client.close()
        self._ledger.close()

    def step(self) -> int:
        """Follow the ledger a little, do what is due, mirror what changed; return how much there was to do."""
        began = monotonic()
        if self._follower is None:
            self._follower = self._open()
        done = self._follow(READ_EVENTS if self.is_active else REPLAY_EVENTS)
        if not self._hold_lease(done):
            self._follower.begin_recording()  # the one that ranks sends it
            if self._keeping is not None:
                self._keeping.watch()
            self._save_now_and_then()
            self._figures.set_role(STANDBY, 0)
            if done < READ_EVENTS:
                self._figures.set_level(None)
            self._observe(began, None, None)
            return done
        now = self._clock.now()
        self._figures.set_role(ACTIVE, self._lease.epoch)
        # None of this waits for Redis: it goes on while that is away.
        if self._keeping is not None:
            self._keeping.keep(now, self._lease.epoch, is_behind=done >= READ_EVENTS)
        self._save_now_and_then()
        due = self._roll_over(done)
        mirroring = self._need_mirroring()
        mirroring.send(self._follower.store.take(), now, BOARD_IDLE_MS, is_all=done < READ_EVENTS)
        if done == 0 and not mirroring.settle():  # there is nothing to do meanwhile
            return 1
        self._beat(mirroring.complete_as_of)
        self._observe(began, mirroring, now)
        return done or due

    def _follow(self, events_max: int) -> int:
        """Rank some more, and note for the standings what that changed."""
        follower = self.follower
        unsent = follower.store.take()
        try:
            return follower.follow(events_max)
        finally:
            changes = follower.store.take()
            if self._keeping is not None:
                self._keeping.note(changes)
            follower.store.put_behind(changes)
            follower.store.give_back(unsent)

    def _roll_over(self, done: int) -> int:
        if done and monotonic() - self._rolled_over_at < ROLL_OVER_EVERY_S:
            return 0
        self._rolled_over_at = monotonic()
        if self._roll_overs is None:
            raise AssertionError("the ledger has not been opened yet")
        at = max(self._clock.now(), self._ledger.heads().at)  # the ledger's time does not go back when a clock does
        if self._roll_overs.is_due(at):
            return self._roll_overs.append_due(at)
        now = self._clock.now()
        return self._roll_overs.append_retired(self._roll_overs.retired(now), now)

    def _observe(self, began: float, mirroring: Mirroring | None, now_ms: int | None) -> None:
        self._observing.step(began, self.follower, mirroring)
        if self._observing.is_time():
            self._observing.look(self._ledger.heads(), self.follower, self._keeping, self.archiving, now_ms)

    # The lease

    def _hold_lease(self, done: int) -> bool:
        if self.is_active:
            if monotonic() - self._lease_seen < LEASE_EVERY_S:
                return True
            self._lease_seen = monotonic()
            if self._lease.is_held():
                return True
            _log.warning("the lease was lost")
            self._stand_by()
            return False
        if done >= REPLAY_EVENTS // 2 or monotonic() - self._lease_seen < LEASE_EVERY_S / 4:
            return False  # first catch up
        self._lease_seen = monotonic()
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
        self.follower.begin_recording()  # what was sent is known no longer
        self._lease.release()
        if self._keeping is not None:
            self._keeping.stand_by()

    def _need_mirroring(self) -> Mirroring:
        if self._mirroring is None:
            try:
                if self._client is None:
                    self._client = self._connect()
                claim_redis(self._client, self._ledger.identity)
            except RanksUnavailable:
                # Nobody has been sent anything yet: what Redis lacks is found out when it comes, and need not be noted.
                self.follower.begin_recording()
                raise
            mirror = Mirror(
                self._client, whole=self.follower.whole, call_updates_max=self._settings.redis_call_updates_max
            )
            self._mirroring = Mirroring(self._ledger, self.follower, mirror, self._lease.epoch)
        return self._mirroring

    def _beat(self, complete_as_of: int | None) -> None:
        """Tell readers up to when all that was in the ledger is in Redis."""
        if self._client is None or complete_as_of is None or monotonic() - self._beaten_at < BEAT_MS / 1_000:
            return
        self._beaten_at = monotonic()
        beat = Beat(self._ledger.identity, self._lease.epoch, complete_as_of, self.follower.positions)
        if not write_beat(self._client, beat):
            raise Fenced("another projector has a higher epoch")

    # Start and end

    def _open(self) -> RecordedFollower:
        writer = None if self._standings is None else self._standings()
        loaded = self._checkpoints.newest(self._ledger, self._ledger.heads(), RecordingStore.load)
        if loaded is None:
            follower = RecordedFollower(self._ledger, RecordingStore(), State(), Catalogue())
        else:
            store, state, catalogue, ordinal, controls = loaded
            follower = RecordedFollower(self._ledger, store, state, catalogue, ordinal=ordinal, controls=controls)
        if writer is not None:
            self._keeping = Keeping(follower, writer)
        retirement = Retirement(follower.applier, follower.store, self.archiving)
        self._roll_overs = RollOvers(self._ledger, follower, retirement)
        self._checkpoint_at = sum(follower.positions)
        _log.info("following the ledger from event %d on", self._checkpoint_at)
        return follower

    def _save_now_and_then(self) -> None:
        if sum(self.follower.positions) - self._checkpoint_at >= self._settings.checkpoint_events and (
            self._saving is None or not self._saving.is_alive()
        ):
            self._checkpoint_at = sum(self.follower.positions)
            checkpoint = self._checkpoints.begin(self._ledger, self.follower)
            self._saving = threading.Thread(target=_write, args=(checkpoint.write,), name="rankd-checkpoint")
            self._saving.start()

    def _save_at_end(self) -> None:
        self._lease.release()  # so that another takes over meanwhile
        if self._saving is not None:
            self._saving.join()
        if self._follower is not None and sum(self._follower.positions) > self._checkpoint_at:
            _write(self._checkpoints.begin(self._ledger, self._follower).write)


def _write(write: Callable[[], None]) -> None:
    try:
        write()
    except (OSError, SaveInterrupted) as problem:
        _log.warning("no checkpoint: %s; the next start reads more of the ledger", problem)

"""The embedded backend: ledger, ranks and registry in one folder and one process, with their upkeep."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic

from rankd.archive.open_objects import open_objects
from rankd.backend import Started
from rankd.background import lower_priority
from rankd.backup.archiver import ArchiveStatus, LedgerArchiver
from rankd.backup.sending import Backup, SegmentSender
from rankd.backup.snapshots import send_snapshot
from rankd.clock import Clock, SystemClock
from rankd.errors import Closed, LedgerUnavailable, RankdError, Refused, SaveInterrupted
from rankd.folder import SNAPSHOTS, FolderLock
from rankd.intake.changes import Changes
from rankd.intake.writer import Writer
from rankd.ledger.sqlite.database import LOG_AHEAD_BYTES, Database
from rankd.ledger.sqlite.ledger import SqliteLedger
from rankd.node.event_metadata import EventMetadata
from rankd.node.ranking import RankingBackend
from rankd.node.ranks import EngineRanks
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.verify import Report
from rankd.reads.joined import Joined
from rankd.registry.sqlite.registry import SqliteRegistry
from rankd.seasons.archiving import ArchiveStep
from rankd.seasons.history import PlaceRecorder
from rankd.seasons.retirement import Retirement
from rankd.seasons.rollover import RollOvers
from rankd.settings import Settings

UPKEEP_EVERY_S = 0.2
UPKEEP_AFTER_FAILURE_S = 2.0
PLACE_CHECK_EVERY_S = 0.5
PAGE_BYTES = 4_096
CHUNKS_BEHIND_MAX = 64  # of events not indexed by player, four million
REQUESTS_FORGOTTEN_AT_ONCE = 1_000
INDEXING_IDS_S = 0.3  # per round of upkeep
INDEXING_CONTROLS_S = 0.05
_log = logging.getLogger("rankd")


class Embedded(RankingBackend):
    """The parts behind `rankd.open`, until `close`."""

    def __init__(
        self,
        *,
        lock: FolderLock,
        database: Database,
        ledger: SqliteLedger,
        ranks: EngineRanks,
        checkpoints: Checkpoints,
        recorder: PlaceRecorder,
        archiving: ArchiveStep,
        clock: Clock,
        settings: Settings,
        started: Started,
        folder: Path,
    ) -> None:
        """The ranks have caught up with the ledger."""
        self.registry = SqliteRegistry(
            database, ledger.players, settings.profiles_cached_max, ledger.record_changes, settings.friends_bytes_max
        )
        self._retirement = Retirement(ranks.applier, ranks.store, archiving)
        self._roll_overs = RollOvers(ledger, ranks.follower, self._retirement)
        super().__init__(
            ledger=ledger,
            ranks=ranks,
            writer=Writer(ledger, ranks, self.registry, clock, settings, roll_overs=self._roll_overs),
            checkpoints=checkpoints,
            archive=archiving.archive,
            clock=clock,
            settings=settings,
            started=started,
            places=recorder.history,
            recorder=recorder,
        )
        self.changes = Changes(
            self.writer,
            ledger,
            ranks,
            instances_per_event_max=settings.instances_per_event_max,
            registers_in_commits=True,
        )
        self.joined = Joined(self.applier.state, EventMetadata(ledger), self.registry, settings.metadata_cached_max)
        self._lock = lock
        self._places_recorder = recorder
        self._database = database
        self._sqlite = ledger
        self._upkeep_at = -1  # events at the last upkeep
        self._closing = threading.Event()
        self._closed = False
        self._upkeep = threading.Thread(target=self._keep_up, name="rankd-upkeep", daemon=True)
        self._upkeep.start()
        self._watching = threading.Thread(target=self._watch_place, name="rankd-place", daemon=True)
        self._watching.start()
        self._archiver = self._archive_to(folder) if settings.archive_url else None

    # The archive

    def _archive_to(self, folder: Path) -> LedgerArchiver:
        settings = self.settings
        objects = open_objects(
            settings.archive_url, folder, endpoint=settings.archive_endpoint, region=settings.archive_region
        )
        every_ms = settings.archive_segments_every_ms

        def send(is_new: bool) -> None:
            if is_new and self._ranks.events != self._checkpoint_at:
                self.snapshot()
            send_snapshot(objects, folder / SNAPSHOTS)

        archiver = LedgerArchiver(
            SegmentSender(objects, folder, self._database, self.clock, every_ms),
            send,
            every_s=every_ms / 1_000,
            snapshots_every_s=settings.archive_snapshots_every_ms / 1_000,
        )
        if isinstance(self.clock, SystemClock):
            archiver.start()
        return archiver

    @property
    def archive_status(self) -> ArchiveStatus | None:
        """How far the archive is behind; None where there is none."""
        return None if self._archiver is None else self._archiver.status

    def backup(self) -> Backup:
        """Send everything to the archive now."""
        if self._archiver is None:
            raise Refused("there is no archive to send to: name one as archive.url")
        return self._archiver.backup()

    # Checkpoints and verification

    def snapshot(self) -> None:
        """Write a checkpoint."""
        self._database.check_place()  # beside another ledger, the checkpoint would be taken for one ahead of it
        super().snapshot()

    def verify(self, progress: Callable[[int], None] = lambda _events: None) -> Report:
        """Check the file, and compare the ranks with a replay of the ledger."""
        self._database.check()
        self._sqlite.check()
        self.registry.check()
        return super().verify(progress)

    # Upkeep

    def settle(self) -> None:
        """Do all due work now."""
        self.append_roll_overs()
        self._retirement.check_all()
        self._retire()
        self._retirement.archiving.wait()
        self._retire()
        self._places_recorder.flush()

    def _keep_up(self) -> None:
        lower_priority()
        pause_s = UPKEEP_EVERY_S
        while not self._database.is_moved and not self._closing.wait(pause_s):
            pause_s = UPKEEP_AFTER_FAILURE_S
            try:
                self._keep_up_once()
                pause_s = UPKEEP_EVERY_S
            except (LedgerUnavailable, SaveInterrupted, OSError) as problem:
                if not self._database.is_moved:  # logged already
                    _log.warning("upkeep waits: %s", problem)
            except Exception:
                _log.exception("upkeep failed, and goes on")

    def _watch_place(self) -> None:
        """Stop writing soon after the ledger was moved; not in upkeep, which may write a checkpoint for minutes."""
        with suppress(LedgerUnavailable, Closed):
            while not self._closing.wait(PLACE_CHECK_EVERY_S):
                self._database.check_place()

    def _keep_up_once(self) -> None:
        if isinstance(self.clock, SystemClock):
            self.append_roll_overs()
        self._retire()
        self._checkpoint()
        self._index_players()
        self._index_ids()
        if self._ranks.events - self._checkpoint_at >= self.settings.snapshot_events:
            self.snapshot()
        self.writer.flush_answers()
        self._ledger.forget_requests(self.clock.now() - self.settings.idempotency_ttl_ms, REQUESTS_FORGOTTEN_AT_ONCE)

    def append_roll_overs(self) -> None:
        """Append what is due of all boards. Commits come in between, each waiting for a few boards at most."""
        while self._roll_overs.is_due(self.clock.now()) and not self._closing.is_set():
            if not self.writer.run_control(lambda: self._roll_overs.append_due(self.writer.at)):
                return

    def _retire(self) -> None:
        while self._roll_overs.append_retired(self.clock.now(), self.writer.run_control):
            pass
        # Commits come in between, each waiting for one step at most.
        while self.applier.state.leaving and not self._closing.is_set():
            self.writer.run_for(self.applier.let_go)

    def _index_players(self) -> None:
        """Index events by player while nothing is written, or when the index lags far."""
        behind = self._sqlite.player_index.behind(self._ranks.events)
        is_quiet = self._ranks.events == self._upkeep_at
        self._upkeep_at = self._ranks.events
        if behind > (0 if is_quiet else CHUNKS_BEHIND_MAX):
            self._sqlite.player_index.index_chunk()
        until = monotonic() + INDEXING_CONTROLS_S
        while is_quiet and monotonic() < until and self._sqlite.player_index.controls.index_older():
            pass

    def _index_ids(self) -> None:
        """Index the ids of new players, of whom more may come than one chunk a round."""
        until = monotonic() + INDEXING_IDS_S
        while monotonic() < until and self._sqlite.player_ids.index_chunk():
            pass

    def _checkpoint(self) -> None:
        pages = self._database.log_pages
        with suppress(OSError):  # an optimization
            self._database.extend_log(LOG_AHEAD_BYTES)
        if pages * PAGE_BYTES < self.settings.checkpoint_bytes:
            return
        self._database.checkpoint()
        if self._database.log_pages * PAGE_BYTES >= self.settings.checkpoint_bytes_max:
            self.writer.run_for(lambda: self._database.checkpoint(restart=True))

    def close(self) -> None:
        """Finish running work, write a checkpoint, and close all parts in reverse order."""
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        self._upkeep.join()
        self._watching.join()
        self.past.close()
        self._retirement.archiving.close()
        try:
            self._finish()
            if self._archiver is not None:
                self._archiver.close()
        finally:
            self.writer.close(self._close_parts)

    def _close_parts(self) -> None:
        with ExitStack() as last:  # closes the others when one fails
            last.callback(self._lock.release)
            last.callback(self._database.close)
            last.callback(self._sqlite.close)
            last.callback(self._places_recorder.close)
            last.callback(self.rank_store.close)

    def _finish(self) -> None:
        try:
            self.writer.flush_answers()
        except (RankdError, OSError) as problem:
            _log.warning("answers to the last requests are not stored: %s", problem)
        self._save_at_end()

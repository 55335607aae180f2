"""The stages of the embedded leaderboard while they run: started, kept in order, closed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from time import monotonic

from rankd.backend import Started
from rankd.background import be_nice
from rankd.clock import Clock, SystemClock
from rankd.errors import Closed, LedgerUnavailable, RankdError, SaveInterrupted
from rankd.folder import FolderLock
from rankd.intake.changes import Changes
from rankd.intake.writer import Writer
from rankd.ledger.database import LOG_AHEAD_BYTES, Database
from rankd.ledger.sqlite import SqliteLedger
from rankd.node.event_metadata import EventMetadata
from rankd.node.ranking import RankingBackend
from rankd.node.ranks import EngineRanks
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.verify import Report
from rankd.reads.joined import Joined
from rankd.registry.sqlite import SqliteRegistry
from rankd.seasons.archiving import Archiving
from rankd.seasons.retirement import Retirement
from rankd.seasons.rollover import RollOvers
from rankd.settings import Settings

UPKEEP_EVERY_S = 0.2
UPKEEP_AFTER_FAILURE_S = 2.0
PLACE_CHECK_EVERY_S = 0.5
PAGE_BYTES = 4_096
CHUNKS_BEHIND_MAX = 64  # of events not indexed by player, four million
REQUESTS_FORGOTTEN_AT_ONCE = 1_000
PLAYERS_WARMED_AT_ONCE = 5_000
WARMING_S = 0.04  # of each round of upkeep
_log = logging.getLogger("rankd")


class Embedded(RankingBackend):
    """Everything between `rankd.open` and `close`."""

    def __init__(
        self,
        *,
        lock: FolderLock,
        database: Database,
        ledger: SqliteLedger,
        ranks: EngineRanks,
        checkpoints: Checkpoints,
        archiving: Archiving,
        clock: Clock,
        settings: Settings,
        started: Started,
    ) -> None:
        """The ranks have caught up with the ledger."""
        self.registry = SqliteRegistry(
            database, settings.profiles_cached_max, ledger.tell_changes, settings.friends_bytes_max
        )
        self._retirement = Retirement(ranks.applier, ranks.store, archiving)
        self._roll_overs = RollOvers(ledger, ranks.follower, self._retirement)
        super().__init__(
            ledger=ledger,
            ranks=ranks,
            writer=Writer(ledger, ranks, self.registry, clock, settings, roll_overs=self._roll_overs),
            checkpoints=checkpoints,
            clock=clock,
            settings=settings,
            started=started,
        )
        self.changes = Changes(
            self.writer,
            ledger,
            ranks,
            instances_per_event_max=settings.instances_per_event_max,
            after_register=ledger.forget_numbers,
        )
        self.joined = Joined(self.applier.state, EventMetadata(ledger), self.registry, settings.metadata_cached_max)
        self._lock = lock
        self._database = database
        self._sqlite = ledger
        self._position_seen = -1  # by the upkeep before
        self._closing = threading.Event()
        self._closed = False
        self._upkeep = threading.Thread(target=self._keep_up, name="rankd-upkeep", daemon=True)
        self._upkeep.start()
        self._watching = threading.Thread(target=self._watch_place, name="rankd-place", daemon=True)
        self._watching.start()

    # Snapshots and proof

    def snapshot(self) -> None:
        """Write a checkpoint."""
        self._database.check_place()  # a checkpoint beside another ledger would be taken for one that is ahead of it
        super().snapshot()

    def verify(self, progress: Callable[[int], None] = lambda _events: None) -> Report:
        """Check the file, and compare what is ranked with what the ledger says."""
        self._database.check()
        self._sqlite.check()
        self.registry.check()
        return super().verify(progress)

    # Upkeep

    def settle(self) -> None:
        """Do all that is due, now."""
        self.writer.roll_over()
        self._retirement.look_at_all()
        self._retire()
        self._retirement.archiving.wait()
        self._retire()

    def _keep_up(self) -> None:
        be_nice()
        pause_s = UPKEEP_EVERY_S
        while not self._database.is_moved and not self._closing.wait(pause_s):
            pause_s = UPKEEP_AFTER_FAILURE_S
            try:
                self._keep_up_once()
                pause_s = UPKEEP_EVERY_S
            except (LedgerUnavailable, SaveInterrupted, OSError) as problem:
                if not self._database.is_moved:  # which was logged when it was found
                    _log.warning("upkeep waits: %s", problem)
            except Exception:
                _log.exception("upkeep failed, and goes on")

    def _watch_place(self) -> None:
        """Stop writing soon after the ledger was moved; not in upkeep, which may be at a snapshot for minutes."""
        with suppress(LedgerUnavailable, Closed):
            while not self._closing.wait(PLACE_CHECK_EVERY_S):
                self._database.check_place()

    def _keep_up_once(self) -> None:
        if isinstance(self.clock, SystemClock):
            self.writer.roll_over()
        self._retire()
        self._checkpoint()
        self._index_players()
        self._warm_players()
        if self._ranks.events - self._checkpoint_at >= self.settings.snapshot_events:
            self.snapshot()
        self.writer.flush_answers()
        self._ledger.forget_requests(self.clock.now() - self.settings.idempotency_ttl_ms, REQUESTS_FORGOTTEN_AT_ONCE)

    def _retire(self) -> None:
        now = self.clock.now()
        while due := self._roll_overs.retired(now):
            append = partial(self._roll_overs.append_retired, due, now)
            self.writer.run_for(partial(self.writer.append_control, append))

    def _index_players(self) -> None:
        """Index events by player while nothing is written, or when that has been put off for long."""
        behind = self._sqlite.player_index.behind(self._ranks.events)
        is_quiet = self._ranks.events == self._position_seen
        self._position_seen = self._ranks.events
        if behind > (0 if is_quiet else CHUNKS_BEHIND_MAX):
            self._sqlite.player_index.index_chunk()

    def _warm_players(self) -> None:
        """After a start, have more of the players' numbers in memory, a little at a time."""
        until = monotonic() + WARMING_S
        while monotonic() < until:
            players = self._sqlite.next_players(PLAYERS_WARMED_AT_ONCE)
            if players is None:
                return
            self.writer.run_for(partial(self._sqlite.warm_players, players))

    def _checkpoint(self) -> None:
        pages = self._database.log_pages
        with suppress(OSError):  # it only makes commits faster
            self._database.extend_log(LOG_AHEAD_BYTES)
        if pages * PAGE_BYTES < self.settings.checkpoint_bytes:
            return
        self._database.checkpoint()
        if self._database.log_pages * PAGE_BYTES >= self.settings.checkpoint_bytes_max:
            self.writer.run_for(lambda: self._database.checkpoint(restart=True))

    def close(self) -> None:
        """Finish what is under way, take a snapshot and let everything go, in the reverse of the path."""
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        self._upkeep.join()
        self._watching.join()
        self._retirement.archiving.close()
        try:
            self._finish()
        finally:
            self.writer.close(self._let_go)

    def _let_go(self) -> None:
        with ExitStack() as last:  # all of it, whatever one of them says
            last.callback(self._lock.release)
            last.callback(self._database.close)
            last.callback(self._sqlite.close)
            last.callback(self.rank_store.close)

    def _finish(self) -> None:
        try:
            self.writer.flush_answers()
        except (RankdError, OSError) as problem:
            _log.warning("answers to the last requests are not stored: %s", problem)
        self._snapshot_at_end()

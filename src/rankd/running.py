"""The stages of the embedded leaderboard while they run: started, kept in order, closed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from time import monotonic

from rankd.background import be_nice
from rankd.clock import Clock, SystemClock
from rankd.errors import Closed, LedgerUnavailable, RankdError, SaveInterrupted
from rankd.folder import FolderLock
from rankd.intake.changes import Changes
from rankd.intake.writer import Writer
from rankd.ledger.database import LOG_AHEAD_BYTES, Database
from rankd.ledger.port import PastEvent
from rankd.ledger.sqlite import SqliteLedger
from rankd.parts import Figures, Started
from rankd.projection.applier import Applier
from rankd.projection.counting import CountingStore
from rankd.projection.snapshots import Snapshots, Taken
from rankd.projection.verify import Report, digests, verify
from rankd.reads.joined import Joined
from rankd.reads.looking import LookHere
from rankd.registry.sqlite import SqliteRegistry
from rankd.seasons.archive import Archive
from rankd.settings import Settings

UPKEEP_EVERY_S = 0.2
UPKEEP_AFTER_FAILURE_S = 2.0
PLACE_CHECK_EVERY_S = 0.5
PAGE_BYTES = 4_096
SNAPSHOT_ATTEMPTS = 3  # a save gives up when too much changes while it is written
CHUNKS_BEHIND_MAX = 64  # of events not indexed by player, four million
REQUESTS_FORGOTTEN_AT_ONCE = 1_000
PLAYERS_WARMED_AT_ONCE = 5_000
WARMING_S = 0.04  # of each round of upkeep
_log = logging.getLogger("rankd")


class Running:
    """Everything between `rankd.open` and `close`."""

    remote = None  # ranks are made here

    def __init__(
        self,
        *,
        lock: FolderLock,
        database: Database,
        ledger: SqliteLedger,
        store: CountingStore,
        applier: Applier,
        snapshots: Snapshots,
        archive: Archive,
        clock: Clock,
        settings: Settings,
        started: Started,
    ) -> None:
        """The store has caught up with the ledger."""
        self.clock = clock
        self.settings = settings
        self.started = started
        self.applier = applier
        self.registry = SqliteRegistry(
            database, settings.profiles_cached_max, ledger.tell_changes, settings.friends_bytes_max
        )
        self.writer = Writer(ledger, applier, self.registry, clock, settings)
        self.changes = Changes(self.writer, ledger, applier, settings.instances_per_event_max)
        self.looking = LookHere(store, lambda: self.writer.position_token)
        self.joined = Joined(applier.state, ledger, self.registry, settings.metadata_cached_max)
        self._lock = lock
        self._database = database
        self._ledger = ledger
        self._store = store
        self._snapshots = snapshots
        self._archive = archive
        self._snapshot_at = started.snapshot or 0
        self._changed = applier.state.subscribe()  # boards of which a window may have become final
        self._position_seen = -1  # by the upkeep before
        self._leaving: list[tuple[int, str]] = []  # a heap: when a final window leaves, and its board
        self._snapshotting = threading.Lock()
        self._archiving = threading.Lock()
        self._closing = threading.Event()
        self._closed = False
        self._upkeep = threading.Thread(target=self._keep_up, name="rankd-upkeep", daemon=True)
        self._upkeep.start()
        self._watching = threading.Thread(target=self._watch_place, name="rankd-place", daemon=True)
        self._watching.start()

    def watch_commits(self, committed: Callable[[], None]) -> None:
        """Have a function called after each commit, in the thread that made it."""
        self.writer.on_commit = committed

    # Figures

    def figures(self) -> Figures:
        """Return how much there is."""
        return Figures(
            position=self.writer.position,
            snapshot=self._snapshot_at or None,
            entries=self._store.entries,
            engine_bytes=self._store.memory().total_bytes,
        )

    def entries_by_board(self, boards_max: int) -> dict[str, int]:
        """Return how many entries the instances of each board have, of at most so many boards."""
        return {
            board_id: self._store.board_entries(board_id) for board_id in islice(list(self.writer.boards), boards_max)
        }

    # Snapshots and proof

    def snapshot(self) -> None:
        """Take a snapshot: its instant is between two commits, its writing beside them."""
        self._database.check_place()  # a snapshot beside another ledger would be taken for one that is ahead of it
        with self._snapshotting:
            for attempt in range(1, SNAPSHOT_ATTEMPTS + 1):
                taken = self.writer.run_for(self._begin_snapshot)
                try:
                    self._snapshots.write(taken)
                except OSError as problem:
                    raise LedgerUnavailable(f"the snapshot cannot be written: {problem}") from problem
                except SaveInterrupted:
                    if attempt == SNAPSHOT_ATTEMPTS:
                        raise
                    continue
                self._snapshot_at = taken.sequence
                return

    def _begin_snapshot(self) -> Taken:
        return Taken(self._store.begin_save(), self._ledger.head(), self.applier.catalogue, self.applier.state)

    def verify(self, progress: Callable[[int], None] = lambda _sequence: None) -> Report:
        """Compare what is ranked with what the ledger says."""
        self._database.check()
        self._ledger.check()
        self.registry.check()
        ranked, upto = self.writer.run_for(lambda: (digests(self._store), self.writer.position))
        return verify(self._ledger, ranked, upto, progress)

    def history(self, player: str, limit: int, before: int | None, board: str | None) -> list[PastEvent]:
        """Return a player's own events, the newest first."""
        return self._ledger.history(player, limit, before, board)

    # Upkeep

    def settle(self) -> None:
        """Do all that is due, now."""
        self.writer.roll_over()
        self._changed.update(dict.fromkeys(list(self.writer.boards)))
        self._archive_and_retire()

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
        self._archive_and_retire()
        self._checkpoint()
        self._index_players()
        self._warm_players()
        if self.writer.position - self._snapshot_at >= self.settings.snapshot_events:
            self.snapshot()
        self.writer.flush_answers()
        self._ledger.forget_requests(self.clock.now() - self.settings.idempotency_ttl_ms, REQUESTS_FORGOTTEN_AT_ONCE)

    def _archive_and_retire(self) -> None:
        with self._archiving:
            self._archive_and_retire_now()

    def _archive_and_retire_now(self) -> None:
        now = self.clock.now()
        while self._leaving and self._leaving[0][0] <= now:
            self._changed[heappop(self._leaving)[1]] = None
        while self._changed:
            board_id, _ = self._changed.popitem()
            try:
                self._archive_and_retire_of(board_id, now)
            except BaseException:
                self._changed[board_id] = None  # the next upkeep tries again
                raise

    def _archive_and_retire_of(self, board_id: str, now: int) -> None:
        board, live = self.writer.boards.get(board_id), self.applier.state.boards.get(board_id)
        if board is None or live is None:  # deleted
            return
        for instance in [one for one in list(live.windows) if one in live.closed]:
            gone_at = board.gone_at(board.window_of(instance), instance)
            if gone_at is None:
                continue
            self._database.check_place()
            self._archive.keep(self._store, board, live, instance)
            if gone_at <= now:
                self.writer.retire(board.id, live.born, instance)
            else:
                heappush(self._leaving, (gone_at, board_id))

    def _index_players(self) -> None:
        """Index events by player while nothing is written, or when that has been put off for long."""
        behind = self._ledger.player_index.behind(self.writer.position)
        is_quiet = self.writer.position == self._position_seen
        self._position_seen = self.writer.position
        if behind > (0 if is_quiet else CHUNKS_BEHIND_MAX):
            self._ledger.player_index.index_chunk()

    def _warm_players(self) -> None:
        """After a start, have more of the players' numbers in memory, a little at a time."""
        until = monotonic() + WARMING_S
        while monotonic() < until:
            players = self._ledger.next_players(PLAYERS_WARMED_AT_ONCE)
            if players is None:
                return
            self.writer.run(partial(self._ledger.warm_players, players))

    def _checkpoint(self) -> None:
        pages = self._database.log_pages
        with suppress(OSError):  # it only makes commits faster
            self._database.extend_log(LOG_AHEAD_BYTES)
        if pages * PAGE_BYTES < self.settings.checkpoint_bytes:
            return
        self._database.checkpoint()
        if self._database.log_pages * PAGE_BYTES >= self.settings.checkpoint_bytes_max:
            self.writer.run(lambda: self._database.checkpoint(restart=True))

    def close(self) -> None:
        """Finish what is under way, take a snapshot and let everything go, in the reverse of the path."""
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        self._upkeep.join()
        self._watching.join()
        try:
            self._finish()
        finally:
            self.writer.close(self._let_go)

    def _let_go(self) -> None:
        with ExitStack() as last:  # all of it, whatever one of them says
            last.callback(self._lock.release)
            last.callback(self._database.close)
            last.callback(self._ledger.close)
            last.callback(self._store.close)

    def _finish(self) -> None:
        try:
            self.writer.flush_answers()
            if self.writer.position != self._snapshot_at:
                self.snapshot()
        except (RankdError, OSError) as problem:
            # The ledger has everything: without the snapshot the next start takes longer.
            _log.warning("no snapshot at the end: %s", problem)

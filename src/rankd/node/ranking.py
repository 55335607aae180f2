"""The base of every process that ranks, alone or as one of several."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext
from itertools import islice

from rankd.archive.windows import WindowArchive
from rankd.backend import AnswersLater, Figures, Started
from rankd.backup.archiver import ArchiveStatus
from rankd.backup.sending import Backup, no_archive_of_ours
from rankd.clock import Clock
from rankd.domain.board_selection import EVERY_BOARD, BoardSelection
from rankd.errors import LedgerUnavailable, RankdError, SaveInterrupted
from rankd.intake.sources import SourceIntake
from rankd.intake.writer import Writer
from rankd.ledger.audit import AuditMark, AuditQuery
from rankd.ledger.port import Ledger, PastEvent
from rankd.node.past_events import audit, past_events
from rankd.node.ranks import EngineRanks
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.state import State
from rankd.projection.verify import Report, digests, verify
from rankd.reads.audit import AuditPage
from rankd.reads.joined import Joined
from rankd.reads.past import OpenLedger, PastStates
from rankd.reads.rank_source import EngineRankSource
from rankd.seasons.history import PlaceHistory, PlaceRecorder
from rankd.settings import Settings

CHECKPOINT_ATTEMPTS = 3  # a save gives up when too much changes while it is written
_log = logging.getLogger("rankd")


class RankingBackend:
    """A ledger followed into an engine of this process."""

    later: AnswersLater | None = None  # a commit ranks
    remote = None  # ranked in this process
    lag_ms: float | None = None  # what a sole writer appends is ranked at once
    joined: Joined

    def __init__(
        self,
        *,
        ledger: Ledger,
        ranks: EngineRanks,
        writer: Writer,
        checkpoints: Checkpoints,
        archive: WindowArchive,
        clock: Clock,
        settings: Settings,
        started: Started,
        is_stale: Callable[[], bool] = lambda: False,
        places: PlaceHistory,
        recorder: PlaceRecorder | None = None,
        open_past: OpenLedger | None = None,
        kept: BoardSelection = EVERY_BOARD,
    ) -> None:
        """The ranks have caught up with the ledger; `open_past` opens it once more, where two followers need that."""
        self.clock = clock
        self.settings = settings
        self.started = started
        self.archive = archive
        self.applier = ranks.applier
        self.writer = writer
        self.sources = SourceIntake(writer)
        self.rank_store = ranks.store
        self.rank_source = EngineRankSource(ranks.store, lambda: ranks.position_token, is_stale)
        self._ledger = ledger
        self._ranks = ranks
        # A log is followed beside commits, everything else in the committing thread.
        self._run_alone = writer.run_for if ledger.capabilities.appends_conditionally else ranks.run_alone
        self._checkpoints = checkpoints
        self._saving_lock = threading.Lock()  # an engine runs one save at a time
        self._checkpoint_at = started.snapshot or 0  # events of the newest checkpoint
        self.places = places
        self._recorder = recorder
        self.past = PastStates(
            open_past or (lambda: nullcontext(ledger)),
            checkpoints,
            clock,
            settings,
            join=self._joined_with,
            archive=archive,
            kept=kept,
        )

    def _joined_with(self, state: State) -> Joined:
        return self.joined.of_state(state)

    @property
    def ledger(self) -> Ledger:
        """The ledger, for tools that read it."""
        return self._ledger

    def watch_commits(self, committed: Callable[[], None]) -> None:
        """Set the function that is called whenever the ranks advance, in the committing thread."""
        self._ranks.moved = committed

    def figures(self) -> Figures:
        """Return the position and the sizes."""
        return Figures(
            position=self._ranks.events,
            snapshot=self._checkpoint_at or None,
            entries=self.rank_store.entries,
            engine_bytes=self.rank_store.memory().total_bytes,
        )

    def entries_by_board(self, boards_max: int) -> dict[str, int]:
        """Return the number of entries of each board, for at most `boards_max` boards."""
        boards = islice(list(self.writer.boards), boards_max)
        return {board_id: self.rank_store.board_entries(board_id) for board_id in boards}

    def history(self, player: str, limit: int, before: int | None, board: str | None) -> list[PastEvent]:
        """Return a player's own events, the newest first."""
        return past_events(self._ledger, player, limit, before, board)

    @property
    def archive_status(self) -> ArchiveStatus | None:
        """None: this process sends its ledger nowhere."""
        return None

    def backup(self) -> Backup:
        """Refuse: whoever has the ledger copies it."""
        raise no_archive_of_ours()

    def audit(self, query: AuditQuery, before: AuditMark | None) -> AuditPage:
        """Return who did what, the newest first."""
        return audit(self._ledger, query, before)

    def snapshot(self) -> None:
        """Write a checkpoint of the state between two commits, while further commits go on."""
        with self._saving_lock:
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        for attempt in range(1, CHECKPOINT_ATTEMPTS + 1):
            checkpoint = self._run_alone(lambda: self._checkpoints.begin(self._ledger, self._ranks.follower))
            if self._recorder is not None:  # else a crash would lose what is behind this checkpoint
                self._recorder.flush()
            try:
                checkpoint.write()
            except OSError as problem:
                raise LedgerUnavailable(f"the checkpoint cannot be written: {problem}") from problem
            except SaveInterrupted:
                if attempt == CHECKPOINT_ATTEMPTS:
                    raise
                continue
            self._checkpoint_at = checkpoint.events
            return

    def verify(self, progress: Callable[[int], None] = lambda _events: None) -> Report:
        """Compare what is ranked here with what the ledger says."""
        ranked, upto = self._run_alone(self._digests)
        if self._recorder is not None:
            self._recorder.flush()
        return verify(self._ledger, ranked, upto, progress, self.places.check)

    def _digests(self) -> tuple[dict[str, tuple[int, int]], tuple[int, ...]]:
        self.applier.let_go_all()
        return digests(self.rank_store), self._ranks.follower.positions

    def _save_at_end(self) -> None:
        """Write a checkpoint if there are new events, for a faster start."""
        try:
            if self._ranks.events != self._checkpoint_at:
                self.snapshot()
        except (RankdError, OSError) as problem:
            _log.warning("no checkpoint at the end: %s", problem)

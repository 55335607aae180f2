"""The base of every process that follows a ledger others append to: a node, or a replica beside an embedded writer."""

from __future__ import annotations

import logging
import threading

import msgspec

from rankd.archive.windows import WindowArchive
from rankd.backend import Figures, Started
from rankd.clock import Clock
from rankd.domain.board_selection import EVERY_BOARD, BoardSelection
from rankd.errors import Closed, RankdError
from rankd.intake.writer import Writer
from rankd.ledger.port import Ledger
from rankd.node.lag import LagMonitor
from rankd.node.ranking import RankingBackend
from rankd.node.ranks import STEP_EVENTS, EngineRanks
from rankd.projection.checkpoints import Checkpoints
from rankd.reads.past import OpenLedger
from rankd.seasons.history import PlaceHistory, PlaceRecorder
from rankd.settings import Settings
from rankd.throttled_warnings import ThrottledWarnings

IDLE_WAIT_S = 0.2  # longest wait for an append; the ledger polls meanwhile
AFTER_FAILURE_S = 0.1
_log = logging.getLogger("rankd")


class FollowingBackend(RankingBackend):
    """A ledger followed into an engine of this process, by a thread."""

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
        stale_after_ms: int,
        lag: LagMonitor,
        places: PlaceHistory,
        recorder: PlaceRecorder | None = None,
        open_past: OpenLedger | None = None,
        kept: BoardSelection = EVERY_BOARD,
    ) -> None:
        """The ranks have caught up with the ledger; start `_following` when the rest is set up."""
        super().__init__(
            ledger=ledger,
            ranks=ranks,
            writer=writer,
            checkpoints=checkpoints,
            archive=archive,
            clock=clock,
            settings=settings,
            started=started,
            is_stale=lambda: clock.now() - ranks.complete_as_of > stale_after_ms,
            places=places,
            recorder=recorder,
            open_past=open_past,
            kept=kept,
        )
        self._lag = lag
        self._closing = threading.Event()
        self._following = threading.Thread(target=self._follow, name="rankd-follower", daemon=True)

    @property
    def lag_ms(self) -> float | None:  # type: ignore[override]
        """How far the ranks of this process are behind the ledger."""
        return self._lag.lag_ms

    def figures(self) -> Figures:
        """Return the backend's figures, with the lag of this process."""
        return msgspec.structs.replace(super().figures(), followed_at=self._ranks.complete_as_of, lag_ms=self.lag_ms)

    def _after_step(self, *, is_at_head: bool) -> None:
        """Do what comes after a step of following, in its thread."""

    # The follower's thread

    def _follow(self) -> None:
        warnings = ThrottledWarnings(_log)
        while not self._closing.is_set():
            try:
                self._ledger.wait(IDLE_WAIT_S)
                is_at_head = self._run_alone(self._ranks.follow) < STEP_EVENTS
                while self.applier.state.leaving and not self._closing.is_set():
                    self._run_alone(self.applier.let_go)
                self._after_step(is_at_head=is_at_head)
            except Closed:
                return
            except RankdError as problem:
                warnings.warn("this process waits, and retries following the ledger: %s", problem)
                self._closing.wait(AFTER_FAILURE_S)
            except Exception:
                _log.exception("following the ledger failed, and goes on")
                self._closing.wait(AFTER_FAILURE_S)

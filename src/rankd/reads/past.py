"""The boards as they were: reads of states that are worked out from the ledger.

    an instant → where the ledger was then (`sequences_at`) → the newest checkpoint before that → followed up to it
               → the roll-overs due by then → Reads whose clock stands at the instant

One thread works states out, one after the other. Readers who ask for the same instant share a state, and the ones used
last stay in memory.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDoneError
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic

import msgspec

from rankd.background import lower_priority, rare_collections
from rankd.clock import Clock, ManualClock
from rankd.domain.board_selection import EVERY_BOARD, BoardSelection
from rankd.domain.instant import check_at
from rankd.domain.position import tokens
from rankd.errors import Behind, Closed, InvalidValue, LedgerDamaged, Overloaded, Refused
from rankd.ledger.port import Ledger
from rankd.ledger.vector import reaches
from rankd.projection.catalogue import Catalogue
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.engine import EngineStore
from rankd.projection.follower import Follower
from rankd.projection.state import State
from rankd.reads.archived import ArchivedWindows
from rankd.reads.joined import Joined
from rankd.reads.rank_source import EngineRankSource
from rankd.reads.reads import Reads
from rankd.seasons.rollover import apply_due
from rankd.settings import Settings

FIELD = "as_of"
STEP_EVENTS = 10_000  # followed at a time: other threads come in between
COMPUTE_S_MAX = 600.0  # for one state
SETTLED_MS = 60_000  # after which no commit of an instant is under way any more, whatever a node's clock says
OpenLedger = Callable[[], AbstractContextManager[Ledger]]


class PastState(msgspec.Struct):
    """The boards at an instant, and where the ledger was."""

    reads: Reads
    upto: tuple[int, ...]
    is_settled: bool  # else the ledger is asked again whether something of that instant was committed since


class PastStates:
    """The states of past instants; from any thread."""

    def __init__(
        self,
        open_ledger: OpenLedger,
        checkpoints: Checkpoints,
        clock: Clock,
        settings: Settings,
        *,
        join: Callable[[State], Joined],
        archive: ArchivedWindows | None = None,
        kept: BoardSelection = EVERY_BOARD,
    ) -> None:
        """`open_ledger` opens a ledger that nobody else follows; `join` returns today's profiles for a state.

        `archive` has the windows that had left the ranks by then.
        """
        self._open_ledger = open_ledger
        self._checkpoints = checkpoints
        self._clock = clock
        self._settings = settings
        self._join = join
        self._archive = archive
        self._kept = kept
        self._lock = threading.Lock()
        self._states: OrderedDict[int, Future[PastState]] = OrderedDict()  # by instant, the one used last at the end
        self._thread: ThreadPoolExecutor | None = None
        self._is_closing = threading.Event()
        self.computed = 0  # states since the start

    def begin(self, instant: object) -> Future[PastState]:
        """Return the state of an instant, which may have to be worked out first; does not wait."""
        at = check_at(instant, FIELD)
        now = self._clock.now()
        if at > now:
            raise InvalidValue(FIELD, f"is {at - now} ms ahead of this server's clock; it must be in the past")
        with self._lock:
            if self._is_closing.is_set():
                raise Closed("the boards were closed")
            state = self._states.get(at)
            if state is not None and not _is_usable(state):
                known = state.result() if state.exception() is None else None
                state = self._states[at] = self._start(at, known)
            elif state is None:
                self._make_room()
                state = self._states[at] = self._start(at, None)
            self._states.move_to_end(at)
            return state

    def at(self, instant: object) -> Reads:
        """Return the boards at an instant; Behind where that takes longer than a reader waits."""
        try:
            return self.begin(instant).result(self._settings.as_of_wait_ms / 1_000).reads
        except NotDoneError:
            raise being_worked_out(instant) from None

    def close(self) -> None:
        """End the computation under way."""
        with self._lock:
            self._is_closing.set()
            thread, self._thread = self._thread, None
            self._states.clear()
        if thread is not None:
            thread.shutdown(cancel_futures=True)

    def _make_room(self) -> None:
        """Forget the state that was not used longest, so that there are never more than `as_of_max`."""
        states_max = self._settings.as_of_max
        if states_max == 0:
            raise Refused(f"{FIELD}: is not answered here; set ranks.as_of_max")
        if len(self._states) < states_max:
            return
        oldest = next((at for at, state in self._states.items() if state.done()), None)
        if oldest is None:
            raise Overloaded(f"{FIELD}: {len(self._states)} other instants are being worked out; ask again in a moment")
        del self._states[oldest]

    def _start(self, at: int, known: PastState | None) -> Future[PastState]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "rankd-as-of", initializer=lower_priority)
        return self._thread.submit(self._work_out, at, known)

    # The computing thread

    def _work_out(self, at: int, known: PastState | None) -> PastState:
        is_settled = self._clock.now() - at >= SETTLED_MS
        with self._open_ledger() as ledger, rare_collections():
            upto = ledger.sequences_at(at)
            if known is not None and known.upto == upto:
                known.is_settled = is_settled
                return known
            follower = self._follow(ledger, upto)
        apply_due(follower, at)
        self.computed += 1
        return PastState(self._reads(follower, at, tokens(dict(enumerate(upto)))), upto, is_settled)

    def _follow(self, ledger: Ledger, upto: tuple[int, ...]) -> Follower[EngineStore]:
        """Return a follower that stands where the ledger was, from the newest checkpoint that is not behind it."""
        deadline_s = monotonic() + COMPUTE_S_MAX
        follow = partial(Follower[EngineStore], kept=self._kept)
        follower = self._checkpoints.newest_upto(ledger, upto, EngineStore.load, follow)
        if follower is None:
            follower = follow(ledger, EngineStore(), State(), Catalogue())
        follower.applier.let_go_of_others()
        while not reaches(follower.positions, upto):
            if self._is_closing.is_set():
                raise Closed("the boards were closed")
            if monotonic() > deadline_s:
                raise Behind(
                    f"{FIELD}: no checkpoint is near enough, and the ledger could not be followed in "
                    f"{COMPUTE_S_MAX:.0f} s; keep more checkpoints (ranks.snapshots_kept)"
                )
            if not follower.follow(STEP_EVENTS, upto):
                raise LedgerDamaged("the ledger ends before a commit that it has; restore a copy")
        return follower

    def _reads(self, follower: Follower[EngineStore], at: int, position: str) -> Reads:
        applier = follower.applier
        return Reads(
            applier,
            applier.directory.boards.get,
            ManualClock(at),
            self._join(applier.state),
            self._settings,
            rank_source=EngineRankSource(follower.store, lambda: position),
            archive=self._archive,
            is_due=lambda _now, _board: False,
            roll_over=lambda _board: None,
            ledger_time=lambda: at,
        )


def _is_usable(state: Future[PastState]) -> bool:
    """Tell whether a state need not be worked out, or looked at, again."""
    return not state.done() or (not state.cancelled() and state.exception() is None and state.result().is_settled)


def being_worked_out(instant: object) -> Behind:
    """Return the error for a state that takes longer than a reader waits."""
    return Behind(f"{FIELD}: the boards as of {instant} are being worked out; ask again in a moment")

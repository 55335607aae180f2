"""A node: one `rankd serve` of several on a PostgreSQL ledger, which ranks in an engine of its own.

    clients → writer → PostgreSQL ← followed → engine → reads, live streams
                          ↑ roll-overs, archives: the node that holds the lease

Nodes do not know each other. What one appends the others follow; what is timed is done by whoever holds the lease.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from itertools import islice
from time import monotonic

from rankd.clock import Clock, SystemClock
from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.errors import Closed, LedgerUnavailable, RankdError, SaveInterrupted
from rankd.intake.queue import Task
from rankd.intake.results import Accepted, Batched, Submitted, without_rank
from rankd.intake.scores import ScoreTask, single_task
from rankd.intake.sender import Sender
from rankd.ledger.port import PastEvent
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node.boards import KnownBoards
from rankd.node.ranks import STEP_EVENTS, NodeRanks
from rankd.parts import Figures, Started
from rankd.projection.checkpoints import Checkpoints
from rankd.projection.verify import Report, digests, verify_followed
from rankd.reads.joined import Joined
from rankd.reads.looking import LookHere
from rankd.registry.postgres import PostgresRegistry
from rankd.scaled.changes import SharedChanges
from rankd.scaled.complaints import Complaints
from rankd.scaled.lease import Lease
from rankd.scaled.rollover import RollOvers
from rankd.scaled.running import EventMetadata, Names
from rankd.scaled.upkeep import LedgerUpkeep
from rankd.scaled.writer import SharedWriter, unknown_board
from rankd.settings import Settings

IDLE_WAIT_S = 0.2  # for something to be appended; the ledger is looked at all the while
AFTER_FAILURE_S = 0.1
LEASE_EVERY_S = 1.0
ROLL_OVER_EVERY_S = 0.2
_log = logging.getLogger("rankd")


class NodeWriter(SharedWriter):
    """Commits the scores of a node; whoever submits gets the rank, once this node has followed so far."""

    checks_early = False

    def __init__(
        self, ledger: PostgresLedger, ranks: NodeRanks, registry: PostgresRegistry, clock: Clock, settings: Settings
    ) -> None:
        """The ranks are at the end of the ledger, or nearly."""
        super().__init__(ledger, ranks, registry, clock, settings)
        self._ranks = ranks
        self._known = KnownBoards(ranks.boards, lambda: self.run_for(ranks.catch_up))

    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards as they are defined; one that is not known is looked for in the ledger."""
        return self._known

    def board(self, board_id: str) -> Board:
        """Return a board as it is defined now; in the committing thread."""
        if board_id not in self._ranks.boards:
            self._ranks.catch_up()
        if board_id not in self._ranks.boards:
            raise unknown_board(board_id)
        return self._ranks.boards[board_id]

    @property
    def position_token(self) -> str:
        """How far the ledger is ranked here."""
        return self._ranks.position_token

    def submit(self, task: ScoreTask) -> object:
        """Count scores."""
        result = super().submit(task)
        if not isinstance(result, Accepted):
            return result
        return without_rank(task, result) if task.answers else Batched(result.position, result.count, result.repeated)

    def submit_single(self, board: Board, player: str, score: int, tiebreak: int, sender: Sender) -> Submitted:
        """Count one score."""
        answer = self.submit(single_task(board, player, score, tiebreak, sender))
        if not isinstance(answer, Submitted):
            raise AssertionError("a single score is answered with Submitted")
        return answer

    def close(self) -> None:
        """Take nothing more, once what is under way is done."""
        self._known.close()
        super().close()

    def _commit(self, group: list[Task]) -> None:
        self.check_open()
        if isinstance(group[0], ScoreTask):
            self._ranks.get_ready()
        super()._commit(group)

    def is_due(self, _now: int) -> bool:
        """Roll-overs are the lease holder's, between commits."""
        return False

    def roll_over(self) -> None:
        """Roll-overs are the lease holder's, between commits."""


class Node:
    """Everything between opening a node and closing it."""

    remote = None  # ranks are made here

    def __init__(
        self,
        *,
        ledger: PostgresLedger,
        registry: PostgresRegistry,
        ranks: NodeRanks,
        lease: Lease,
        roll_overs: RollOvers,
        checkpoints: Checkpoints,
        clock: Clock,
        settings: Settings,
        started: Started,
        stale_after_ms: int,
        let_go: Callable[[], None],
    ) -> None:
        """The ranks have caught up with the ledger; `let_go` closes whatever was opened for it."""
        self.clock = clock
        self.settings = settings
        self.started = started
        self.applier = ranks.applier
        self.registry = registry
        self.writer = NodeWriter(ledger, ranks, registry, clock, settings)
        self.changes = SharedChanges(
            self.writer,
            ledger,
            ranks,
            self._is_there,
            instances_per_event_max=settings.instances_per_event_max,
        )
        self.looking = LookHere(
            ranks.follower.store,
            lambda: ranks.position_token,
            lambda: clock.now() - ranks.is_complete_as_of > stale_after_ms,
        )
        self.joined = Joined(
            self.applier.state,
            EventMetadata(ledger),
            Names(registry, registry.held_profiles),
            settings.metadata_cached_max,
        )
        self._ledger = ledger
        self._ranks = ranks
        self._store = ranks.follower.store
        self._lease = lease
        self._lease_lock = threading.Lock()
        self._roll_overs = roll_overs
        self._checkpoints = checkpoints
        self._checkpoint_at = started.snapshot or 0
        self._saving: threading.Thread | None = None
        self._snapshotting = threading.Lock()  # an engine has one save under way
        self._let_go = let_go
        self._lease_seen_s = self._rolled_over_s = -LEASE_EVERY_S
        self.holds_lease = False
        self._closing = threading.Event()
        self._upkeep = LedgerUpkeep(
            ledger,
            self.writer,
            clock,
            settings.idempotency_ttl_ms,
            meet=registry.meet,
            make_months=ledger.make_months,
        )
        self._following = threading.Thread(target=self._follow, name="rankd-follower", daemon=True)
        self._following.start()

    def watch_commits(self, committed: Callable[[], None]) -> None:
        """Have a function called whenever the ranks have moved on, in the thread that moved them."""
        self._ranks.moved = committed

    def figures(self) -> Figures:
        """Return how much there is."""
        return Figures(
            position=sum(self._ranks.positions.values()),
            snapshot=self._checkpoint_at or None,
            entries=self._store.entries,
            engine_bytes=self._store.memory().total_bytes,
            followed_at=self._ranks.is_complete_as_of,
            holds_lease=self.holds_lease,
        )

    def entries_by_board(self, boards_max: int) -> dict[str, int]:
        """Return how many entries the instances of each board have, of at most so many boards."""
        return {
            board_id: self._store.board_entries(board_id) for board_id in islice(list(self.writer.boards), boards_max)
        }

    def history(self, player: str, limit: int, before: int | None, board: str | None) -> list[PastEvent]:
        """Return a player's own events, the newest first."""
        return self._ledger.history(player, limit, before, board)

    def snapshot(self) -> None:
        """Write a checkpoint: its instant is between two commits, its writing beside them."""
        with self._snapshotting:
            checkpoint = self.writer.run_for(lambda: self._checkpoints.begin(self._ledger, self._ranks.follower))
            try:
                checkpoint.write()
            except OSError as problem:
                raise LedgerUnavailable(f"the checkpoint cannot be written: {problem}") from problem
            self._checkpoint_at = checkpoint.events

    def settle(self) -> None:
        """Follow the ledger to its end, and do all that is due if this node holds the lease or can have it."""
        self.writer.run_for(self._ranks.catch_up)
        self._claim_or_keep_lease()
        archiving = self._roll_overs.archiving
        while self.holds_lease:
            archived = archiving.finished
            if not self.writer.run_for(self._roll_over):
                archiving.wait()
                if archiving.finished == archived:
                    return

    def verify(self, progress: Callable[[int], None] = lambda _sequence: None) -> Report:
        """Compare what is ranked here with what the ledger says."""
        ranked, positions = self.writer.run_for(lambda: (digests(self._store), self._ranks.follower.positions))
        return verify_followed(self._ledger, ranked, positions, progress)

    def close(self) -> None:
        """Finish what is under way, write a checkpoint and let everything go."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._following.join()
        self._upkeep.close()
        self._lease.release()  # so that another takes over meanwhile
        self._roll_overs.close()
        if self._saving is not None:
            self._saving.join()
        try:
            if sum(self._ranks.positions.values()) > self._checkpoint_at:
                self._save()
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
            self.writer.run_for(self._roll_over)

    def _claim_or_keep_lease(self) -> None:
        with self._lease_lock:
            held = self._lease.is_held() if self.holds_lease else self._lease.claim()
            if held != self.holds_lease:
                _log.info("this node %s", "does what is timed now" if held else "has lost the lease")
            self.holds_lease = held

    def _roll_over(self) -> int:
        done = self._roll_overs.roll_over(self._ranks.follower)
        if done:
            self._ranks.catch_up()
        return done

    def _save_now_and_then(self) -> None:
        behind = sum(self._ranks.positions.values()) - self._checkpoint_at
        is_saving = self._saving is not None and self._saving.is_alive()
        if behind >= self.settings.snapshot_events and not is_saving:
            self._saving = threading.Thread(target=self._save, name="rankd-checkpoint")
            self._saving.start()

    def _save(self) -> None:
        try:
            self.snapshot()
        except (RankdError, SaveInterrupted) as problem:
            _log.warning("no checkpoint: %s; the next start reads more of the ledger", problem)

    def _is_there(self, board_id: str, player: str) -> bool:
        def is_there() -> bool:
            self._ranks.catch_up()
            live = self.applier.state.boards.get(board_id)
            return live is not None and any(
                self._store.score(InstanceKey(board_id, window, scope), player) is not None
                for window, scopes in live.windows.items()
                for scope in scopes
            )

        return self.writer.run_for(is_there)

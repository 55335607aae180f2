"""The port that `Boards` works on: `Embedded` (one process), `Node` and `Thin` (one of many) implement it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from rankd.archive.windows import WindowArchive
from rankd.backup.archiver import ArchiveStatus
from rankd.backup.sending import Backup
from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.intake.backpressure import Backpressure
from rankd.intake.queue import Task
from rankd.intake.results import Accepted, Changed, Submitted
from rankd.intake.scores import ScoreTask
from rankd.intake.sender import Sender
from rankd.intake.sources import SourceIntake
from rankd.ledger.audit import AuditMark, AuditQuery
from rankd.ledger.port import PastEvent
from rankd.projection.applier import Applier
from rankd.projection.port import RankedStanding, RankStore
from rankd.projection.verify import Report
from rankd.reads.audit import AuditPage
from rankd.reads.joined import Joined
from rankd.reads.past import PastStates
from rankd.reads.rank_source import RankSource
from rankd.registry.port import Registry
from rankd.seasons.history import PlaceHistory
from rankd.settings import Settings


class Started(msgspec.Struct, frozen=True):
    """How opening a folder went."""

    position: int
    snapshot: int | None  # position of the checkpoint that was loaded
    snapshots_skipped: int
    replayed: int  # events
    seconds: float


class Figures(msgspec.Struct, frozen=True):
    """Counts and sizes for metrics."""

    position: int  # of the last event
    snapshot: int | None  # the last event of the newest checkpoint
    entries: int  # of all instances
    engine_bytes: int
    followed_at: int | None = None  # of a node: what was committed by then, in ms, is ranked
    holds_lease: bool | None = None  # of a node: whether it runs the timed work
    lag_ms: float | None = None  # of the ranks behind a shared ledger
    refused: int | None = None  # events of a log that its follower refused since the start
    repeats: int | None = None  # events of a log that were repeats


class BoardWrites(Protocol):
    """The write side as `Boards` uses it."""

    @property
    def checks_early(self) -> bool:
        """Whether scores are checked against this process's definitions before they are queued; else at the commit."""

    @property
    def boards(self) -> Mapping[str, Board]:
        """The current definitions."""

    def find_board(self, board_id: str) -> Board | None:
        """Return the current definition of a board; one that is unknown here is looked up in the ledger."""

    @property
    def at(self) -> int:
        """The ledger's time."""

    @property
    def position_token(self) -> str:
        """The ledger's position, as clients see it."""

    @property
    def backpressure(self) -> Backpressure:
        """Decides whether writes pass while ranks lag."""

    def submit(self, task: ScoreTask) -> object:
        """Commit scores and return the result."""

    def enqueue(self, tasks: Sequence[Task], on_done: Callable[[list[Task], float], None]) -> None:
        """Queue scores without waiting; see `GroupCommit.enqueue`."""

    def is_due(self, now: int, board_id: str) -> bool:
        """Tell whether a roll-over of a board is due."""

    def roll_over(self, board_id: str) -> None:
        """Append the roll-overs of a board that are due."""

    def check_open(self) -> None:
        """Raise Closed after `close`."""

    def check_ready(self) -> None:
        """Raise where another process should answer: Closed, Behind before it has caught up, or LedgerNewer."""


class Read:
    """A read to be batched with others: its result, its error, or that it needs a thread."""

    __slots__ = ("done", "error", "is_wanted", "needs_thread", "result", "work")

    def __init__(self, work: Callable[[], Any], done: Callable[[Read], None]) -> None:
        """`done` is for the caller that queued it."""
        self.work = work
        self.done = done
        self.result: Any = None
        self.error: Exception | None = None
        self.needs_thread = False
        self.is_wanted = True  # False once all callers have left


class BatchedReads(Protocol):
    """Batches reads that arrive together."""

    def put(self, reads: list[Read]) -> None:
        """Queue reads; from any thread. A read that is no longer wanted at its turn is reported done, and not made."""

    def close(self) -> None:
        """Finish the queued reads, and end; blocks."""


class Before(NamedTuple):
    """A player's standing before a score; None for none."""

    standing: RankedStanding | None


class LedgerFreshness(NamedTuple):
    """The ledger's positions at a moment, or a little later."""

    at_s: float  # by the monotonic clock
    sequences: Mapping[int, int]  # by partition


# The position of any ranked board: one defined a moment ago may not be ranked yet.
RANKED: Mapping[int, int] = MappingProxyType({0: 0})
NEW_WAIT_MS = 500  # how long a score that wants its rank waits for such a board


class AnswersLater(Protocol):
    """Answers scores that are durable before they are ranked; from any thread."""

    def submit(self, task: ScoreTask) -> object:
        """Append scores and wait for their rank; those not ranked in time are answered without."""

    def standing_before(self, task: ScoreTask) -> Before | None:
        """Return the player's standing before the commit; None where it cannot be read.

        Raises RanksUnavailable where Redis has nothing of the board, which may be new: a short wait may help.
        """

    def ranked(self, task: ScoreTask, accepted: Accepted, before: Before | None) -> Submitted | None:
        """Answer a durable score that was ranked a moment ago; None where the rank cannot be read. Never raises."""


class Remote(AnswersLater, Protocol):
    """The services of an API process whose ranks are made by a projector; from any thread."""

    @property
    def ledger_seen(self) -> LedgerFreshness:
        """The ledger's positions as polled last, a few times a second."""

    def ranked_upto(self, boards: Sequence[str]) -> dict[str, Mapping[int, int]]:
        """Return each board's ranked positions, by partition, in one round trip; unreachable ones are left out."""

    def read_batcher(self, on_done: Callable[[list[Read]], None]) -> BatchedReads:
        """Start a batcher; it calls `on_done` with the finished reads, in another thread."""

    def share_rates(self, spent: list[tuple[str, str, float]]) -> Sequence[int]:
        """Add what callers spent of their limits here, in ms, to the shared totals; return what each caller owes.

        Returns nothing when Redis is unavailable: then each process applies its own limits.
        """


class BoardChanges(Protocol):
    """The changes other than scores, as `Boards` uses them."""

    def register(self, work: Callable[[], object], request: object, sender: Sender) -> None:
        """Run a change of the registry, once for each key."""

    def define(self, board_id: object, definition: object, sender: Sender) -> Changed:
        """Define a board or change it."""

    def delete(self, board_id: str, sender: Sender) -> Changed:
        """Delete a board."""

    def remove(self, board_id: str, player: str, sender: Sender) -> Changed:
        """Remove a player."""

    def reset(self, board_id: str, window: str | None, sender: Sender) -> Changed:
        """Empty current instances."""


class Backend(Protocol):
    """What `Boards` works on."""

    clock: Clock
    settings: Settings
    started: Started
    applier: Applier
    joined: Joined

    @property
    def places(self) -> PlaceHistory | None:
        """Where players stood; None where another process ranks."""

    @property
    def past(self) -> PastStates | None:
        """Works past states out; None where another process ranks."""

    @property
    def rank_store(self) -> RankStore:
        """The ranks of this process."""

    @property
    def registry(self) -> Registry:
        """Profiles and friends."""

    @property
    def writer(self) -> BoardWrites:
        """Takes scores."""

    @property
    def changes(self) -> BoardChanges:
        """Takes other changes."""

    @property
    def sources(self) -> SourceIntake:
        """Takes what is read from topics of other systems."""

    @property
    def rank_source(self) -> RankSource:
        """Opens reads."""

    @property
    def archive(self) -> WindowArchive | None:
        """Windows that are over; None where this process has no archive."""

    @property
    def later(self) -> AnswersLater | None:
        """Answers scores that are ranked after their commit; None where a commit ranks them."""

    @property
    def remote(self) -> Remote | None:
        """The services of a process whose ranks another process makes; None where this process ranks."""

    @property
    def lag_ms(self) -> float | None:
        """How far the ranks are behind the ledger; None where they cannot lag, or while the lag is unknown."""

    def watch_commits(self, committed: Callable[[], None]) -> None:
        """Call a function after each commit, in the thread that made it."""

    def figures(self) -> Figures:
        """Return counts and sizes."""

    def entries_by_board(self, boards_max: int) -> dict[str, int]:
        """Return how many entries the instances of each board have."""

    def history(self, player: str, limit: int, before: int | None, board: str | None) -> list[PastEvent]:
        """Return a player's own events."""

    @property
    def archive_status(self) -> ArchiveStatus | None:
        """How far the archive is behind the ledger; None where this process sends nothing there."""

    def backup(self) -> Backup:
        """Send everything to the archive now, and return when it is there."""

    def audit(self, query: AuditQuery, before: AuditMark | None) -> AuditPage:
        """Return who did what."""

    def snapshot(self) -> None:
        """Save the ranks to disk."""

    def settle(self) -> None:
        """Do the due roll-overs and upkeep now."""

    def verify(self, progress: Callable[[int], None] = ..., /) -> Report:
        """Compare the ranks with the ledger."""

    def close(self) -> None:
        """Close everything."""

"""What the public object stands on: the parts of one process with everything in it, or of one of many.

`Boards` knows these and nothing else: `Embedded` (embedded) and `SharedRunning` (scaled out) have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.intake.queue import Task
from rankd.intake.results import Accepted, Changed, Submitted
from rankd.intake.scores import ScoreTask
from rankd.intake.sender import Sender
from rankd.ledger.port import PastEvent
from rankd.projection.applier import Applier
from rankd.projection.port import RankStore, Standing
from rankd.projection.verify import Report
from rankd.reads.joined import Joined
from rankd.reads.looking import Looking
from rankd.registry.port import Registry
from rankd.settings import Settings


class Started(msgspec.Struct, frozen=True):
    """What opening a folder found and did."""

    position: int
    snapshot: int | None  # position of the snapshot that was loaded
    snapshots_passed_over: int
    replayed: int  # events
    seconds: float


class Figures(msgspec.Struct, frozen=True):
    """How much there is."""

    position: int  # of the last event
    snapshot: int | None  # the last event of the newest snapshot
    entries: int  # of all instances
    engine_bytes: int
    followed_at: int | None = None  # of a node: what was committed by then, in ms, is ranked
    holds_lease: bool | None = None  # of a node: whether it does what is timed


class Writes(Protocol):
    """The writing side as `Boards` uses it."""

    @property
    def checks_early(self) -> bool:
        """Whether scores are checked by the definitions known here before they are handed in; else when committed."""
        ...

    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards as they are defined now."""
        ...

    def find_board(self, board_id: str) -> Board | None:
        """Return a board as it is defined now; one that is not known is looked for in the ledger."""
        ...

    @property
    def at(self) -> int:
        """The ledger's time."""
        ...

    @property
    def position_token(self) -> str:
        """How far the ledger is, as clients see it."""
        ...

    def submit(self, task: ScoreTask) -> object:
        """Count scores."""
        ...

    def submit_all(self, tasks: list[Task]) -> None:
        """Count the scores of many callers; each task has its result or its error then."""
        ...

    def is_due(self, now: int) -> bool:
        """Tell whether a roll-over is due."""
        ...

    def roll_over(self) -> None:
        """Append what the clock has made due."""
        ...

    def check_open(self) -> None:
        """Refuse what comes after the end."""
        ...

    def check_ready(self) -> None:
        """Refuse where no score would be taken whatever it is: LedgerNewer where the ledger is beyond this version."""
        ...


class Read:
    """A read that is to be made with others: what it returned, or raised, or that it is to be made in a thread."""

    __slots__ = ("done", "error", "is_wanted", "needs_thread", "result", "work")

    def __init__(self, work: Callable[[], Any], done: Callable[[Read], None]) -> None:
        """`done` is for whoever put it in."""
        self.work = work
        self.done = done
        self.result: Any = None
        self.error: Exception | None = None
        self.needs_thread = False
        self.is_wanted = True  # until everybody who asked for it went away


class ReadsTogether(Protocol):
    """Where reads are made that arrive together."""

    def put(self, reads: list[Read]) -> None:
        """Make reads; from any thread. One that nobody wants any more when its turn comes is told of, and not made."""
        ...

    def close(self) -> None:
        """Make what was put in, and end; blocks."""
        ...


class Before(NamedTuple):
    """Where a player stood before a score; None for nowhere."""

    standing: Standing | None


class LedgerSeen(NamedTuple):
    """How far the ledger was at a moment, or a little later."""

    at_s: float  # by the monotonic clock
    sequences: Mapping[int, int]  # by partition


# The position of a board that is ranked at all: one defined a moment ago may not be yet.
RANKED: Mapping[int, int] = MappingProxyType({0: 0})
NEW_WAIT_MS = 500  # how long a score may wait for such a board, where its rank is wanted


class Remote(Protocol):
    """What an API process needs where ranking is another process's work; from any thread."""

    @property
    def ledger_seen(self) -> LedgerSeen:
        """How far the ledger was when it was looked at last, which is a few times a second."""
        ...

    def standing_before(self, task: ScoreTask) -> Before | None:
        """Return where its player stands before it is committed; None where that cannot be told.

        RanksUnavailable where Redis has nothing of the board, which may be new: it may be worth a moment's waiting.
        """
        ...

    def ranked(self, task: ScoreTask, accepted: Accepted, before: Before | None) -> Submitted | None:
        """Answer a score that is durable and was ranked a moment ago; None where that cannot be told. Never fails."""
        ...

    def ranked_upto(self, boards: Sequence[str]) -> dict[str, Mapping[int, int]]:
        """Return how far boards are ranked, by partition, of those that can be asked; one round trip."""
        ...

    def lane(self, tell: Callable[[list[Read]], None]) -> ReadsTogether:
        """Begin to make reads together; `tell` hears of those that are made, in another thread."""
        ...

    def share_rates(self, spent: list[tuple[str, str, float]]) -> Sequence[int]:
        """Add what callers spent of their limits here, in ms, to what they spent anywhere; return what each owes.

        Nothing is returned when nobody can be asked: then each process holds its own limits.
        """
        ...


class MakesChanges(Protocol):
    """Everything that is no score, as `Boards` asks for it."""

    def register(self, work: Callable[[], object], said: object, sender: Sender) -> None:
        """Change the registry."""
        ...

    def define(self, board_id: object, definition: object, sender: Sender) -> Changed:
        """Define a board or change it."""
        ...

    def delete(self, board_id: str, sender: Sender) -> Changed:
        """Delete a board."""
        ...

    def remove(self, board_id: str, player: str, sender: Sender) -> Changed:
        """Take a player out."""
        ...

    def reset(self, board_id: str, window: str | None, sender: Sender) -> Changed:
        """Empty current instances."""
        ...


class Backend(Protocol):
    """What `Boards` stands on: in one process, or one of many."""

    clock: Clock
    settings: Settings
    started: Started
    applier: Applier
    joined: Joined

    @property
    def rank_store(self) -> RankStore:
        """What is ranked in this process."""
        ...

    @property
    def registry(self) -> Registry:
        """Who the players are."""
        ...

    @property
    def writer(self) -> Writes:
        """Where scores go in."""
        ...

    @property
    def changes(self) -> MakesChanges:
        """Where other changes go in."""
        ...

    @property
    def looking(self) -> Looking:
        """Where ranks come out."""
        ...

    @property
    def remote(self) -> Remote | None:
        """What waits for ranks, where another process makes them."""
        ...

    def watch_commits(self, committed: Callable[[], None]) -> None:
        """Have a function called after each commit, in the thread that made it."""
        ...

    def figures(self) -> Figures:
        """Return how much there is."""
        ...

    def entries_by_board(self, boards_max: int) -> dict[str, int]:
        """Return how many entries the instances of each board have."""
        ...

    def history(self, player: str, limit: int, before: int | None, board: str | None) -> list[PastEvent]:
        """Return a player's own events."""
        ...

    def snapshot(self) -> None:
        """Save what is ranked."""
        ...

    def settle(self) -> None:
        """Do all that is due, now."""
        ...

    def verify(self, progress: Callable[[int], None] = ..., /) -> Report:
        """Compare what is ranked with the ledger."""
        ...

    def close(self) -> None:
        """Let everything go."""
        ...

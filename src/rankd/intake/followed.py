"""The ledger as far as this process follows it: the writer's boards, and the results of its tasks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import monotonic
from typing import Protocol

from rankd.domain.board import Board
from rankd.errors import LedgerNewer, LedgerUnavailable
from rankd.intake.commit import Commit
from rankd.intake.results import Question
from rankd.intake.scores import ScoreTask
from rankd.ledger.port import Appended, StoredRequest
from rankd.projection.applier import Applier

AGAIN_S = 0.05


class FollowedLedger(Protocol):
    """The committing thread calls the methods; any thread may read the properties."""

    @property
    def applier(self) -> Applier:
        """The applier, with the state after the last event followed."""
        ...

    @property
    def boards(self) -> Mapping[str, Board]:
        """The defined boards by id."""
        ...

    @property
    def seen(self) -> int:
        """The number of control events followed."""
        ...

    @property
    def at(self) -> int:
        """The ledger's time at the last event followed."""
        ...

    @property
    def checks_early(self) -> bool:
        """Whether callers may check scores by these definitions before the commit."""
        ...

    @property
    def has_caught_up(self) -> bool:
        """Whether it has reached the ledger's head once, or came close to it."""
        ...

    @property
    def beyond(self) -> LedgerNewer | None:
        """The error of a ledger with events that only a newer version understands; None while it is followed."""
        ...

    @property
    def position_token(self) -> str:
        """The position followed so far, as a token for clients."""
        ...

    @property
    def has_changed(self) -> bool | None:
        """Whether the last event other than a score changed anything; None where this process does not rank."""
        ...

    def check_as_of(self, seen: int) -> None:
        """Raise DefinitionsChanged where a log is followed, and not only so many control events any more."""
        ...

    def version_of(self, board_id: str) -> int:
        """Return a board's version; raises DefinitionsChanged after its deletion."""
        ...

    def get_ready(self) -> None:
        """Prepare for checking and committing scores."""
        ...

    def catch_up(self) -> object:
        """Follow all committed control events; where this process ranks, all events."""
        ...

    def rank(self, commit: Commit, appended: Appended) -> None:
        """Where this process ranks, apply the appended events and answer the commit's questions."""
        ...

    def result(self, task: ScoreTask, question: Question | None, positions: Mapping[int, int], at: int) -> object:
        """Return the result of a task after `rank`."""
        ...

    def result_again(self, task: ScoreTask, request: StoredRequest) -> object:
        """Return the current result of a task that was committed before."""
        ...


def catch_up_within(wait_ms: int, followed: FollowedLedger) -> None:
    """Follow what has changed; a ledger that is away is asked again for some time."""
    deadline_s, pause = monotonic() + wait_ms / 1_000, threading.Event()
    while True:
        try:
            followed.catch_up()
            return
        except LedgerUnavailable:
            if monotonic() >= deadline_s:
                raise
            pause.wait(AGAIN_S)

"""The ledger as far as this process has followed it: what the writer knows of boards, and what answers its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rankd.domain.board import Board
from rankd.errors import LedgerNewer
from rankd.intake.commit import Commit
from rankd.intake.results import Question
from rankd.intake.scores import ScoreTask
from rankd.ledger.port import Appended, Request
from rankd.projection.applier import Applier


class FollowedLedger(Protocol):
    """Used by the committing thread; what is a property may be read from any."""

    @property
    def applier(self) -> Applier:
        """What applies events, with the state as of the last one."""
        ...

    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards as they are defined, by id."""
        ...

    @property
    def seen(self) -> int:
        """How many control events were followed."""
        ...

    @property
    def at(self) -> int:
        """The ledger's time at the last event that was followed."""
        ...

    @property
    def checks_early(self) -> bool:
        """Whether scores may be checked by the definitions known before they are committed."""
        ...

    @property
    def beyond(self) -> LedgerNewer | None:
        """What keeps this process from following the ledger: it holds what only a newer version understands."""
        ...

    @property
    def position_token(self) -> str:
        """How far it is followed, as clients see it."""
        ...

    @property
    def has_changed(self) -> bool | None:
        """Whether the last event that is no score changed anything; None where this process does not rank."""
        ...

    def version_of(self, board_id: str) -> int:
        """Return the version that a board is defined under; DefinitionsChanged where it is not defined any more."""
        ...

    def get_ready(self) -> None:
        """Do what comes before scores are checked and committed."""
        ...

    def catch_up(self) -> object:
        """Follow all control events that are committed by now; where this process ranks, all events."""
        ...

    def rank(self, commit: Commit, appended: Appended) -> None:
        """Follow what was just appended, where this process ranks, and answer what the commit asks."""
        ...

    def result(self, task: ScoreTask, question: Question | None, positions: Mapping[int, int], at: int) -> object:
        """Return the result of a task whose commit was ranked."""
        ...

    def result_again(self, task: ScoreTask, request: Request) -> object:
        """Return the result of a task that was committed before, as it is now."""
        ...

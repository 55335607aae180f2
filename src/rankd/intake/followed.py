"""The ledger as far as this process has followed it: what the writer knows of boards, and what answers its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from rankd.domain.board import Board
from rankd.intake.results import Question
from rankd.intake.scores import ScoreTask
from rankd.ledger.partitioned import Appended, Request
from rankd.projection.applier import Applier


class Added(NamedTuple):
    """A task of a commit, what its answer asks, and the index of its first event in the commit."""

    task: ScoreTask
    question: Question | None
    first: int


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

    def version_of(self, board_id: str) -> int:
        """Return the version that a board is defined under; DefinitionsChanged where it is not defined any more."""
        ...

    def catch_up(self) -> object:
        """Follow all control events that are committed by now."""
        ...

    def settle(self, positions: Mapping[int, int]) -> None:
        """Follow what this process appended, where it ranks."""
        ...

    def answer(self, added: Sequence[Added], appended: Appended) -> None:
        """Set the results of tasks that were committed."""
        ...

    def answer_again(self, task: ScoreTask, request: Request) -> object:
        """Return the result of a task that was committed before."""
        ...

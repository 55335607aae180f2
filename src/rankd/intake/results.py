"""The answers to writes, and the question that the answer to a score resolves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.domain.scope import GLOBAL
from rankd.domain.window import ClockReading
from rankd.intake.scores import ScoreTask
from rankd.projection.port import RankedStanding, RowChange


class Submitted(msgspec.Struct, frozen=True):
    """The answer to one score: the kept score and the rank in the board's first window."""

    position: str
    board: str
    player: str
    window: str | None
    score: int | None
    previous_score: int | None
    changed: bool
    rank: int | None
    previous_rank: int | None
    repeated: bool = False


class Batched(msgspec.Struct, frozen=True):
    """The answer to many scores."""

    position: str
    count: int
    repeated: bool = False


class Changed(msgspec.Struct, frozen=True):
    """The answer to any other change: its position in the ledger, and whether it changed anything."""

    position: str
    changed: bool = True
    repeated: bool = False


class Accepted(msgspec.Struct, frozen=True):
    """The answer to scores that are durable and not yet ranked."""

    position: str
    count: int
    repeated: bool = False
    question: Question | None = None  # resolved after ranking
    at: int = 0  # the ledger's time


NOWHERE = RowChange(changed=False, old_score=None, new_score=None, rank_before=None, rank_after=None)


class Question:
    """The standing before and after a commit, for the answer to a score."""

    __slots__ = ("change", "instance", "ranking", "subject")

    def __init__(self, instance: InstanceKey, subject: str | None, ranking: Ranking) -> None:
        """`subject` is the player, or on a team board the team; None when the score is in no instance."""
        self.instance = instance
        self.subject = subject
        self.ranking = ranking
        self.change = NOWHERE

    def answer(self, before: RankedStanding | None, after: RankedStanding | None) -> None:
        """Set the change from the standings before and after."""
        if before is None:
            self.change = NOWHERE if after is None else RowChange(True, None, after.score, None, after.rank)
        elif after is None:
            self.change = RowChange(True, before.score, None, before.rank, None)
        else:
            is_set = before.score != after.score or before.tie != after.tie
            self.change = RowChange(is_set, before.score, after.score, before.rank, after.rank)


def question_about(board: Board, reading: ClockReading, player: str, attributes: Mapping[str, str]) -> Question | None:
    """Return the question of a score: about the board's first window at the event's time, in the global scope if any.

    It has no subject for a score without a team on a team board, or without a scope where there is no global one.
    None for an event before the window.
    """
    instance = board.first_window.instance_of(reading)
    if instance is None:
        return None
    subject = player if board.team is None else attributes.get(board.team.attribute)
    if board.with_global:
        return Question(InstanceKey(board.id, instance, GLOBAL), subject, board.ranking)
    scopes = board.scopes_of(attributes)
    scope, subject = (scopes[0], subject) if scopes else (GLOBAL, None)
    return Question(InstanceKey(board.id, instance, scope), subject, board.ranking)


def submitted_of(
    upto: str,
    board: Board,
    player: str,
    question: Question | None,
    clock: Callable[[], int],
    *,
    repeated: bool = False,
) -> Submitted:
    """Return the answer to one score; `clock` dates the shown value of a decaying score."""
    window, change = (None, NOWHERE) if question is None else (question.instance.window, question.change)
    changed, old, new, rank_before, rank_after = change
    if board.decay is not None:
        now = clock()
        old = None if old is None else board.shown_score(old, now)
        new = None if new is None else board.shown_score(new, now)
    return Submitted(upto, board.id, player, window, new, old, changed, rank_after, rank_before, repeated)


def without_rank(task: ScoreTask, accepted: Accepted) -> Submitted:
    """Return the answer to one score that is durable and was not ranked in time."""
    return Submitted(
        accepted.position,
        task.board_id,
        task.players[0],
        window=None,
        score=None,
        previous_score=None,
        changed=False,
        rank=None,
        previous_rank=None,
        repeated=accepted.repeated,
    )

"""What writes answer with, and where the answer to a score is read."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.domain.scope import GLOBAL
from rankd.domain.window import Reading
from rankd.intake.scores import ScoreTask
from rankd.projection.port import Change, Standing


class Submitted(msgspec.Struct, frozen=True):
    """The answer to one score: what is kept and where the player stands in the board's first window."""

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
    """The answer to any other change: where it is in the ledger, and whether it made a difference."""

    position: str
    changed: bool = True
    repeated: bool = False


class Accepted(msgspec.Struct, frozen=True):
    """Scores that are durable and will be ranked: where they are in the ledger."""

    position: str
    count: int
    repeated: bool = False
    question: Question | None = None  # what the answer speaks of once it is ranked
    at: int = 0  # the ledger's time


NOWHERE = Change(changed=False, old_score=None, new_score=None, rank_before=None, rank_after=None)


class Question:
    """Where somebody stands before and after a commit: what the answer to a score says."""

    __slots__ = ("change", "instance", "ranking", "subject")

    def __init__(self, instance: InstanceKey, subject: str | None, ranking: Ranking) -> None:
        """`subject` stands in the instance: the player, or on a team board the team; None for who stands nowhere."""
        self.instance = instance
        self.subject = subject
        self.ranking = ranking
        self.change = NOWHERE

    def answer(self, before: Standing | None, after: Standing | None) -> None:
        """Take what the rank store said before and after."""
        self.change = Change(
            changed=(before and (before.score, before.tie)) != (after and (after.score, after.tie)),
            old_score=None if before is None else before.score,
            new_score=None if after is None else after.score,
            rank_before=None if before is None else before.rank,
            rank_after=None if after is None else after.rank,
        )


def question_about(board: Board, reading: Reading, player: str, attributes: Mapping[str, str]) -> Question | None:
    """Return what the answer to a score asks: the board's first window at the event's time, everywhere if it can.

    Nobody stands there after a score without a team on a team board, or without a scope where there is no global one.
    None for an event that is older than the window.
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


def submitted_of(upto: str, board: Board, player: str, question: Question | None, now: int) -> Submitted:
    """Answer one score from what was asked about it, if anything could be."""
    window, change = (None, NOWHERE) if question is None else (question.instance.window, question.change)
    changed, old, new, rank_before, rank_after = change
    if board.decay is not None:
        old = None if old is None else board.shown_score(old, now)
        new = None if new is None else board.shown_score(new, now)
    return Submitted(upto, board.id, player, window, new, old, changed, rank_after, rank_before)


def without_rank(task: ScoreTask, accepted: Accepted) -> Submitted:
    """Answer one score that is durable and was not ranked in time."""
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

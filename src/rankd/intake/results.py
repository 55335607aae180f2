"""What writes answer with, and where the answer to a score is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.domain.position import LedgerPosition
from rankd.domain.scope import GLOBAL
from rankd.domain.window import Reading
from rankd.projection.port import Change, Standing

PARTITION = 0  # the embedded ledger has one


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


class Stood(NamedTuple):
    """Where somebody stood, and with what."""

    rank: int
    score: int


class Question:
    """Where somebody stands before and after a commit: what the answer to a score says."""

    __slots__ = ("after", "before", "changed", "instance", "ranking", "subject")

    def __init__(self, instance: InstanceKey, subject: str | None, ranking: Ranking) -> None:
        """`subject` stands in the instance: the player, or on a team board the team; None for who stands nowhere."""
        self.instance = instance
        self.subject = subject
        self.ranking = ranking
        self.before: Stood | None = None
        self.after: Stood | None = None
        self.changed = False

    def answer(self, before: Standing | None, after: Standing | None) -> None:
        """Take what the rank store said before and after."""
        self.before = None if before is None else Stood(before.rank, before.score)
        self.after = None if after is None else Stood(after.rank, after.score)
        self.changed = (before and (before.score, before.tie)) != (after and (after.score, after.tie))

    def answer_from(self, change: Change) -> None:
        """Take what the row of its only event said."""
        self.changed, old, new, rank_before, rank_after = change
        self.before = None if old is None or rank_before is None else Stood(rank_before, old)
        self.after = None if new is None or rank_after is None else Stood(rank_after, new)


def question_about(board: Board, reading: Reading, player: str, attributes: Mapping[str, str]) -> Question | None:
    """Return what the answer to a score asks: the board's first window at the event's time, everywhere if it can.

    Nobody stands there after a score without a team on a team board, or without a scope where there is no global one.
    None for an event that is older than the window.
    """
    scopes = board.scopes_of(attributes)
    subject = player if board.team is None else attributes.get(board.team.attribute)
    instance = board.first_window.instance_of(reading)
    if instance is None:
        return None
    scope = GLOBAL if board.with_global or not scopes else scopes[0]
    return Question(InstanceKey(board.id, instance, scope), subject if scopes else None, board.ranking)


def token(sequence: int) -> str:
    """Return a position of the embedded ledger as clients see it."""
    return LedgerPosition(PARTITION, sequence).token


def submitted(position: str, board: Board, player: str, question: Question | None, now: int) -> Submitted:
    """Answer one score from where its player stood before and stands now."""
    before = None if question is None else question.before
    after = None if question is None else question.after
    return Submitted(
        position=position,
        board=board.id,
        player=player,
        window=None if question is None else question.instance.window,
        score=None if after is None else board.shown_score(after.score, now),
        previous_score=None if before is None else board.shown_score(before.score, now),
        changed=question is not None and question.changed,
        rank=None if after is None else after.rank,
        previous_rank=None if before is None else before.rank,
    )

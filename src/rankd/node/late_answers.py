"""Answers scores that are durable before they are ranked: it waits until they are, and reads the standing again.

    LateAnswers.submit → standing before → Writer (durable) → wait until ranked → standing after

So answer processes whose ranks another one makes, and those on a log, which follow what they append as others do.
`previous_score` and `previous_rank` are read before the score is appended: another process may append a score of
the same player in between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from rankd.backend import NEW_WAIT_MS, RANKED, Before
from rankd.clock import Clock
from rankd.domain.instance import InstanceKey
from rankd.domain.position import parse_positions
from rankd.errors import RankdError, RanksUnavailable, Unavailable
from rankd.intake.results import (
    Accepted,
    Batched,
    Question,
    Submitted,
    question_about,
    submitted_of,
    without_rank,
)
from rankd.intake.scores import ScoreTask
from rankd.intake.writer import Writer
from rankd.projection.port import RankedStanding
from rankd.reads.instance_ref import check_since
from rankd.reads.rank_source import RankSource, ReadSession, wait_ranked
from rankd.redis.read.batching import run_in_thread

_log = logging.getLogger("rankd")


class LateAnswers:
    """Appends scores by a writer, and answers them once they are ranked."""

    def __init__(
        self,
        writer: Writer,
        rank_source: RankSource,
        open_ranks: Callable[[InstanceKey], ReadSession],
        *,
        clock: Clock,
        wait_ms: int,
    ) -> None:
        """`open_ranks` opens a read of the ranks themselves; `wait_ms` limits the wait for a rank."""
        self._writer = writer
        self._rank_source = rank_source
        self._open_ranks = open_ranks
        self._clock = clock
        self._wait_ms = wait_ms

    def submit(self, task: ScoreTask) -> object:
        """Append scores and wait for their rank; those not ranked in time are answered without."""
        self._writer.admit(task.sender, task.events)
        asked_s = time.monotonic()
        before = self._await_standing_before(task)
        accepted = self._writer.accept(task)
        if not task.answers:
            return Batched(accepted.position, accepted.count, accepted.repeated)
        left_ms = max(self._wait_ms - round((time.monotonic() - asked_s) * 1_000), 0)
        is_ranked = wait_ranked(self._rank_source, parse_positions(accepted.position), task.board_id, left_ms)
        answer = self.ranked(task, accepted, before) if is_ranked else None
        return answer or without_rank(task, accepted)

    def standing_before(self, task: ScoreTask) -> Before | None:
        """Return the player's current standing, in the instance of the score's answer.

        None where it is unavailable, and for scores answered without a rank. RanksUnavailable where Redis does not have
        the board.
        """
        board = self._writer.boards.get(task.board_id)
        if not task.answers:
            return None
        if board is None:  # just defined by another process
            return Before(None)
        player, sent = task.players[0], task.attributes[0] if task.attributes else None
        at = task.at[0] if task.at and task.at[0] >= 0 else max(self._writer.at, self._clock.now())
        try:
            attributes: Mapping[str, str] = sent or {}
            if board.scopes or board.team is not None:  # the profile may have attributes for them
                attributes = run_in_thread(lambda: self._writer.attributes_of(board, player, sent))
            question = question_about(board, board.read_clock(at), player, attributes)
            return Before(None if question is None else self._stand(question))
        except RanksUnavailable as problem:
            if problem.is_missing:
                raise
            return None
        except Unavailable:
            return None

    def _await_standing_before(self, task: ScoreTask) -> Before | None:
        """Return `standing_before`, after a short wait for a board that Redis does not have yet."""
        try:
            return self.standing_before(task)
        except RanksUnavailable:
            if not wait_ranked(self._rank_source, RANKED, task.board_id, min(self._wait_ms, NEW_WAIT_MS)):
                return None
        try:
            return self.standing_before(task)
        except RanksUnavailable:
            return None

    def ranked(self, task: ScoreTask, accepted: Accepted, before: Before | None) -> Submitted | None:
        """Answer a durable, ranked score; None where its standing is unavailable. It never raises."""
        board, player, question = self._writer.boards.get(task.board_id), task.players[0], accepted.question
        if board is None or (before is None and not accepted.repeated):
            return None
        if question is None and accepted.repeated:
            question = question_about(board, board.read_clock(self._clock.now()), player, {})
        if question is not None:
            try:
                after = self._stand(question, since=accepted.position)
            except RankdError as problem:
                _log.debug("a score is durable, but its rank cannot be read: %s", problem)
                return None
            was = after if before is None or accepted.repeated else before.standing
            question.answer(was, after)
        return submitted_of(accepted.position, board, player, question, self._clock.now, repeated=accepted.repeated)

    def is_there(self, board_id: str, player: str) -> bool:
        """Return whether a board has a player in a current instance; True where that cannot be read."""
        board = self._writer.find_board(board_id)
        if board is None:
            return False
        keys = [InstanceKey(board_id, window) for _, window in board.instances_of(board.read_clock(self._writer.at))]
        try:
            return any(self._rank_source.open(key).store.score(key, player) is not None for key in keys)
        except Unavailable:
            return True  # a removal does not depend on readable ranks

    def _stand(self, question: Question, since: str | None = None) -> RankedStanding | None:
        """Return the standing of the question's subject; Behind where it was read before `since`."""
        if question.subject is None:
            return None
        session = self._open_ranks(question.instance)
        standing = session.store.rank(question.instance, question.subject, question.ranking)
        if since is not None:
            check_since(session, parse_positions(since))
        return standing

"""Answers scores of a thin process with their rank, as an embedded one does: it waits until they are ranked.

    ThinWriter.submit → standing before → Writer (durable) → wait until ranked → standing after

`previous_score` and `previous_rank` are read before the score is appended: another process may append a score of
the same player in between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from rankd.backend import NEW_WAIT_MS, RANKED, Before, LedgerFreshness, Read
from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.domain.position import parse_positions, tokens
from rankd.errors import RankdError, RanksUnavailable, Unavailable
from rankd.intake.queue import Task
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
from rankd.ledger.port import Heads, Ledger
from rankd.projection.port import RankedStanding
from rankd.reads.instance_ref import check_since
from rankd.reads.rank_source import wait_ranked
from rankd.redis.read.batching import ReadBatcher, run_in_thread
from rankd.redis.read.rank_source import RedisRankSource

ShareRates = Callable[[list[tuple[str, str, float]]], Sequence[int]]
_log = logging.getLogger("rankd")


class ThinWriter:
    """The writer of `Boards` where another process ranks."""

    checks_early = True

    def __init__(
        self,
        writer: Writer,
        ledger: Ledger,
        rank_source: RedisRankSource,
        *,
        clock: Clock,
        wait_ms: int,
        share_rates: ShareRates | None = None,
    ) -> None:
        """`wait_ms` limits the wait for a rank; `share_rates` shares rate limits with other processes."""
        self._share_rates = share_rates
        self._writer = writer
        self._ledger = ledger
        self._rank_source = rank_source
        self._clock = clock
        self._wait_ms = wait_ms
        self.check_open = writer.check_open
        self.find_board = writer.find_board
        self.backpressure = writer.backpressure
        self.read_heads()

    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards as they are defined."""
        return self._writer.boards

    @property
    def at(self) -> int:
        """The ledger's time."""
        return self._writer.at

    def check_ready(self) -> None:
        """Refuse requests to be routed here: after `close`, or when definitions need a newer version."""
        self._writer.check_ready()

    def read_heads(self) -> Heads:
        """Read the ledger's heads, and store them in `ledger_seen`."""
        began_s = time.monotonic()
        heads = self._ledger.heads()
        self.ledger_seen = LedgerFreshness(began_s, dict(enumerate(heads.sequences)))
        return heads

    @property
    def position_token(self) -> str:
        """The ledger's heads when last read."""
        return tokens(self.ledger_seen.sequences)

    def ranked_upto(self, boards: Sequence[str]) -> dict[str, Mapping[int, int]]:
        """Return the ranked positions of boards, without unavailable ones: one round trip."""
        return self._rank_source.ranked_upto(boards)

    def read_batcher(self, on_done: Callable[[list[Read]], None]) -> ReadBatcher:
        """Start a batcher for concurrent reads."""
        return ReadBatcher(on_done)

    def is_due(self, _now: int, _board_id: str) -> bool:
        """Return False: the projector rolls over."""
        return False

    def roll_over(self, _board_id: str) -> None:
        """Do nothing: the projector rolls over."""

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

    def enqueue(self, tasks: Sequence[Task], on_done: Callable[[list[Task], float], None]) -> None:
        """Queue scores without waiting; their results are Accepted."""
        self._writer.enqueue(tasks, on_done)

    def standing_before(self, task: ScoreTask) -> Before | None:
        """Return the player's current standing, in the instance of the score's answer.

        None where it is unavailable, and for scores answered without a rank. RanksUnavailable where Redis does not have
        the board.
        """
        board = self.boards.get(task.board_id)
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
        board, player, question = self.boards.get(task.board_id), task.players[0], accepted.question
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

    def share_rates(self, spent: list[tuple[str, str, float]]) -> Sequence[int]:
        """Add this process's spending of rate limits to the shared sums; return what each caller owes."""
        if self._share_rates is None:
            return ()
        try:
            return self._share_rates(spent)
        except Unavailable:
            return ()

    def _stand(self, question: Question, since: str | None = None) -> RankedStanding | None:
        """Return the standing of the question's subject; Behind where it was read before `since`."""
        if question.subject is None:
            return None
        session = self._rank_source.open_ranks(question.instance)
        standing = session.store.rank(question.instance, question.subject, question.ranking)
        if since is not None:
            check_since(session, parse_positions(since))
        return standing

"""Scores of the shared ledger are answered as in one process: whoever asks waits until they are ranked.

    Answering.submit → where the player stands → Writer (durable) → ranked? → where the player stands now

`previous_score` and `previous_rank` are those of the moment before the score was sent: another process may have sent
one of the same player meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from rankd.backend import NEW_WAIT_MS, RANKED, Before, LedgerSeen, Read
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
from rankd.projection.port import Standing
from rankd.reads.looking import wait_ranked
from rankd.reads.meaning import check_since
from rankd.scaled.lane import Lane, elsewhere
from rankd.scaled.served import LookAtRedis

ShareRates = Callable[[list[tuple[str, str, float]]], Sequence[int]]
_log = logging.getLogger("rankd")


class Answering:
    """The writer that `Boards` uses where ranking is another process's work."""

    checks_early = True

    def __init__(
        self,
        writer: Writer,
        ledger: Ledger,
        looking: LookAtRedis,
        *,
        clock: Clock,
        wait_ms: int,
        share_rates: ShareRates | None = None,
    ) -> None:
        """`wait_ms` is how long somebody waits for a rank; `share_rates` asks what callers spent elsewhere."""
        self._share_rates = share_rates
        self._writer = writer
        self._ledger = ledger
        self._looking = looking
        self._clock = clock
        self._wait_ms = wait_ms
        self.check_open = writer.check_open
        self.find_board = writer.find_board
        self.look_at_ledger()

    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards as they are defined."""
        return self._writer.boards

    @property
    def at(self) -> int:
        """The ledger's time."""
        return self._writer.at

    def check_ready(self) -> None:
        """Refuse where no score would be taken: after the end, and where definitions are beyond this version."""
        self._writer.check_ready()

    def look_at_ledger(self) -> Heads:
        """Find out how far the ledger is, for those who ask and do not wait for it."""
        began_s = time.monotonic()
        heads = self._ledger.heads()
        self.ledger_seen = LedgerSeen(began_s, dict(enumerate(heads.sequences)))
        return heads

    @property
    def position_token(self) -> str:
        """How far the ledger was when it was looked at last."""
        return tokens(self.ledger_seen.sequences)

    def ranked_upto(self, boards: Sequence[str]) -> dict[str, Mapping[int, int]]:
        """Return how far boards are ranked, of those that can be asked; one round trip."""
        return self._looking.ranked_upto(boards)

    def lane(self, tell: Callable[[list[Read]], None]) -> Lane:
        """Begin to make reads together."""
        return Lane(tell)

    def is_due(self, _now: int) -> bool:
        """Roll-overs are the projector's work."""
        return False

    def roll_over(self) -> None:
        """Roll-overs are the projector's work."""

    def submit(self, task: ScoreTask) -> object:
        """Count scores; once they are durable, wait for their rank. What is not ranked in time is answered without."""
        asked_s = time.monotonic()
        before = self._standing_before_soon(task)
        accepted = self._writer.accept(task)
        if not task.answers:
            return Batched(accepted.position, accepted.count, accepted.repeated)
        left_ms = max(self._wait_ms - round((time.monotonic() - asked_s) * 1_000), 0)
        is_ranked = self.wait_for(parse_positions(accepted.position), task.board_id, left_ms)
        answer = self.ranked(task, accepted, before) if is_ranked else None
        return answer or without_rank(task, accepted)

    def submit_all(self, tasks: list[Task]) -> None:
        """Count the scores of many callers; their results are Accepted."""
        self._writer.submit_all(tasks)

    def standing_before(self, task: ScoreTask) -> Before | None:
        """Return where the player of one score stands, in the instance that its answer speaks of.

        None where that cannot be told, and for scores that nobody answers: they are taken all the same.
        RanksUnavailable where Redis has nothing of the board.
        """
        board = self.boards.get(task.board_id)
        if not task.answers:
            return None
        if board is None:  # so new that this process has not heard of it
            return Before(None)
        player, sent = task.players[0], task.attributes[0] if task.attributes else None
        at = task.at[0] if task.at and task.at[0] >= 0 else max(self._writer.at, self._clock.now())
        try:
            attributes: Mapping[str, str] = sent or {}
            if board.scopes or board.team is not None:  # which a profile may tell
                attributes = elsewhere(lambda: self._writer.attributes_of(board, player, sent))
            question = question_about(board, board.read_clock(at), player, attributes)
            return Before(None if question is None else self._stand(question))
        except RanksUnavailable as problem:
            if problem.is_missing:
                raise
            return None
        except Unavailable:
            return None

    def _standing_before_soon(self, task: ScoreTask) -> Before | None:
        """Return the same, after a moment's waiting for a board that Redis does not have yet."""
        try:
            return self.standing_before(task)
        except RanksUnavailable:
            if not self.wait_for(RANKED, task.board_id, min(self._wait_ms, NEW_WAIT_MS)):
                return None
        try:
            return self.standing_before(task)
        except RanksUnavailable:
            return None

    def ranked(self, task: ScoreTask, accepted: Accepted, before: Before | None) -> Submitted | None:
        """Answer one score that is durable and was ranked a moment ago; None where that cannot be told. Never fails."""
        board, player, question = self.boards.get(task.board_id), task.players[0], accepted.question
        if board is None or (before is None and not accepted.repeated):
            return None
        if question is None and accepted.repeated:
            question = question_about(board, board.read_clock(self._clock.now()), player, {})
        if question is not None:
            try:
                after = self._stand(question, since=accepted.position)
            except RankdError as problem:
                _log.debug("a score is durable, and its rank cannot be told: %s", problem)
                return None
            was = after if before is None or accepted.repeated else before.standing
            question.answer(was, after)
        answer = submitted_of(accepted.position, board, player, question, self._clock.now())
        return msgspec.structs.replace(answer, repeated=True) if accepted.repeated else answer

    def share_rates(self, spent: list[tuple[str, str, float]]) -> Sequence[int]:
        """Add what callers spent of their limits here to what they spent anywhere; return what each owes."""
        if self._share_rates is None:
            return ()
        try:
            return self._share_rates(spent)
        except Unavailable:
            return ()

    def wait_for(self, wanted: Mapping[int, int], board: str, wait_ms: int) -> bool:
        """Wait until positions are ranked on a board; tell whether they are."""
        return wait_ranked(self._looking, wanted, board, wait_ms)

    def _stand(self, question: Question, since: str | None = None) -> Standing | None:
        """Return where somebody stands; Behind where that was read from before a position."""
        if question.subject is None:
            return None
        look = self._looking.look_at_ranks(question.instance)
        found = look.store.rank(question.instance, question.subject, question.ranking)
        if since is not None:
            check_since(look, parse_positions(since))
        return found

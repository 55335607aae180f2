"""Scores of the shared ledger are answered as in one process: whoever asks waits until they are ranked.

    Answering.submit → where the player stands → SharedWriter (durable) → ranked? → where the player stands now

`previous_score` and `previous_rank` are those of the moment before the score was sent: another process may have sent
one of the same player meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.domain.position import parse_positions, tokens
from rankd.errors import Unavailable
from rankd.intake.queue import Task
from rankd.intake.results import (
    NOWHERE,
    Accepted,
    Batched,
    Question,
    Submitted,
    question_about,
    submitted,
    submitted_of,
)
from rankd.intake.scores import ScoreTask, single_task
from rankd.intake.sender import Sender
from rankd.ledger.partitioned import Heads, PartitionedLedger
from rankd.projection.port import Standing
from rankd.reads.looking import Looking
from rankd.scaled.writer import SharedWriter

ShareRates = Callable[[list[tuple[str, str, float]]], Sequence[int]]
POLL_FIRST_S, POLL_MAX_S = 0.001, 0.02


class Answering:
    """The writer that `Boards` uses where ranking is another process's work."""

    def __init__(
        self,
        writer: SharedWriter,
        ledger: PartitionedLedger,
        looking: Looking,
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
        self.position_token = tokens(dict(enumerate(ledger.heads().sequences)))  # as of the last look

    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards as they are defined."""
        return self._writer.boards

    @property
    def at(self) -> int:
        """The ledger's time."""
        return self._writer.at

    def look_at_ledger(self) -> Heads:
        """Find out how far the ledger is, for those who ask and do not wait for it."""
        heads = self._ledger.heads()
        self.position_token = tokens(dict(enumerate(heads.sequences)))
        return heads

    def is_due(self, _now: int) -> bool:
        """Roll-overs are the projector's work."""
        return False

    def roll_over(self) -> None:
        """Roll-overs are the projector's work."""

    def submit(self, task: ScoreTask) -> object:
        """Count scores; once they are durable, wait for their rank. What is not ranked in time is answered without."""
        before = self.standing_before(task)
        accepted = self._writer.submit(task)
        if not task.answers:
            return Batched(accepted.position, accepted.count, accepted.repeated)
        answer = self.ranked(task, accepted, before, self._wait_ms)
        if answer is None:
            board = self._writer.board(task.board_id)
            answer = submitted(accepted.position, board, task.players[0], None, NOWHERE, now=self._clock.now())
        return answer

    def submit_all(self, tasks: list[Task]) -> None:
        """Count the scores of many callers; their results are Accepted."""
        self._writer.submit_all(tasks)

    def submit_single(self, board: Board, player: str, score: int, tiebreak: int, sender: Sender) -> Submitted:
        """Count one score."""
        answer = self.submit(single_task(board, player, score, tiebreak, sender))
        if not isinstance(answer, Submitted):
            raise AssertionError("a single score is answered with Submitted")
        return answer

    def standing_before(self, task: ScoreTask) -> Standing | None:
        """Return where the player of one score stands, in the instance that its answer speaks of."""
        board = self.boards.get(task.board_id)
        if not task.answers or board is None:
            return None
        player, sent = task.players[0], task.attributes[0] if task.attributes else None
        at = task.at[0] if task.at and task.at[0] >= 0 else max(self._writer.at, self._clock.now())
        try:
            attributes = self._writer.attributes_of(board, player, sent)
            question = question_about(board, board.read_clock(at), player, attributes)
            return None if question is None else self._stand(question)
        except Unavailable:
            return None  # a score is taken whether or not ranks can be read

    def ranked(self, task: ScoreTask, accepted: Accepted, before: Standing | None, wait_ms: int) -> Submitted | None:
        """Answer one score that is durable when it is ranked; None when that takes longer."""
        if not self.wait_for(accepted.position, task.board_id, wait_ms):
            return None
        board, player, question = self._writer.board(task.board_id), task.players[0], accepted.question
        if question is None and accepted.repeated:
            question = question_about(board, board.read_clock(self._clock.now()), player, {})
        if question is not None:
            after = self._stand(question)
            question.answer(after if accepted.repeated else before, after)
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

    def wait_for(self, position: str, board: str, wait_ms: int) -> bool:
        """Wait until a position is ranked on a board; tell whether it is."""
        wanted, deadline, pause_s = parse_positions(position), time.monotonic() + wait_ms / 1_000, POLL_FIRST_S
        while not self._has_ranked(wanted, board):
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, POLL_MAX_S)
        return True

    def _has_ranked(self, wanted: Mapping[int, int], board: str) -> bool:
        try:
            return self._looking.has_ranked(wanted, board)
        except Unavailable:
            return False

    def _stand(self, question: Question) -> Standing | None:
        if question.subject is None:
            return None
        return self._looking.look(question.instance).store.rank(question.instance, question.subject, question.ranking)

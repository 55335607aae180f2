"""Ranks of this process: the ledger is followed into its engine, between commits and after each.

    commit → ledger (synced, numbered) → EngineRanks.rank: applied up to it, its rank before and after → the answer
    another process commits → the node's follower thread → EngineRanks.follow

Everything here runs in the thread that commits, one at a time. So a score is answered by the thread that appended it,
and nothing else can have applied it before its rank was read. Where nobody else appends, what was appended is applied
as it is; elsewhere it is read back, with what others appended before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from time import monotonic

import msgspec

from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.domain.position import is_upto, tokens
from rankd.errors import LedgerNewer, RankdError
from rankd.intake.answering import AnsweringApplier
from rankd.intake.commit import Commit
from rankd.intake.results import Accepted, Batched, Question, Submitted, question_about, submitted_of
from rankd.intake.scores import ScoreTask
from rankd.ledger.event import NO_DETAIL, Stretch
from rankd.ledger.port import Appended, DefinitionsChanged, Ledger, Request
from rankd.projection.counting import CountingStore
from rankd.projection.follower import Follower

ANSWER_WAIT_MIN_S = 0.1  # for what was just appended
STEP_EVENTS = 5_000  # of one step: commits of this process wait for it
_log = logging.getLogger("rankd")


class EngineRanks:
    """The ledger as far as this process has ranked it."""

    def __init__(self, ledger: Ledger, follower: Follower[CountingStore], clock: Clock, answer_wait_ms: int) -> None:
        """A score that is not followed within `answer_wait_ms` is answered without its rank."""
        self.follower = follower
        self.store = follower.store
        self.applier = follower.applier
        self.moved: Callable[[], None] = lambda: None  # called when the ranks have moved on
        self.complete_as_of = 0  # everything that was committed by then, in ms, is ranked
        self.at = 0
        self.beyond: LedgerNewer | None = None  # which it stays: only another version goes on
        self._ledger = ledger
        self._is_sole_writer = ledger.capabilities.is_sole_writer
        self._clock = clock
        self._answer_wait_s = answer_wait_ms / 1_000
        self._answer_by_s = 0.0  # by the monotonic clock
        self._questions: dict[tuple[int, int], Question] = {}  # by partition and sequence, while they are followed
        self._answering = AnsweringApplier(self.applier, self.store)
        self._positions: Mapping[int, int] = dict(enumerate(follower.positions))
        self._token: str | None = None
        follower.apply = self._apply

    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards as they are defined, by id."""
        return self.applier.directory.boards

    @property
    def seen(self) -> int:
        """How many control events were followed."""
        return self.follower.controls

    @property
    def checks_early(self) -> bool:
        """Whether the boards known here are those there are."""
        return self._is_sole_writer

    @property
    def has_changed(self) -> bool:
        """Whether the last event that is no score changed anything."""
        return self.applier.changed

    @property
    def positions(self) -> Mapping[int, int]:
        """How far each partition is ranked."""
        return self._positions

    @property
    def events(self) -> int:
        """How many events are ranked."""
        return sum(self._positions.values())

    @property
    def position_token(self) -> str:
        """How far it is ranked, as clients see it."""
        token = self._token
        if token is None:
            token = self._token = tokens(self._positions)
        return token

    def version_of(self, board_id: str) -> int:
        """Return the version that a board is defined under."""
        live = self.applier.state.boards.get(board_id)
        if live is None:
            raise DefinitionsChanged
        return live.version

    # Following

    def follow(self, events_max: int | None = None) -> int:
        """Follow the ledger a little; return how many events there were."""
        events_max = STEP_EVENTS if events_max is None else events_max
        asked_at = self._clock.now()
        try:
            done = self.follower.follow(events_max)
        except LedgerNewer as problem:
            self.beyond = problem
            raise
        if done < events_max and not self.follower.waiting:
            self.complete_as_of = asked_at
        if done:
            self._move_to(dict(enumerate(self.follower.positions)))
        return done

    def catch_up(self) -> None:
        """Follow everything that is committed by now."""
        asked_at, heads = self._clock.now(), self._ledger.heads()
        self.at = max(self.at, heads.at)
        self._follow_to(dict(enumerate(heads.sequences)))
        self.complete_as_of = max(self.complete_as_of, asked_at)

    def get_ready(self) -> None:
        """Follow what others have committed by now, before scores are committed.

        So scores are checked by the newest definitions, and an answer is of a moment when everything is ranked that was
        acknowledged before. A node that is far behind goes on after a while: its scores are answered without a rank.
        """
        if self._is_sole_writer:
            return
        heads = self._ledger.heads()
        self.at = max(self.at, heads.at)
        self._answer_by_s = monotonic() + self._answer_wait_s
        self._follow_to(dict(enumerate(heads.sequences)), self._answer_by_s)

    def rank(self, commit: Commit, appended: Appended) -> None:
        """Apply what was appended, and answer the questions of the commit."""
        self._questions = {appended.place(index): question for index, question in commit.questions.items()}
        try:
            if self._is_sole_writer:
                self.follower.apply_appended(commit.stretches)
                self._move_to(appended.end)
            else:
                self._follow_own(appended.end)
        finally:
            self._questions = {}

    def _follow_own(self, positions: Mapping[int, int]) -> None:
        """Follow what this process appended. It is durable: that it cannot be read now is no error of its sender."""
        try:
            self._follow_to(positions, max(self._answer_by_s, monotonic() + ANSWER_WAIT_MIN_S))
        except RankdError as problem:
            _log.warning("what was appended is not ranked here yet: %s", problem)

    def _follow_to(self, positions: Mapping[int, int], deadline_s: float | None = None) -> None:
        while not is_upto(self._positions, positions) and (deadline_s is None or monotonic() < deadline_s):
            self.follow()

    def _move_to(self, positions: Mapping[int, int]) -> None:
        self._positions, self._token = positions, None
        self.moved()

    # Answers

    def result(self, task: ScoreTask, question: Question | None, positions: Mapping[int, int], at: int) -> object:
        """Answer a task with its rank, or where it was not followed in time, without."""
        position, board = tokens(positions), self.boards.get(task.board_id)
        if board is None or not is_upto(self._positions, positions):
            return Accepted(position, task.events, question=question, at=at)
        if not task.answers:
            return Batched(position, task.events)
        return submitted_of(position, board, task.players[0], question, self._clock.now())

    def result_again(self, task: ScoreTask, request: Request) -> Submitted | Batched | Accepted:
        """Answer a repeat with the position of the first, and the rank of now."""
        position = tokens(request.positions)
        if not task.answers:
            return Batched(position, request.events, repeated=True)
        self._follow_own(request.positions)  # another node may have committed it a moment ago
        if not is_upto(self._positions, request.positions):
            return Accepted(position, request.events, repeated=True)
        ((partition, sequence),) = request.positions.items()
        event = self._ledger.event(partition, sequence)
        accepted = self._ledger.context(event.context).boards[task.board_id]
        board = self.applier.catalogue.board(task.board_id, accepted.version)
        detail = (event.detail or [None])[0] or NO_DETAIL
        question = question_about(board, accepted.reading(event.at[0]), task.players[0], detail.attributes)
        if question is not None and question.subject is not None:
            standing = self.store.rank(question.instance, question.subject, question.ranking)
            question.answer(standing, standing)
        answer = submitted_of(position, board, task.players[0], question, self._clock.now())
        return msgspec.structs.replace(answer, repeated=True)

    def _apply(self, run: Stretch) -> None:
        if not self._questions:
            self.applier.apply(run)
            return
        for part, questions in self._parts(run):
            self._answering.apply(part, questions)

    def _parts(self, run: Stretch) -> Iterator[tuple[Stretch, list[Question]]]:
        """Cut a run so that each answer is about one event: nobody whom it asks about stands twice in a part."""
        asked = [self._questions.get((run.partition, run.first + index)) for index in range(len(run))]
        questions = [one for one in asked if one is not None]
        if len(run) == 1 or not questions:
            yield run, questions
            return
        # Events of others say nothing of their team.
        is_of_teams = any(one is not None and one.subject != who for one, who in zip(asked, run.players, strict=True))
        cuts_each = is_of_teams and None in asked
        start, subjects = 0, set[str]()
        for index, (player, question) in enumerate(zip(run.players, asked, strict=True)):
            subject = player if question is None or question.subject is None else question.subject
            if index > start and (cuts_each or subject in subjects):
                yield run.part(start, index), [one for one in asked[start:index] if one is not None]
                start, subjects = index, set()
            subjects.add(subject)
        if start == 0:
            yield run, questions
        else:
            yield run.part(start, len(run)), [one for one in asked[start:] if one is not None]

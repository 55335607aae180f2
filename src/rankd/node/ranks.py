"""The ranks of a node: the ledger is followed into an engine of this process, between commits and after each.

    commit → PostgreSQL (synced, numbered) → NodeRanks.answer: follow up to it → its rank before and after
    another node commits → the node's follower thread → NodeRanks.follow

Everything here runs in the thread that commits, one at a time. So a score is answered by the thread that appended it,
and nothing else can have applied it before its rank was asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic

import msgspec

from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.domain.position import is_upto, tokens
from rankd.errors import RankdError
from rankd.intake.asking import Asking
from rankd.intake.followed import Added
from rankd.intake.results import Accepted, Batched, Question, Submitted, question_about, submitted_of
from rankd.intake.scores import ScoreTask
from rankd.ledger.event import NO_DETAIL, Stretch
from rankd.ledger.partitioned import Appended, DefinitionsChanged, PartitionedLedger, Request
from rankd.projection.counting import CountingStore
from rankd.projection.follower import Follower

STEP_EVENTS = 5_000  # of one step: commits of this node wait for it
CATCH_UP_EVENTS = 50_000  # of one step while the node is not ready yet
_log = logging.getLogger("rankd")


class NodeRanks:
    """The ledger as far as this node has ranked it."""

    def __init__(
        self, ledger: PartitionedLedger, follower: Follower[CountingStore], clock: Clock, answer_wait_ms: int
    ) -> None:
        """A score that is not followed within `answer_wait_ms` is answered without its rank."""
        self.follower = follower
        self.applier = follower.applier
        self.moved: Callable[[], None] = lambda: None  # called when the ranks have moved on
        self.position_token = ""
        self.positions: Mapping[int, int] = {}
        self.is_complete_as_of = 0  # everything that was committed by then, in ms, is ranked
        self.at = 0
        self._ledger = ledger
        self._clock = clock
        self._answer_wait_s = answer_wait_ms / 1_000
        self._answer_by_s = 0.0  # by the monotonic clock
        self._questions: dict[tuple[int, int], Question] = {}  # by partition and sequence, while they are followed
        self._answering = Asking(self.applier, self.applier.apply)
        follower.apply = self._apply
        self._note_positions()

    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards as they are defined, by id."""
        return self.applier.directory.boards

    @property
    def seen(self) -> int:
        """How many control events were followed."""
        return self.follower.controls

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
        done = self.follower.follow(events_max)
        if done < events_max and not self.follower.waiting:
            self.is_complete_as_of = asked_at
        if done:
            self._note_positions()
            self.moved()
        return done

    def catch_up(self) -> None:
        """Follow everything that is committed by now."""
        asked_at, heads = self._clock.now(), self._ledger.heads()
        self.at = max(self.at, heads.at)
        self._follow_to(dict(enumerate(heads.sequences)))
        self.is_complete_as_of = max(self.is_complete_as_of, asked_at)

    def get_ready(self) -> None:
        """Follow what others have committed by now, before scores are committed.

        So scores are checked by the newest definitions, and an answer is of a moment when everything is ranked that was
        acknowledged before. A node that is far behind goes on after a while, and answers without ranks.
        """
        heads = self._ledger.heads()
        self.at = max(self.at, heads.at)
        self._answer_by_s = monotonic() + self._answer_wait_s
        self._follow_to(dict(enumerate(heads.sequences)), self._answer_by_s)

    def settle(self, positions: Mapping[int, int]) -> None:
        """Follow what this node appended; it is durable, so that what goes wrong here is no error of its sender."""
        self._settle(positions, monotonic() + self._answer_wait_s)

    def _settle(self, positions: Mapping[int, int], deadline_s: float) -> None:
        try:
            self._follow_to(positions, deadline_s)
        except RankdError as problem:
            _log.warning("what was appended is not ranked here yet: %s", problem)

    def _follow_to(self, positions: Mapping[int, int], deadline_s: float | None = None) -> None:
        while not is_upto(self.positions, positions) and (deadline_s is None or monotonic() < deadline_s):
            self.follow()

    def _note_positions(self) -> None:
        self.positions = dict(enumerate(self.follower.positions))
        self.position_token = tokens(self.positions)

    # Answers

    def answer(self, added: Sequence[Added], appended: Appended) -> None:
        """Follow what was appended, and answer each task with its rank; what is not followed in time, without."""
        for task, question, first in added:
            if task.answers and question is not None and question.subject is not None:
                self._questions[appended.partition[first], appended.sequence[first]] = question
        try:
            self._settle(appended.positions(0, len(appended.sequence)), self._answer_by_s)
        finally:
            self._questions.clear()
        for task, question, first in added:
            positions = appended.positions(first, task.events)
            task.result = self._result(task, question, positions, appended.at)

    def _result(self, task: ScoreTask, question: Question | None, positions: Mapping[int, int], at: int) -> object:
        position, board = tokens(positions), self.boards.get(task.board_id)
        if board is None or not is_upto(self.positions, positions):
            return Accepted(position, task.events, question=question, at=at)
        if not task.answers:
            return Batched(position, task.events)
        return submitted_of(position, board, task.players[0], question, self._clock.now())

    def answer_again(self, task: ScoreTask, request: Request) -> Submitted | Batched | Accepted:
        """Answer a repeat: with the position of the first, and the rank of now."""
        position = tokens(request.positions)
        if not task.answers:
            return Batched(position, request.events, repeated=True)
        self._settle(request.positions, self._answer_by_s)  # another node may have committed it a moment ago
        if not is_upto(self.positions, request.positions):
            return Accepted(position, request.events, repeated=True)
        ((partition, sequence),) = request.positions.items()
        event = self._ledger.event(partition, sequence)
        accepted = self._ledger.context(event.context).boards[task.board_id]
        board = self.applier.catalogue.board(task.board_id, accepted.version)
        detail = (event.detail or [None])[0] or NO_DETAIL
        question = question_about(board, accepted.reading(event.at[0]), task.players[0], detail.attributes)
        if question is not None and question.subject is not None:
            standing = self.applier.store.rank(question.instance, question.subject, question.ranking)
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
        """Cut a run so that each answer is about one event: nobody who is asked about stands twice in a part."""
        asked = [self._questions.get((run.partition, run.first + index)) for index in range(len(run))]
        if not any(asked):
            yield run, []
            return
        is_of_teams = any(one is not None and one.subject != who for one, who in zip(asked, run.players, strict=True))
        start, players = 0, set[str]()
        for index, player in enumerate(run.players):
            if index > start and (is_of_teams or player in players):
                yield run.part(start, index), [one for one in asked[start:index] if one is not None]
                start, players = index, set()
            players.add(player)
        yield run.part(start, len(run)), [one for one in asked[start:] if one is not None]

"""The ranks of this process: follows the ledger into the engine, between commits and after each.

    commit → ledger (synced, numbered) → EngineRanks.rank: applied up to it, its rank before and after → the answer
    another process commits → the node's follower thread → EngineRanks.follow

Everything here runs in the committing thread. So the thread that appended a score answers it, and no other can have
applied it before its rank was read. A sole writer applies its own events directly; otherwise they are read back, with
what others appended before them.

A log is followed beside its commits, which are not answered with ranks: a leader that is away delays either alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import TypeVar

from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.domain.position import is_upto, tokens
from rankd.errors import LedgerNewer, RankdError
from rankd.intake.answering import AnsweringApplier
from rankd.intake.commit import Commit
from rankd.intake.results import Accepted, Batched, Question, Submitted, question_about, submitted_of
from rankd.intake.scores import ScoreTask
from rankd.ledger.event import NO_DETAIL, EventRun
from rankd.ledger.port import Appended, DefinitionsChanged, Ledger, StoredRequest
from rankd.projection.counting import CountingStore
from rankd.projection.follower import Follower

ANSWER_WAIT_MIN_S = 0.1  # for events just appended
STEP_EVENTS = 5_000  # per step: commits of this process wait for it
Result = TypeVar("Result")
_log = logging.getLogger("rankd")


class EngineRanks:
    """The ranks of this process, and their positions in the ledger."""

    def __init__(self, ledger: Ledger, follower: Follower[CountingStore], clock: Clock, answer_wait_ms: int) -> None:
        """A score not followed within `answer_wait_ms` is answered without its rank."""
        self.follower = follower
        self.store = follower.store
        self.applier = follower.applier
        self.boards: Mapping[str, Board] = follower.applier.directory.boards
        self.moved: Callable[[], None] = lambda: None  # called when the ranks have moved on
        self.complete_as_of = 0  # everything that was committed by then, in ms, is ranked
        self.has_caught_up = False  # once, since the start
        self.at = 0
        self.beyond: LedgerNewer | None = None  # permanent: only a newer version can go on
        self._ledger = ledger
        self._is_sole_writer = ledger.capabilities.is_sole_writer
        # Else what this process appends is followed as what others append, and judged then.
        self._ranks_commits = ledger.capabilities.appends_conditionally
        # No other process defines boards, or nothing is known better at the commit.
        self.checks_early = self._is_sole_writer or not self._ranks_commits
        self._clock = clock
        self._answer_wait_s = answer_wait_ms / 1_000
        self._answer_by_s = 0.0  # monotonic
        self._turn = threading.RLock()  # of one step; contended where a log is followed beside commits
        self._questions: dict[tuple[int, int], Question] = {}  # of the current commit, by partition and sequence
        self._answering = AnsweringApplier(self.applier, self.store)
        self._positions: Mapping[int, int] = dict(enumerate(follower.positions))
        self._token: str | None = None
        follower.apply = self._apply

    @property
    def seen(self) -> int:
        """The number of control events followed."""
        return self.follower.controls

    @property
    def has_changed(self) -> bool | None:
        """Whether the last event other than a score changed anything; None where it is followed later."""
        return self.applier.changed if self._ranks_commits else None

    @property
    def positions(self) -> Mapping[int, int]:
        """The ranked position of each partition."""
        return self._positions

    @property
    def events(self) -> int:
        """The number of ranked events."""
        return sum(self._positions.values())

    @property
    def position_token(self) -> str:
        """The ranked positions as clients see them."""
        token = self._token
        if token is None:
            token = self._token = tokens(self._positions)
        return token

    def check_as_of(self, seen: int) -> None:
        """Refuse a commit that was drafted by older definitions than those followed; other ledgers do so themselves."""
        if not self._ranks_commits and (self.follower.is_changing or self.seen != seen):
            raise DefinitionsChanged

    def version_of(self, board_id: str) -> int:
        """Return the current version of a board's definition."""
        live = self.applier.state.boards.get(board_id)
        if live is None:
            raise DefinitionsChanged
        return live.version

    # Following

    def follow(self, events_max: int | None = None) -> int:
        """Follow the ledger by at most `events_max` events; return their number."""
        with self._turn:
            return self._follow(STEP_EVENTS if events_max is None else events_max)

    def run_alone(self, work: Callable[[], Result]) -> Result:
        """Run `work` between two steps."""
        with self._turn:
            return work()

    def _follow(self, events_max: int) -> int:
        asked_at = self._clock.now()
        try:
            done = self.follower.follow(events_max)
        except LedgerNewer as problem:
            self.beyond = problem
            raise
        if done < events_max and not self.follower.waiting:
            self.complete_as_of, self.has_caught_up = asked_at, True
        if done:
            self._move_to(dict(enumerate(self.follower.positions)))
        return done

    def catch_up(self, step: Callable[[], None] = lambda: None) -> None:
        """Follow everything committed by now; `step` is called now and then."""
        asked_at, heads = self._clock.now(), self._ledger.heads()
        self.at = max(self.at, heads.at)
        upto = dict(enumerate(heads.sequences))
        while not is_upto(self._positions, upto):
            if not self.follow():
                return  # the rest of a log waits for other partitions to pass its time, or to get its control event
            step()
        self.complete_as_of = max(self.complete_as_of, asked_at)

    def get_ready(self) -> None:
        """Before a commit, follow what other processes have committed by now.

        So scores are checked against the newest definitions, and an answer includes everything acknowledged before. A
        node that lags far goes on after `answer_wait_ms`, and answers its scores without a rank.
        """
        if self._is_sole_writer or not self._ranks_commits:
            return
        heads = self._ledger.heads()
        self.at = max(self.at, heads.at)
        self._answer_by_s = monotonic() + self._answer_wait_s
        self._follow_to(dict(enumerate(heads.sequences)), self._answer_by_s)

    def rank(self, commit: Commit, appended: Appended) -> None:
        """Apply the appended events, and answer the questions of the commit; those of a log are followed later."""
        if not self._ranks_commits:
            return
        self._questions = {appended.place(index): question for index, question in commit.questions.items()}
        try:
            if self._is_sole_writer:
                self.follower.apply_appended(commit.event_runs)
                self._move_to(appended.end)
            else:
                self._follow_own(appended.end)
        finally:
            self._questions = {}

    def _follow_own(self, positions: Mapping[int, int]) -> None:
        """Follow what this process appended; it is durable, so a failure to read it does not fail the request."""
        try:
            self._follow_to(positions, max(self._answer_by_s, monotonic() + ANSWER_WAIT_MIN_S))
        except RankdError as problem:
            _log.warning("appended events are not ranked here yet: %s", problem)

    def _follow_to(self, positions: Mapping[int, int], deadline_s: float | None = None) -> None:
        while not is_upto(self._positions, positions) and (deadline_s is None or monotonic() < deadline_s):
            self.follow()

    def _move_to(self, positions: Mapping[int, int]) -> None:
        self._positions, self._token = positions, None
        self.moved()

    # Answers

    def result(self, task: ScoreTask, question: Question | None, positions: Mapping[int, int], at: int) -> object:
        """Answer a task with its rank, or without if it was not followed in time."""
        position, board = tokens(positions), self.boards.get(task.board_id)
        # What a sole writer appended is ranked by now; what stands in a log is never answered here.
        is_ranked = self._is_sole_writer or (self._ranks_commits and is_upto(self._positions, positions))
        if board is None or not is_ranked:
            return Accepted(position, task.events, question=question, at=at)
        if not task.answers:
            return Batched(position, task.events)
        return submitted_of(position, board, task.players[0], question, self._clock.now)

    def result_again(self, task: ScoreTask, request: StoredRequest) -> Submitted | Batched | Accepted:
        """Answer a repeated request with the first position and the current rank."""
        position = tokens(request.positions)
        if not task.answers:
            return Batched(position, request.events, repeated=True)
        self._follow_own(request.positions)  # another node may have just committed it
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
        return submitted_of(position, board, task.players[0], question, self._clock.now, repeated=True)

    def _apply(self, run: EventRun) -> None:
        if not self._questions:
            self.applier.apply(run)
        elif len(run.score) == 1:
            question = self._questions.get((run.partition, run.first))
            self._answering.apply(run, [] if question is None else [question])
        else:
            for part, questions in self._parts(run):
                self._answering.apply(part, questions)

    def _parts(self, run: EventRun) -> Iterator[tuple[EventRun, list[Question]]]:
        """Cut a run so that no subject of a question occurs twice in a part."""
        asked = [self._questions.get((run.partition, run.first + index)) for index in range(len(run))]
        questions = [question for question in asked if question is not None]
        if not questions:
            yield run, questions
            return
        named = [
            player if question is None or question.subject is None else question.subject
            for player, question in zip(run.players, asked, strict=True)
        ]
        # The team of an event without a question is unknown here.
        cuts_each = None in asked and named != list(run.players)
        if not cuts_each and len(set(named)) == len(named):
            yield run, questions
            return
        start, subjects = 0, set[str]()
        for index, subject in enumerate(named):
            if index > start and (cuts_each or subject in subjects):
                yield run.part(start, index), [earlier for earlier in asked[start:index] if earlier is not None]
                start, subjects = index, set()
            subjects.add(subject)
        yield run.part(start, len(run)), [question for question in asked[start:] if question is not None]

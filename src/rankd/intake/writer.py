"""The writing side: every change goes through here, one commit at a time, whichever ledger it goes to.

    task → GroupCommit → what the clock has made due → draft → ledger (synced, numbered) → ranked → answers

A change is acknowledged when it is durable. Where this process ranks, it is ranked by then, too: whoever wrote reads
what they wrote.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.errors import BoardUnknown, Closed, LedgerNewer, LedgerUnavailable, RankdError
from rankd.intake.accept import Acceptances
from rankd.intake.commit import Commit
from rankd.intake.followed import FollowedLedger
from rankd.intake.ledger_look import LedgerLook
from rankd.intake.newcomers import Newcomers
from rankd.intake.queue import GroupCommit, LastTask, OtherTask, Task
from rankd.intake.repeats import StoredAnswers, check_same
from rankd.intake.results import Accepted, Batched, Question, Submitted, without_rank
from rankd.intake.scores import ScoreTask, check_open, check_signed
from rankd.intake.sender import Sender
from rankd.ledger.event import Context
from rankd.ledger.port import Appended, DefinitionsChanged, Draft, KeysTaken, Ledger, Request
from rankd.registry.port import Registry
from rankd.settings import Settings
from rankd.shortening import quote

ATTEMPTS_MAX = 20  # definitions may change again and again while somebody commits
REPEATS_S = 1.0  # for so long after one, repeats are looked up before anything is written: they come in crowds
Result = TypeVar("Result")
Keys = Sequence[tuple[str, str]]  # sender and key
_log = logging.getLogger("rankd")


class RollOvers(Protocol):
    """What the clock makes due, as the writer does it."""

    def is_due(self, now: int) -> bool:
        """Tell whether something is due; from any thread."""
        ...

    def append_due(self, at: int) -> int:
        """Append what is due, and return how many events that were; in the committing thread."""
        ...


class _Added(NamedTuple):
    """A task of a commit, what its answer asks, and the index of its first event in the commit."""

    task: ScoreTask
    question: Question | None
    first: int


class Writer:
    """Commits the changes of one process."""

    def __init__(
        self,
        ledger: Ledger,
        followed: FollowedLedger,
        registry: Registry,
        clock: Clock,
        settings: Settings,
        *,
        roll_overs: RollOvers | None = None,
        newcomers: Newcomers | None = None,
    ) -> None:
        """`roll_overs` are appended before whatever comes after them, where this process is the one to do so."""
        self._ledger = ledger
        self._followed = followed
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._roll_overs = roll_overs
        self._newcomers = newcomers
        self.acceptances = Acceptances(lambda: followed.boards, followed.version_of, ledger.number_context)
        self.answers = StoredAnswers(ledger.capabilities.stores_answers)
        is_sole_writer = ledger.capabilities.is_sole_writer
        self._look = None if is_sole_writer else LedgerLook(lambda: self.run_for(followed.catch_up))
        self._seen = followed.seen  # by the acceptances that are remembered
        self._ordered: dict[int, bool] = {}  # contexts, by whether their events reach a team board
        self._commits: GroupCommit[Task] = GroupCommit(
            self._commit, settings.commit_wait_ms, settings.commit_events_max
        )
        self._repeats_until = 0.0  # by the monotonic clock
        self._is_unsure = False  # whether the last append took effect
        self._broken: BaseException | None = None
        self._closed = False
        self._waits_for: str | None = None  # why roll-overs could not be appended
        self._process = os.getpid()
        self.at = max(followed.at, ledger.heads().at)
        self.commits = 0

    # What callers ask for

    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards as they are defined, as far as this process knows."""
        return self._followed.boards

    @property
    def checks_early(self) -> bool:
        """Whether scores may be checked by the definitions known before they are committed."""
        return self._followed.checks_early

    def find_board(self, board_id: str) -> Board | None:
        """Return a board as it is defined now, None where there is none; not in the committing thread.

        Where others define boards too, one that is not known is looked for in the ledger first.
        """
        board = self.boards.get(board_id)
        if board is None and self._look is not None:
            self.check_open()
            self._look.look()
            board = self.boards.get(board_id)
        return board

    def board(self, board_id: str) -> Board:
        """Return a board as it is defined now; in the committing thread."""
        board = self.boards.get(board_id)
        if board is None and self._look is not None:
            self._followed.catch_up()
            board = self.boards.get(board_id)
        if board is None:
            raise BoardUnknown(f"board: there is no board {quote(board_id)}; define it first")
        return board

    @property
    def position_token(self) -> str:
        """How far the ledger is followed, as clients see it."""
        return self._followed.position_token

    def submit(self, task: ScoreTask) -> object:
        """Count scores; what is durable and was not ranked in time is answered without a rank."""
        result = self._commits.run(task)
        if isinstance(result, Accepted):
            return _without_rank(task, result)
        return result

    def submit_all(self, tasks: list[Task]) -> None:
        """Count the scores of many callers, for whom one thread works; each task has its result or its error then."""
        self._commits.run_all(tasks)

    def accept(self, task: ScoreTask) -> Accepted:
        """Make scores durable that another process ranks."""
        result = self._commits.run(task)
        if not isinstance(result, Accepted):
            raise AssertionError("what others rank is accepted first")
        return result

    def run_for(self, work: Callable[[], Result]) -> Result:
        """Do something on its own between two commits of this process, and return what it returns."""
        results: list[Result] = []
        self._commits.run(OtherTask(lambda: results.append(work())))
        return results[0]

    def is_due(self, now: int) -> bool:
        """Tell whether a roll-over is due that this process appends."""
        return self._roll_overs is not None and self._roll_overs.is_due(now)

    def roll_over(self) -> None:
        """Append what the clock has made due, if anything; where that is not possible now, it stays due."""
        self.check_open()
        if self.is_due(self._clock.now()):
            try:
                self.run_for(lambda: None)  # it comes before anything that is committed
                self._waits_for = None
            except LedgerUnavailable as problem:
                if self._waits_for != str(problem):  # every read comes by here meanwhile
                    self._waits_for = str(problem)
                    _log.warning("roll-overs wait: %s", problem)

    def flush_answers(self) -> None:
        """Write the answers of requests that nothing was committed after."""
        if self.answers.waiting:
            self.run_for(lambda: self.append(self.new_commit(), self._seen))

    def close(self, let_go: Callable[[], None] = lambda: None) -> None:
        """Take nothing more: once what is under way is done, `let_go` is called."""

        if self._look is not None:
            self._look.close()

        def end() -> None:
            self._closed = True
            let_go()

        self._commits.run(LastTask(end))

    def check_open(self) -> None:
        """Refuse what comes after `close`, and whoever was forked from the process that opened the boards."""
        if os.getpid() != self._process:
            raise Closed(
                "the boards were opened before this process was forked; one process may use a folder at a time"
            )
        if self._closed:
            raise Closed("the boards were closed; open them again with rankd.open")

    def check_ready(self) -> None:
        """Refuse where no score would be taken: after `close`, and where the ledger is beyond this version."""
        self.check_open()
        if self._followed.beyond is not None:
            raise LedgerNewer(str(self._followed.beyond))

    def attributes_of(self, board: Board, player: str, sent: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return the attributes that a score is ranked by: those it came with, else those of the player's profile."""
        given = sent or {}
        wanted = board.scopes if board.team is None else (*board.scopes, board.team.attribute)
        if all(name in given for name in wanted):
            return given
        return {**self._registry.attributes(player), **given}

    # In the committing thread

    def new_commit(self) -> Commit:
        """Begin a commit."""
        return Commit(
            self.at,
            self.acceptances,
            self._registry,
            self._followed.applier.state,
            scope_values_max=self._settings.scope_values_max,
        )

    def append(self, commit: Commit, seen: int) -> Appended:
        """Make a commit durable and have it ranked; whatever cuts it off, the next commit finds out what became of it.

        Nothing is known of an append that failed: the ledger is followed before anything else is appended.
        """
        draft = Draft(
            commit.stretches,
            commit.at,
            seen,
            commit.metadata,
            commit.requests,
            commit.origins,
            self._ordered_contexts(commit),
            self.forgotten_before,
            self.answers.waiting,
        )
        self._is_unsure = True
        try:
            appended = self._ledger.append(draft)
        except (DefinitionsChanged, KeysTaken):  # nothing was written
            self._is_unsure = False
            raise
        self.commits += 1
        self.answers.written(draft.answers)
        try:
            self._followed.rank(commit, appended)
        except BaseException as problem:
            self._broken = problem
            raise
        self._is_unsure = False
        return appended

    def append_control(self, append: Callable[[], Result]) -> Result:
        """Append control events, by `append`, and follow them; cut off, the next commit does so first."""
        self._is_unsure = True
        result = append()
        self._followed.catch_up()
        self._is_unsure = False
        return result

    @property
    def forgotten_before(self) -> int:
        """A request that came before this instant is no longer recognised, and its key is free."""
        return max(self.at, self._clock.now()) - self._settings.idempotency_ttl_ms + 1

    def retrying(self, work: Callable[[int], Result], taken: Callable[[Keys], None] = lambda _keys: None) -> Result:
        """Do what names the control events seen, again when there are others by then.

        `taken` hears of keys that somebody who was faster has used: what comes under them is a repeat now.
        """
        for _ in range(ATTEMPTS_MAX):
            self._get_ready()
            try:
                return work(self._seen)
            except DefinitionsChanged:
                self._followed.catch_up()
            except KeysTaken as found:
                taken(found.keys)
        raise LedgerUnavailable("definitions change too often; send it again, with the same key")

    def repeat_of(self, sender: Sender, fingerprint: bytes) -> Request | None:
        """Return the request that came under a sender's key before; refuse another one under the same key."""
        if sender.key is None:
            return None
        return self._same(self._ledger.request(sender.account, sender.key), sender, fingerprint)

    def _same(self, found: Request | None, sender: Sender, fingerprint: bytes) -> Request | None:
        if found is None or found.at < self.forgotten_before:
            return None
        check_same(sender, fingerprint, found.fingerprint)
        return found

    def _commit(self, group: list[Task]) -> None:
        self.check_open()
        first = group[0]
        if isinstance(first, LastTask):
            first.work()
            return
        self._get_ready()
        if isinstance(first, OtherTask):
            first.result = first.work()
            return
        self._followed.get_ready()
        tasks = [task for task in group if isinstance(task, ScoreTask)]
        known: dict[tuple[str, str], Request] = {}  # by sender and key: of those that were looked up
        if monotonic() < self._repeats_until:
            known.update(self._ledger.requests([key for task in tasks if (key := _key_of(task.sender)) is not None]))

        def look_up(taken: Keys) -> None:
            self._repeats_until = monotonic() + REPEATS_S
            known.update(self._ledger.requests(taken))

        self.retrying(lambda seen: self._commit_scores(tasks, seen, known), look_up)

    def _get_ready(self) -> None:
        """Do what comes before any commit: find out how far the ledger is and what time it is, append what is due."""
        if self._broken is not None:
            raise Closed(f"the boards must be opened again after: {self._broken}")
        if self._is_unsure:
            self.acceptances.forget()
            self._followed.catch_up()
            self._is_unsure = False
        # Once: what is due by it comes before what happens at it.
        self.at = max(self.at, self._followed.at, self._clock.now())
        if self._roll_overs is not None and self._roll_overs.is_due(self.at):
            roll_overs = self._roll_overs
            self.append_control(lambda: roll_overs.append_due(self.at))
        if self._seen != self._followed.seen:
            self._seen = self._followed.seen
            self.acceptances.forget()
            self._ordered.clear()

    def _commit_scores(self, tasks: list[ScoreTask], seen: int, known: Mapping[tuple[str, str], Request]) -> None:
        """Commit what is new; the ledger itself refuses what came before, so few are looked up beforehand."""
        commit = self.new_commit()
        added: list[_Added] = []
        same: list[tuple[ScoreTask, ScoreTask]] = []
        by_key: dict[tuple[str, str], ScoreTask] = {}
        for task in tasks:
            task.error = None
            sender, key = task.sender, _key_of(task.sender)
            try:
                if key is not None and (twin := by_key.get(key)) is not None:
                    check_same(sender, task.fingerprint, twin.fingerprint)
                    same.append((task, twin))
                elif key is not None and (found := self._same(known.get(key), sender, task.fingerprint)) is not None:
                    task.result = self._answer_again(task, found)
                else:
                    before = commit.events
                    question = commit.add_scores(task, self._checked_board)
                    commit.add_request(sender, task.fingerprint, before)
                    added.append(_Added(task, question, before))
                    if key is not None:
                        by_key[key] = task
            except RankdError as problem:
                task.error = problem
        self._find_repeats([task for task in tasks if task.error is not None])
        if added:
            self._answer(added, self.append(commit, seen))
        for task, twin in same:
            task.result = msgspec.structs.replace(twin.result, repeated=True)  # type: ignore[type-var]

    def _answer(self, added: list[_Added], appended: Appended) -> None:
        for task, question, first in added:
            if self._newcomers is not None:
                for part in task.parts:
                    self._newcomers.see(part.players)
            positions = appended.positions(first, task.events)
            task.result = self._followed.result(task, question, positions, appended.at)
            self.answers.remember(task.sender, task.result)

    def _answer_again(self, task: ScoreTask, request: Request) -> object:
        stored = self.answers.find(request, Submitted) if task.answers else self.answers.find(request, Batched)
        return stored or self._followed.result_again(task, request)

    def _find_repeats(self, refused: list[ScoreTask]) -> None:
        """Answer those that were taken before: whether they would be now is not what a repeat asks."""
        asked = {key: task for task in refused if (key := _key_of(task.sender)) is not None}
        found = self._ledger.requests(list(asked))
        for task in refused:
            key = _key_of(task.sender)
            if key is None or key not in found:
                continue
            try:
                request = self._same(found[key], task.sender, task.fingerprint)
                if request is not None:
                    task.error, task.result = None, self._answer_again(task, request)
            except RankdError as problem:
                task.error = problem

    def _checked_board(self, task: ScoreTask) -> Board:
        board = self.board(task.board_id)
        check_signed(board, task.sender)
        if board is not task.board:  # not checked yet, or changed since
            check_open(board)
            task.check_bounds(board)
        return board

    def _ordered_contexts(self, commit: Commit) -> frozenset[int]:
        """Return the contexts whose events need ordinals: in one partition all are in order anyway."""
        if self._ledger.partitions == 1:
            return frozenset()
        return frozenset(number for number in {one.context for one in commit.stretches} if self._is_ordered(number))

    def _is_ordered(self, number: int) -> bool:
        known = self._ordered.get(number)
        if known is None:
            known = self._ordered[number] = self._reaches_a_team(self._ledger.context(number))
        return known

    def _reaches_a_team(self, context: Context) -> bool:
        catalogue = self._followed.applier.catalogue
        return any(catalogue.board(one, accepted.version).team is not None for one, accepted in context.boards.items())


def _key_of(sender: Sender) -> tuple[str, str] | None:
    return None if sender.key is None else (sender.account, sender.key)


def _without_rank(task: ScoreTask, accepted: Accepted) -> Submitted | Batched:
    if task.answers:
        return without_rank(task, accepted)
    return Batched(accepted.position, accepted.count, accepted.repeated)

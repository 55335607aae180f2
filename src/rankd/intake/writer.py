"""The writing side of the boards: every change goes through here, one commit at a time.

    task → GroupCommit → roll-overs that are due → draft → ledger (synced) → applier → answers

A change is acknowledged when it is on disk and ranked, so whoever wrote reads what they wrote.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.errors import BoardUnknown, Closed, LedgerUnavailable, RankdError
from rankd.intake.accept import Acceptances
from rankd.intake.asking import Asking
from rankd.intake.commit import Commit
from rankd.intake.queue import GroupCommit, LastTask, OtherTask, Task
from rankd.intake.repeats import Repeats, check_same
from rankd.intake.results import PARTITION, Batched, Question, Submitted, submitted, submitted_of, token
from rankd.intake.scores import ScoreTask, check_open, check_signed, single_task
from rankd.intake.sender import Sender
from rankd.intake.way import Way, way_of
from rankd.ledger.event import Detail, Kind, Single, Stretch
from rankd.ledger.port import Draft, Head
from rankd.ledger.sqlite import SqliteLedger
from rankd.projection.applier import Applier
from rankd.projection.port import Verdict
from rankd.registry.port import Registry
from rankd.seasons.due import Due, Schedule
from rankd.settings import Settings
from rankd.shortening import quote

Result = TypeVar("Result")
What = TypeVar("What")
Beside = TypeVar("Beside")
ROLL_OVERS_PER_COMMIT = 1_000
_log = logging.getLogger("rankd")


class Writer:
    """Commits changes and applies them."""

    checks_early = True

    def __init__(
        self, ledger: SqliteLedger, applier: Applier, registry: Registry, clock: Clock, settings: Settings
    ) -> None:
        """Everything that the ledger holds has been applied."""
        self._ledger = ledger
        self._applier = applier
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self.boards: Mapping[str, Board] = applier.directory.boards
        self.acceptances = Acceptances(lambda: self.boards, self._version_of, ledger.number_context)
        self.at = ledger.head().at
        self._commits: GroupCommit[Task] = GroupCommit(
            self._commit, settings.commit_wait_ms, settings.commit_events_max
        )
        self.repeats = Repeats(ledger, applier, settings.idempotency_ttl_ms)
        self._way: Way | None = None  # while all is well, and nothing was committed since that it does not know
        self._unsure = False  # whether the last append took effect
        self._broken: BaseException | None = None
        self._closed = False
        self._waits_for: str | None = None  # why roll-overs could not be appended
        self._process = os.getpid()
        self._asking = Asking(applier, self._apply)
        self._schedule = Schedule(applier.state, lambda: self.boards)
        self.position = ledger.head().sequence
        self.commits = 0
        self.on_commit: Callable[[], None] = lambda: None

    # What callers ask for

    def submit(self, task: ScoreTask) -> object:
        """Count scores."""
        return self._commits.run(task)

    def submit_all(self, tasks: list[Task]) -> None:
        """Count the scores of many callers, for whom one thread works; each task has its result or its error then."""
        self._commits.run_all(tasks)

    def submit_single(self, board: Board, player: str, score: int, tiebreak: int, sender: Sender) -> Submitted:
        """Count one score without a key and with nothing beside it, checked against a board that is open."""
        way = self._way
        answer: object = None
        if way is not None and way.board is board and way.sender == sender.name:
            answer = self._commits.lead_alone(self._go, way, player, score, tiebreak)
        if answer is None:
            answer = self._commits.lead_alone(self._commit_alone, board, player, score, tiebreak, sender)
        if answer is None:
            answer = self.submit(single_task(board, player, score, tiebreak, sender))
        if not isinstance(answer, Submitted):
            raise AssertionError("a single score is answered with Submitted")
        return answer

    def run(self, work: Callable[[], object]) -> object:
        """Do something on its own between two commits."""
        return self._commits.run(OtherTask(work))

    def run_for(self, work: Callable[[], Result]) -> Result:
        """Do something on its own between two commits, and return what it returns."""
        results: list[Result] = []
        self.run(lambda: results.append(work()))
        return results[0]

    def is_due(self, now: int) -> bool:
        """Tell whether a roll-over is due."""
        return self._schedule.is_due(now)

    def roll_over(self) -> None:
        """Append what the clock has made due, if anything; where that is not possible now, it stays due."""
        self.check_open()
        if self.is_due(self._clock.now()):
            try:
                self.run(self._roll_over)
                self._waits_for = None
            except LedgerUnavailable as problem:
                if self._waits_for != str(problem):  # every read comes by here meanwhile
                    self._waits_for = str(problem)
                    _log.warning("roll-overs wait: %s", problem)

    def close(self, let_go: Callable[[], None]) -> None:
        """Take nothing more: once what is under way is done, `let_go` is called."""

        def work() -> None:
            self._way = None
            self._closed = True
            let_go()

        self._commits.run(LastTask(work))

    @property
    def position_token(self) -> str:
        """How far the ledger is, as clients see it."""
        return token(self.position)

    def check_open(self) -> None:
        """Refuse what comes after `close`, and whoever was forked from the process that opened the folder."""
        if os.getpid() != self._process:
            raise Closed(
                "the boards were opened before this process was forked; one process may use a folder at a time"
            )
        if self._closed:
            raise Closed("the boards were closed; open them again with rankd.open")

    def flush_answers(self) -> None:
        """Write the answers of requests that nothing was committed after."""
        if self.repeats.waiting:
            self.run(lambda: self.append(self.new_commit()))

    def board(self, board_id: str) -> Board:
        """Return a board as it is defined now."""
        board = self.boards.get(board_id)
        if board is None:
            raise BoardUnknown(f"board: there is no board {quote(board_id)}; define it first")
        return board

    # In the committing thread

    def _commit(self, group: list[Task]) -> None:
        first = group[0]
        if isinstance(first, LastTask):
            self.check_open()
            first.work()
            return
        self._get_ready()
        if isinstance(first, OtherTask):
            first.result = first.work()
            return
        self._commit_scores([task for task in group if isinstance(task, ScoreTask)])

    def _get_ready(self) -> None:
        """Do what comes before any commit: find out how far the ledger is and what time it is, append what is due."""
        self.check_open()
        if self._broken is not None:
            raise Closed(f"the boards must be opened again after: {self._broken}")
        if self._unsure:
            self._recover()
        self.at = max(self.at, self._clock.now())  # once: what is due by it comes before what happens at it
        if self._schedule.is_due(self.at):
            self._roll_over()

    def _commit_alone(self, board: Board, player: str, score: int, tiebreak: int, sender: Sender) -> object:
        """Commit one score in a thread that leads nobody."""
        self._get_ready()
        answer = self._commit_single(board, player, score, tiebreak, sender)
        if answer is not None:
            return answer
        task = single_task(board, player, score, tiebreak, sender)
        self._commit_scores([task])
        if task.error is not None:
            raise task.error
        return task.result

    def _commit_single(self, board: Board, player: str, score: int, tiebreak: int, sender: Sender) -> Submitted | None:
        """Commit one score that has nothing to say beside its numbers; None, and nothing done, where there is more.

        The rules are those of every score. What they say of all that share a context is known by now, so only numbers
        go from the request to the ledger and on to the rank store.
        """
        if self.boards.get(board.id) is not board or self.repeats.has_waiting:
            return None
        acceptance = self.acceptances.at(board, sender.name, Kind.SCORE, self.at)
        if not acceptance.is_plain:
            return None
        event = Single(acceptance.number, self.at, player, score, tiebreak)
        append, apply = self._ledger.append_single, self._asking.apply_single
        window, change = self._carry_out(append, event, apply, acceptance)
        placement = self._applier.placements.latest(event.context, event.at)
        self._way = way_of(acceptance, placement, self._schedule.next_at)
        return submitted(token(event.first), board, player, window, change, now=self.at)

    def _go(self, way: Way, player: str, score: int, tiebreak: int) -> Submitted | None:
        """Commit a score as the one before it was, in a thread that leads nobody; None where the way is not this one.

        All that `_commit_alone` would find out is known. Short, and calling little: behind a sync the processor's
        caches are cold, and each function costs half a microsecond.
        """
        at = max(self.at, self._clock.now())
        if self._way is not way or not way.since <= at < way.until or os.getpid() != self._process:
            return None
        self.at = at
        self._way, self._unsure = None, True  # whatever cuts it off is known to the next commit
        sequence = self._ledger.append_known(way.context, at, player, score, tiebreak)
        if sequence is None:
            sequence = self._ledger.append_single(Single(way.context, at, player, score, tiebreak)).sequence
        self.commits += 1
        try:
            board, rows = way.board, way.rows
            ties = [board.tie_field(at, tiebreak)] * rows if rows else way.placement.ties(at, tiebreak)
            change = self._applier.store.apply_one(way.table, player, score, ties, at=sequence, ranks=way.ranking)
            if isinstance(change, Verdict):
                raise AssertionError(f"event {sequence} was answered with {change}")
            self.position = sequence
        except BaseException as problem:
            self._broken = problem
            raise
        self._way, self._unsure = way, False
        self.on_commit()
        changed, old, new, rank_before, rank_after = change
        return Submitted(
            f"{PARTITION}-{sequence}", board.id, player, way.window, new, old, changed, rank_after, rank_before
        )

    def _commit_scores(self, tasks: list[ScoreTask]) -> None:
        if len(tasks) > 1:
            self._ledger.look_up_players([player for task in tasks if task.answers for player in task.players])
        commit = self.new_commit()
        added: list[tuple[ScoreTask, Question | None, int]] = []
        same: list[tuple[ScoreTask, ScoreTask]] = []
        by_key: dict[tuple[str, str], ScoreTask] = {}
        for task in tasks:
            sender = task.sender
            try:
                if sender.key is not None and (twin := by_key.get((sender.account, sender.key))) is not None:
                    check_same(sender, task.fingerprint, twin.fingerprint)
                    same.append((task, twin))
                elif sender.key is None or (answer := self.repeats.find(task, commit.at)) is None:
                    added.append((task, self._add(commit, task), commit.events))
                    if sender.key is not None:
                        by_key[sender.account, sender.key] = task
                else:
                    task.result = answer
            except RankdError as problem:
                task.error = problem
        if added:
            self.append(commit)
            before = self.position - commit.events
            for task, question, end in added:
                task.result = self._answer(task, question, before + end)
        for task, twin in same:
            task.result = msgspec.structs.replace(twin.result, repeated=True)  # type: ignore[type-var]

    def _add(self, commit: Commit, task: ScoreTask) -> Question | None:
        before = commit.events
        question = commit.add_scores(task, [self._checked_board(part) for part in task.parts])
        commit.add_request(task.sender, task.fingerprint, before)
        return question

    def _checked_board(self, task: ScoreTask) -> Board:
        board = self.board(task.board_id)
        check_signed(board, task.sender)
        if board is not task.board:  # not checked yet, or changed since
            check_open(board)
            task.check_bounds(board)
        return board

    def _answer(self, task: ScoreTask, question: Question | None, sequence: int) -> Submitted | Batched:
        position = token(sequence)
        answer: Submitted | Batched = Batched(position, task.events)
        if task.answers:
            answer = submitted_of(position, self.board(task.board_id), task.players[0], question, self._clock.now())
        self.repeats.remember(task.sender, answer)
        return answer

    # Roll-overs

    def _roll_over(self) -> None:
        """Append what is due, in the order of time."""
        due = self._schedule.due(self.at)
        for start in range(0, len(due), ROLL_OVERS_PER_COMMIT):
            self._append_due(due[start : start + ROLL_OVERS_PER_COMMIT])

    def retire(self, board_id: str, born: int, instance: str) -> None:
        """Let a window instance leave the store; its archive has been written."""

        def retire() -> None:
            live = self._applier.state.boards.get(board_id)
            # The board may have been deleted, and defined again, since its window was archived.
            if live is not None and live.born == born and instance in live.windows:
                self._append_due([Due(self.at, board_id, Kind.RETIRE, instance)])

        self.run(retire)

    def _append_due(self, due: list[Due]) -> None:
        commit = self.new_commit()
        for one in due:
            acceptance = self.acceptances.at(self.board(one.board), "rankd", one.kind, one.at)
            detail = None if one.instance is None else Detail(window=one.instance)
            commit.add_event(acceptance, detail=detail, at=one.at)
        self.append(commit)

    # The ledger

    def new_commit(self) -> Commit:
        """Begin a commit; in the committing thread."""
        return Commit(
            self.at,
            self._ledger,
            self.acceptances,
            self._registry,
            self._applier.state,
            scope_values_max=self._settings.scope_values_max,
        )

    def append(self, commit: Commit) -> None:
        """Make a commit durable and rank it; in the committing thread."""
        self._carry_out(self._ledger.append, commit.draft(self.repeats.waiting), self._apply_draft, commit)

    def _apply_draft(self, draft: Draft, commit: Commit) -> None:
        self.repeats.written(draft.answers)
        for stretch in commit.stretches:
            self._asking.apply(stretch, commit.questions(stretch))

    def _carry_out(
        self, append: Callable[[What], Head], what: What, apply: Callable[[What, Beside], Result], beside: Beside
    ) -> Result:
        """Append, then apply; whatever cuts it off, and wherever, is known to the next commit."""
        self._way = None
        self._unsure = True
        try:
            head = append(what)
        except BaseException:
            self.acceptances.forget()
            raise
        self.commits += 1
        try:
            result = apply(what, beside)
            self.position = head.sequence
        except BaseException as problem:
            self._broken = problem
            raise
        self._unsure = False
        self.on_commit()
        return result

    def _apply(self, stretch: Stretch) -> None:
        self._applier.apply(stretch)
        context = self._ledger.context(stretch.context)
        if context.kind is not Kind.SCORE:
            self.acceptances.forget()

    def _recover(self) -> None:
        """After a failed append: find out whether it took effect, and rank what did."""
        head = self._ledger.recover()
        try:
            for stretches in self._ledger.read(self.position, head.sequence):
                for stretch in stretches:
                    self._apply(stretch)
        except LedgerUnavailable:
            raise
        except BaseException as problem:
            self._broken = problem
            raise
        self.position = head.sequence
        self.at = max(self.at, head.at)
        self._unsure = False
        self.on_commit()

    def _version_of(self, board_id: str) -> int:
        return self._applier.state.boards[board_id].version

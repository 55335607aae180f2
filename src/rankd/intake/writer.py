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
from rankd.domain.change import change
from rankd.domain.consistency import check_feeds
from rankd.domain.definition import define_board, definition_of
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.errors import BoardInUse, BoardUnknown, Closed, LedgerUnavailable, RankdError, WindowUnknown
from rankd.intake.accept import Acceptance, Acceptances
from rankd.intake.commit import Commit
from rankd.intake.queue import GroupCommit, Task
from rankd.intake.repeats import Repeats, check_same
from rankd.intake.results import Batched, Changed, Question, Submitted, submitted, token
from rankd.intake.scores import ScoreTask, check_open, fingerprint_of
from rankd.intake.sender import Sender
from rankd.ledger.event import Context, Detail, Kind, Stretch
from rankd.ledger.sqlite import SqliteLedger
from rankd.projection.applier import Applier
from rankd.projection.port import Standing
from rankd.registry.port import Registry
from rankd.seasons.due import Due, Schedule
from rankd.settings import Settings

Result = TypeVar("Result")
ROLL_OVERS_PER_COMMIT = 1_000
_log = logging.getLogger("rankd")


class OtherTask(Task):
    """A change that is committed on its own."""

    alone = True

    def __init__(self, work: Callable[[], object]) -> None:
        """`work` is called in the committing thread."""
        super().__init__()
        self.work = work


class LastTask(OtherTask):
    """The end: done whatever happened before."""


class Writer:
    """Commits changes and applies them."""

    def __init__(
        self, ledger: SqliteLedger, applier: Applier, registry: Registry, clock: Clock, settings: Settings
    ) -> None:
        """Everything that the ledger holds has been applied."""
        self._ledger = ledger
        self._applier = applier
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self.boards: Mapping[str, Board] = {}
        self._read_boards()
        self._acceptances = Acceptances(lambda: self.boards, self._version_of, ledger.number_context)
        self.at = ledger.head().at
        self._commits: GroupCommit[Task] = GroupCommit(
            self._commit, settings.commit_wait_ms, settings.commit_events_max
        )
        self._repeats = Repeats(ledger, applier, settings.idempotency_ttl_ms)
        self._unsure = False  # whether the last append took effect
        self._broken: BaseException | None = None
        self._closed = False
        self._process = os.getpid()
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

    def run(self, work: Callable[[], object]) -> object:
        """Do something on its own between two commits."""
        return self._commits.run(OtherTask(work))

    def run_for(self, work: Callable[[], Result]) -> Result:
        """Do something on its own between two commits, and return what it returns."""
        results: list[Result] = []
        self.run(lambda: results.append(work()))
        return results[0]

    def register(self, work: Callable[[], object], said: object, sender: Sender) -> None:
        """Change the registry between two commits, once under its key: it may number players, as commits do."""
        fingerprint = b"" if sender.key is None else fingerprint_of(said)

        def registered() -> None:
            if self._repeats.find_change(sender, fingerprint, self.at) is not None:
                return
            try:
                work()
            finally:
                self._ledger.forget_numbers()
            if sender.key is not None:
                self._append_change(self._new_commit(), sender, fingerprint)

        self.run(registered)

    def define(self, board_id: object, definition: object, sender: Sender) -> Changed:
        """Define a board or change it; the same definition again changes nothing."""
        board = define_board(board_id, definition)
        said = (Kind.DEFINE, board.id, definition_of(board))
        return self._change(sender, said, lambda commit: self._define(commit, board, sender.name))

    def delete(self, board_id: str, sender: Sender) -> Changed:
        """Delete a board with all its instances."""
        return self._change(sender, (Kind.DELETE, board_id), lambda commit: self._delete(commit, board_id, sender.name))

    def remove(self, board_id: str, player: str, sender: Sender) -> Changed:
        """Take a player out of every instance of a board."""

        def remove(commit: Commit) -> None:
            board = self.board(board_id)
            commit.add_event(self._acceptances.at(board, sender.name, Kind.REMOVE, commit.at), player)

        return self._change(sender, (Kind.REMOVE, board_id, player), remove)

    def reset(self, board_id: str, window: str | None, sender: Sender) -> Changed:
        """Empty the current instances of one window, or of all."""

        def reset(commit: Commit) -> None:
            board = self.board(board_id)
            if window is not None and window not in board.all_windows:
                raise WindowUnknown(
                    f"window: {board_id} has no window {window!r:.80}; it declares {', '.join(board.all_windows)}"
                )
            detail = None if window is None else Detail(window=window)
            commit.add_event(self._acceptances.at(board, sender.name, Kind.RESET, commit.at), detail=detail)

        return self._change(sender, (Kind.RESET, board_id, window), reset)

    def _change(self, sender: Sender, said: object, draft: Callable[[Commit], None]) -> Changed:
        """Commit a change that is no score, once under its key; `draft` adds its event, or nothing."""
        fingerprint = b"" if sender.key is None else fingerprint_of(said)

        def change_once() -> Changed:
            known = self._repeats.find_change(sender, fingerprint, self.at)
            if known is not None:
                return known
            commit = self._new_commit()
            draft(commit)
            if not commit.events and sender.key is None:
                return Changed(token(self.position), changed=False)
            return self._append_change(commit, sender, fingerprint)

        return self.run_for(change_once)

    def _append_change(self, commit: Commit, sender: Sender, fingerprint: bytes) -> Changed:
        commit.add_request(sender, fingerprint, 0)
        self._append(commit)
        answer = Changed(token(self.position), bool(commit.events) and self._applier.changed)
        self._repeats.remember(sender, answer)
        return answer

    def is_due(self, now: int) -> bool:
        """Tell whether a roll-over is due."""
        return self._schedule.is_due(now)

    def roll_over(self) -> None:
        """Append what the clock has made due, if anything; where that is not possible now, it stays due."""
        self.check_open()
        if self.is_due(self._clock.now()):
            try:
                self.run(self._roll_over)
            except LedgerUnavailable as problem:
                _log.warning("roll-overs wait: %s", problem)

    def close(self, let_go: Callable[[], None]) -> None:
        """Take nothing more: once what is under way is done, `let_go` is called."""

        def work() -> None:
            self._closed = True
            let_go()

        self._commits.run(LastTask(work))

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
        if self._repeats.waiting:
            self.run(lambda: self._append(self._new_commit()))

    def board(self, board_id: str) -> Board:
        """Return a board as it is defined now."""
        board = self.boards.get(board_id)
        if board is None:
            raise BoardUnknown(f"board: there is no board {board_id!r:.80}; define it first")
        return board

    # In the committing thread

    def _commit(self, group: list[Task]) -> None:
        first = group[0]
        self.check_open()
        if isinstance(first, LastTask):
            first.work()
            return
        if self._broken is not None:
            raise Closed(f"the boards must be opened again after: {self._broken}")
        if self._unsure:
            self._recover()
        self.at = max(self.at, self._clock.now())  # once: what is due by it comes before what happens at it
        if self._schedule.is_due(self.at):
            self._roll_over()
        if isinstance(first, OtherTask):
            first.result = first.work()
            return
        self._commit_scores([task for task in group if isinstance(task, ScoreTask)])

    def _commit_scores(self, tasks: list[ScoreTask]) -> None:
        commit = self._new_commit()
        added: list[tuple[ScoreTask, Question | None, int]] = []
        same: list[tuple[ScoreTask, ScoreTask]] = []
        by_key: dict[tuple[str, str], ScoreTask] = {}
        for task in tasks:
            sender = task.sender
            try:
                if sender.key is not None and (twin := by_key.get((sender.account, sender.key))) is not None:
                    check_same(sender, task.fingerprint, twin.fingerprint)
                    same.append((task, twin))
                elif sender.key is None or (answer := self._repeats.find(task, commit.at)) is None:
                    added.append((task, self._add(commit, task), commit.events))
                    if sender.key is not None:
                        by_key[sender.account, sender.key] = task
                else:
                    task.result = answer
            except RankdError as problem:
                task.error = problem
        if added:
            self._append(commit)
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
        if board is not task.board:  # not checked yet, or changed since
            check_open(board)
            task.check_bounds(board)
        return board

    def _answer(self, task: ScoreTask, question: Question | None, sequence: int) -> Submitted | Batched:
        position = token(sequence)
        answer: Submitted | Batched = Batched(position, task.events)
        if task.answers:
            answer = submitted(position, self.board(task.board_id), task.players[0], question, self._clock.now())
        self._repeats.remember(task.sender, answer)
        return answer

    # Definitions

    def _define(self, commit: Commit, board: Board, sender: str) -> None:
        old = self.boards.get(board.id)
        if old is not None and not change(old, board):
            return
        check_feeds({**self.boards, board.id: board})
        version = self._applier.state.versions.get(board.id, 0) + 1
        accepted = self._acceptances.accepted(board, commit.at, version)
        context = Context(Kind.DEFINE, board.id, sender, {board.id: accepted})
        acceptance = Acceptance(context, self._ledger.number_context(context), board, [])
        commit.add_event(acceptance, detail=Detail(definition=definition_of(board)))

    def _delete(self, commit: Commit, board_id: str, sender: str) -> None:
        board = self.board(board_id)
        feeding = [other.id for other in self.boards.values() if board_id in other.feeds]
        if feeding:
            raise BoardInUse(f"board: {board_id} is fed by {', '.join(feeding)}; delete those first")
        commit.add_event(self._acceptances.at(board, sender, Kind.DELETE, commit.at))

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
        commit = self._new_commit()
        for one in due:
            acceptance = self._acceptances.at(self.board(one.board), "rankd", one.kind, one.at)
            detail = None if one.instance is None else Detail(window=one.instance)
            commit.add_event(acceptance, detail=detail, at=one.at)
        self._append(commit)

    # The ledger

    def _new_commit(self) -> Commit:
        return Commit(
            self.at,
            self._ledger,
            self._acceptances,
            self._registry,
            self._applier.state,
            scope_values_max=self._settings.scope_values_max,
        )

    def _append(self, commit: Commit) -> None:
        answers = self._repeats.waiting
        try:
            head = self._ledger.append(commit.draft(answers))
        except BaseException:
            self._acceptances.forget()
            self._unsure = True
            raise
        self.commits += 1
        self._repeats.written(answers)
        try:
            for stretch in commit.stretches:
                self._apply_asking(stretch, commit.questions(stretch))
        except BaseException as problem:
            self._broken = problem
            raise
        self.position = head.sequence
        self.on_commit()

    def _apply_asking(self, stretch: Stretch, questions: list[Question]) -> None:
        """Apply a stretch and answer what is asked about it."""
        if len(questions) == 1 and len(stretch) == 1:
            (question,) = questions
            change = self._applier.apply_one(stretch, question.instance, question.ranking)
            if change is not None:
                question.answer_from(change)
                return
        before = self._stand(questions)
        self._apply(stretch)
        for question, stood, stands in zip(questions, before, self._stand(questions), strict=True):
            question.answer(stood, stands)

    def _stand(self, questions: list[Question]) -> list[Standing | None]:
        together: dict[tuple[InstanceKey, Ranking], list[int]] = {}
        for index, question in enumerate(questions):
            together.setdefault((question.instance, question.ranking), []).append(index)
        standings: list[Standing | None] = [None] * len(questions)
        for (instance, ranking), indices in together.items():
            subjects = [questions[index].subject or "" for index in indices]
            for index, standing in zip(indices, self._applier.store.ranks(instance, subjects, ranking), strict=True):
                standings[index] = standing
        return standings

    def _apply(self, stretch: Stretch) -> None:
        self._applier.apply(stretch)
        context = self._ledger.context(stretch.context)
        if context.kind is not Kind.SCORE:
            self._acceptances.forget()
            if context.kind in (Kind.DEFINE, Kind.DELETE):
                self._read_boards()

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

    def _version_of(self, board_id: str) -> int:
        return self._applier.state.boards[board_id].version

    def _read_boards(self) -> None:
        state, catalogue = self._applier.state, self._applier.catalogue
        self.boards = catalogue.current({board_id: live.version for board_id, live in state.boards.items()})

"""The writer: every change of a process goes through it, one commit at a time, to any ledger.

    task → GroupCommit → due roll-overs → draft → ledger (synced, numbered) → ranked → answers

A change is acknowledged when it is durable. Where this process ranks, it is ranked by then, too: a client reads its own
writes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Protocol, TypeVar

import msgspec

from rankd.clock import Clock
from rankd.domain.acceptance import check_open
from rankd.domain.board import Board
from rankd.errors import Behind, BoardUnknown, Closed, LedgerNewer, LedgerUnavailable, RankdError
from rankd.intake.accept import Acceptances
from rankd.intake.backpressure import Backpressure
from rankd.intake.board_lookup import BoardLookup
from rankd.intake.commit import Commit
from rankd.intake.followed import FollowedLedger, catch_up_within
from rankd.intake.newcomers import Newcomers
from rankd.intake.queue import GroupCommit, LastTask, OtherTask, Task
from rankd.intake.repeats import StoredAnswers, check_same
from rankd.intake.results import Accepted, Batched, Question, Submitted, without_rank
from rankd.intake.scores import ScoreTask, check_signed
from rankd.intake.sender import Sender
from rankd.ledger.event import Context
from rankd.ledger.port import (
    Appended,
    DefinitionsChanged,
    Draft,
    KeysTaken,
    Ledger,
    SourceMoved,
    SourceSpan,
    StoredRequest,
)
from rankd.registry.port import Registry
from rankd.settings import Settings
from rankd.shortening import quote

ATTEMPTS_MAX = 20  # of one commit, while other processes change definitions
REPEATS_S = 1.0  # for so long after a repeat, the writer looks up keys before it appends: repeats come in bursts
Result = TypeVar("Result")
RequestKeys = Sequence[tuple[str, str]]  # sender and key
_log = logging.getLogger("rankd")


class DueWork(Protocol):
    """What the clock makes due, as the writer does it."""

    def is_due(self, now: int, board_ids: Iterable[str]) -> bool:
        """Return whether something is due of some boards; from any thread."""
        ...

    def append_due(self, at: int, board_ids: Iterable[str]) -> int:
        """Append what is due of some boards, and return how many events that were; in the committing thread."""
        ...


# A task of a commit, what its answer asks, and the index of its first event in the commit.
_Added = tuple[ScoreTask, Question | None, int]


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
        roll_overs: DueWork | None = None,
        newcomers: Newcomers | None = None,
        backpressure: Backpressure | None = None,
    ) -> None:
        """`roll_overs` are due events that this process appends before changes of their boards, unless another does."""
        self._ledger = ledger
        self._followed = followed
        self.boards = followed.boards  # a live view
        self.checks_early = followed.checks_early  # whether callers may check scores by `boards` before the commit
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._roll_overs = roll_overs
        self._newcomers = newcomers
        self.backpressure = backpressure or Backpressure()  # none where nothing can lag
        self.acceptances = Acceptances(lambda: followed.boards, followed.version_of, ledger.number_context)
        self.answers = StoredAnswers(ledger.capabilities.stores_answers)
        is_sole_writer = ledger.capabilities.is_sole_writer
        self.appends_conditionally = ledger.capabilities.appends_conditionally
        look = (lambda: self.run_for(followed.catch_up)) if self.appends_conditionally else followed.catch_up
        self._board_lookup = None if is_sole_writer else BoardLookup(look)
        self._seen = followed.seen  # control events behind the cached acceptances
        self._has_ordinals = ledger.partitions > 1  # one partition is ordered anyway
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

    # For callers

    def find_board(self, board_id: str) -> Board | None:
        """Return a board's current definition, None without one; not in the committing thread.

        Where other processes define boards too, an unknown board is looked up in the ledger first.
        """
        board = self.boards.get(board_id)
        if board is None and self._board_lookup is not None:
            self.check_open()
            self._board_lookup.open()
            board = self.boards.get(board_id)
        return board

    def board(self, board_id: str) -> Board:
        """Return a board's current definition; in the committing thread."""
        board = self.boards.get(board_id)
        if board is None and self._board_lookup is not None:
            self._followed.catch_up()
            board = self.boards.get(board_id)
        if board is None:
            raise BoardUnknown(f"board: there is no board {quote(board_id)}; define it first")
        return board

    @property
    def position_token(self) -> str:
        """The position followed so far, as a token for clients."""
        return self._followed.position_token

    def admit(self, sender: Sender, events: int = 1) -> None:
        """Wait while ranks lag, or raise Behind; a server has admitted its senders, without a thread that waits."""
        if sender.is_local:
            self.backpressure.admit(sender.account, events)

    def submit(self, task: ScoreTask) -> object:
        """Commit scores; scores that are durable and were not ranked in time are answered without a rank."""
        self.admit(task.sender, task.events)
        result = self._commits.run(task)
        if isinstance(result, Accepted):
            return _without_rank(task, result)
        return result

    def enqueue(self, tasks: Sequence[Task], on_done: Callable[[list[Task], float], None]) -> None:
        """Queue scores without waiting; see `GroupCommit.enqueue`."""
        self._commits.enqueue(tasks, on_done)

    def accept(self, task: ScoreTask) -> Accepted:
        """Make scores durable that another process ranks."""
        result = self._commits.run(task)
        if not isinstance(result, Accepted):
            raise AssertionError("a score that another process ranks is accepted first")
        return result

    def run_for(self, work: Callable[[], Result], boards: Sequence[str] = ()) -> Result:
        """Run `work` between two commits of this process, after what is due of its boards, and return its result."""
        results: list[Result] = []
        self._commits.run(OtherTask(lambda: results.append(work()), boards))
        return results[0]

    def is_due(self, now: int, board_id: str) -> bool:
        """Return whether a roll-over of a board is due that this process appends."""
        return self._roll_overs is not None and self._roll_overs.is_due(now, (board_id,))

    def roll_over(self, board_id: str) -> None:
        """Append the due roll-overs of a board; if the ledger is unavailable, they stay due."""
        self.check_open()
        if self.is_due(self._clock.now(), board_id):
            try:
                self.run_for(lambda: None, (board_id,))
                self._waits_for = None
            except LedgerUnavailable as problem:
                if self._waits_for != str(problem):  # log once: every read calls this
                    self._waits_for = str(problem)
                    _log.warning("roll-overs wait: %s", problem)

    def source_offsets(self, source: str) -> dict[int, int]:
        """Return the offsets to read next of a source, by partition; without those never read."""
        return self._ledger.source_offsets(source)

    def skip_sources(self, spans: Sequence[SourceSpan]) -> None:
        """Move sources on without events."""

        def skip(seen: int) -> None:
            commit = self.new_commit()
            commit.sources = spans
            self.append(commit, seen)

        self.run_for(lambda: self.retrying(skip))

    def flush_answers(self) -> None:
        """Write the answers that no later commit has written."""
        if self.answers.waiting:
            self.run_for(lambda: self.append(self.new_commit(), self._seen))

    def close(self, let_go: Callable[[], None] = lambda: None) -> None:
        """Refuse further tasks, finish those under way, then call `let_go`."""

        if self._board_lookup is not None:
            self._board_lookup.close()

        def end() -> None:
            self._closed = True
            let_go()

        self._commits.run(LastTask(end))
        self._commits.close()

    def check_open(self) -> None:
        """Refuse calls after `close`, and in a process forked from the one that opened the boards."""
        if os.getpid() != self._process:
            raise Closed(
                "the boards were opened before this process was forked; one process may use a folder at a time"
            )
        if self._closed:
            raise Closed("the boards were closed; open them again with rankd.open")

    def check_ready(self) -> None:
        """Refuse to be sent requests: after `close`, before it has caught up, and with a ledger of a newer version."""
        self.check_open()
        if self._followed.beyond is not None:
            raise LedgerNewer(str(self._followed.beyond))
        if not self._followed.has_caught_up:
            raise Behind("the ranks have not caught up with the ledger since the start; ask another process")

    def attributes_of(self, board: Board, player: str, sent: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return the attributes that a score is ranked by: those sent with it, else those of the player's profile."""
        given = sent or {}
        wanted = board.scopes if board.team is None else (*board.scopes, board.team.attribute)
        if all(name in given for name in wanted):
            return given
        return {**self._registry.attributes([player]).get(player, {}), **given}

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
        """Make a commit durable and rank it.

        The outcome of a failed append is unknown, so the next commit follows a ledger that compares before it appends.
        """
        draft = Draft(
            commit.event_runs,
            commit.at,
            seen,
            commit.metadata,
            commit.requests,
            commit.origins,
            self._ordered_contexts(commit) if self._has_ordinals else frozenset(),
            self.forgotten_before if commit.requests else 0,
            self.answers.waiting if self.answers.are_due or not commit.events else (),
            commit.sources,
        )
        self._followed.check_as_of(seen)
        self._is_unsure = self.appends_conditionally
        try:
            appended = self._ledger.append(draft)
        except (DefinitionsChanged, KeysTaken, SourceMoved):  # nothing was written
            self._is_unsure = False
            raise
        self.commits += 1
        if draft.answers:
            self.answers.written(draft.answers)
        try:
            self._followed.rank(commit, appended)
        except BaseException as problem:
            self._broken = problem
            raise
        self._is_unsure = False
        return appended

    def append_control(self, append: Callable[[], Result]) -> Result:
        """Append control events by `append` and follow them; if that fails, the next commit follows them first."""
        self._is_unsure = self.appends_conditionally
        result = append()
        self._followed.catch_up()
        self._is_unsure = False
        return result

    def run_control(self, append: Callable[[], Result]) -> Result:
        """Append control events between two commits, and follow them; not in the committing thread."""
        return self.run_for(lambda: self.append_control(append))

    @property
    def forgotten_before(self) -> int:
        """The instant before which the keys of requests have expired."""
        return max(self.at, self._clock.now()) - self._settings.idempotency_ttl_ms + 1

    def retrying(
        self,
        work: Callable[[int], Result],
        boards: Sequence[str] = (),
        taken: Callable[[RequestKeys], None] = lambda _keys: None,
    ) -> Result:
        """Run `work` with the number of control events followed, again if others were committed meanwhile.

        What is due of its boards comes first. `taken` gets keys that another process has just used: requests under them
        are repeats now.
        """
        for _ in range(ATTEMPTS_MAX):
            self._get_ready(boards)
            try:
                return work(self._seen)
            except DefinitionsChanged:
                catch_up_within(self._ledger.capabilities.append_wait_ms, self._followed)
            except KeysTaken as refusal:
                taken(refusal.keys)
        raise LedgerUnavailable("definitions change too often; send it again, with the same key")

    def repeat_of(self, sender: Sender, fingerprint: bytes) -> StoredRequest | None:
        """Return the earlier request under a sender's key; refuse a different one."""
        if sender.key is None:
            return None
        return self._same(self._ledger.request(sender.account, sender.key), sender, fingerprint)

    def _same(self, request: StoredRequest | None, sender: Sender, fingerprint: bytes) -> StoredRequest | None:
        if request is None or request.at < self.forgotten_before:
            return None
        check_same(sender, fingerprint, request.fingerprint)
        return request

    def _commit(self, group: list[Task]) -> None:
        self.check_open()
        first = group[0]
        if isinstance(first, OtherTask):
            if not isinstance(first, LastTask):
                self._get_ready(first.boards)
            first.result = first.work()
            return
        if self._board_lookup is not None:  # other processes append, too
            self._check_whole()
            self._followed.get_ready()
        tasks: list[ScoreTask] = group  # type: ignore[assignment]  # there are no others
        known: dict[tuple[str, str], StoredRequest] = {}  # looked-up requests by sender and key
        if monotonic() < self._repeats_until:
            known.update(self._ledger.requests([key for task in tasks if (key := _key_of(task.sender)) is not None]))

        def look_up(taken: RequestKeys) -> None:
            self._repeats_until = monotonic() + REPEATS_S
            known.update(self._ledger.requests(taken))

        boards = [part.board_id for task in tasks for part in task.parts]
        self.retrying(lambda seen: self._commit_scores(tasks, seen, known), boards, look_up)

    def _check_whole(self) -> None:
        if self._broken is not None:
            raise Closed(f"the boards must be opened again after: {self._broken}")

    def _get_ready(self, boards: Sequence[str]) -> None:
        """Prepare a commit: resolve a failed append, set the ledger's time, append what is due of its boards."""
        if self._broken is not None:
            self._check_whole()
        if self._is_unsure:
            self.acceptances.forget()
            self._followed.catch_up()
            self._is_unsure = False
        # Read the clock once: roll-overs due at this instant precede the events at it.
        self.at = max(self.at, self._followed.at, self._clock.now())
        if self._roll_overs is not None and self._roll_overs.is_due(self.at, self._reached(boards)):
            roll_overs = self._roll_overs
            self.append_control(lambda: roll_overs.append_due(self.at, self._reached(boards)))
        if self._seen != self._followed.seen:
            self._seen = self._followed.seen
            self.acceptances.forget()
            self._ordered.clear()

    def _reached(self, boards: Sequence[str]) -> Iterator[str]:
        """Yield boards and those that they feed."""
        for board_id in boards:
            yield board_id
            board = self.boards.get(board_id)
            if board is not None:
                yield from board.feeds

    def _commit_scores(self, tasks: list[ScoreTask], seen: int, known: Mapping[tuple[str, str], StoredRequest]) -> None:
        """Commit new requests; the ledger itself refuses used keys, so few are looked up first."""
        commit = self.new_commit()
        added: list[_Added] = []
        same: list[tuple[ScoreTask, ScoreTask]] = []
        by_key: dict[tuple[str, str], ScoreTask] = {}
        is_refused = False
        for task in tasks:
            task.error = None
            sender = task.sender
            key = None if sender.key is None else (sender.account, sender.key)
            try:
                if key is not None and (twin := by_key.get(key)) is not None:
                    check_same(sender, task.fingerprint, twin.fingerprint)
                    same.append((task, twin))
                elif key is not None and (request := self._same(known.get(key), sender, task.fingerprint)) is not None:
                    task.result = self._answer_again(task, request)
                else:
                    before = commit.events
                    question = commit.add_scores(task, self._checked_board)
                    if key is not None or sender.origin is not None:
                        commit.add_request(sender, task.fingerprint, before)
                    added.append((task, question, before))
                    if key is not None:
                        by_key[key] = task
            except RankdError as problem:
                task.error, is_refused = problem, True
        if is_refused:
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
            if task.sender.key is not None:
                self.answers.remember(task.sender, task.result)

    def _answer_again(self, task: ScoreTask, request: StoredRequest) -> object:
        stored = self.answers.find(request, Submitted) if task.answers else self.answers.find(request, Batched)
        return stored or self._followed.result_again(task, request)

    def _find_repeats(self, refused: list[ScoreTask]) -> None:
        """Answer refused tasks that are repeats: a repeat succeeds even if its request would be refused now."""
        asked = {key: task for task in refused if (key := _key_of(task.sender)) is not None}
        stored = self._ledger.requests(list(asked))
        for task in refused:
            key = _key_of(task.sender)
            if key is None or key not in stored:
                continue
            try:
                request = self._same(stored[key], task.sender, task.fingerprint)
                if request is not None:
                    task.error, task.result = None, self._answer_again(task, request)
            except RankdError as problem:
                task.error = problem

    def _checked_board(self, task: ScoreTask) -> Board:
        board = self.boards.get(task.board_id) or self.board(task.board_id)
        if board.signing is not None:
            check_signed(board, task.sender)
        if board is not task.board:  # unchecked, or the board has changed since
            check_open(board)
            task.check_bounds(board)
        return board

    def _ordered_contexts(self, commit: Commit) -> frozenset[int]:
        """Return the contexts whose events need ordinals."""
        return frozenset(
            number for number in {event_run.context for event_run in commit.event_runs} if self._is_ordered(number)
        )

    def _is_ordered(self, number: int) -> bool:
        known = self._ordered.get(number)
        if known is None:
            known = self._ordered[number] = self._reaches_a_team(self._ledger.context(number))
        return known

    def _reaches_a_team(self, context: Context) -> bool:
        catalogue = self._followed.applier.catalogue
        return any(
            catalogue.board(board_id, accepted.version).team is not None
            for board_id, accepted in context.boards.items()
        )


def _key_of(sender: Sender) -> tuple[str, str] | None:
    return None if sender.key is None else (sender.account, sender.key)


def _without_rank(task: ScoreTask, accepted: Accepted) -> Submitted | Batched:
    if task.answers:
        return without_rank(task, accepted)
    return Batched(accepted.position, accepted.count, accepted.repeated)

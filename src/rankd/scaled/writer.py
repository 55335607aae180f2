"""Scores of an API process become events of the shared ledger, a group at a time.

    task → GroupCommit → accepted under the definitions seen → PostgreSQL (synced, numbered) → Accepted

Ranking is somebody else's work: a score is acknowledged when it is durable, and whoever wants its rank waits for it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TypeVar

import msgspec

from rankd.clock import Clock
from rankd.domain.board import Board
from rankd.errors import BoardUnknown, Closed, LedgerUnavailable, RankdError
from rankd.intake.accept import Acceptances
from rankd.intake.commit import Commit
from rankd.intake.followed import Added, FollowedLedger
from rankd.intake.queue import GroupCommit, LastTask, OtherTask, Task
from rankd.intake.repeats import check_same
from rankd.intake.scores import ScoreTask, check_open, check_signed
from rankd.intake.sender import Sender
from rankd.ledger.event import Context
from rankd.ledger.partitioned import (
    Appended,
    DefinitionsChanged,
    Keyed,
    KeysTaken,
    PartitionedDraft,
    PartitionedLedger,
    Request,
)
from rankd.registry.port import Registry
from rankd.settings import Settings
from rankd.shortening import quote

PLAYERS_KNOWN_MAX = 1_000_000
ATTEMPTS_MAX = 20  # definitions may change again and again while somebody commits
REPEATS_S = 1.0  # for so long after one, repeats are looked for before anything is written: they come in crowds
Result = TypeVar("Result")
Keys = Sequence[tuple[str, str]]  # sender and key


class Newcomers:
    """Players whom this process has not seen before: they are to be found by their ids, profile or not."""

    def __init__(self, known_max: int = PLAYERS_KNOWN_MAX) -> None:
        """`known_max` are remembered; when they are more, all are new again."""
        self._known_max = known_max
        self._known: set[str] = set()
        self._new: list[str] = []

    def see(self, players: Sequence[str]) -> None:
        """Note who scored; in the committing thread."""
        for player in players:
            # Those whom nobody could be told of for long are new again the next time they score.
            if player not in self._known and len(self._new) < self._known_max:
                if len(self._known) >= self._known_max:
                    self._known.clear()
                self._known.add(player)
                self._new.append(player)

    def take(self) -> list[str]:
        """Return those who are new since the last time; in any thread."""
        new, self._new = self._new, []
        return new

    def put_back(self, players: list[str]) -> None:
        """Have those again who were taken and could not be met; in any thread."""
        self._new[:0] = players


class Numbering:
    """What a commit in the making asks of the ledger: contexts have numbers, players stand by their ids."""

    def __init__(self, ledger: PartitionedLedger) -> None:
        """Contexts are shared by all processes."""
        self.number_context = ledger.number_context

    def number_players(self, players: Sequence[str]) -> array[int]:
        """Return a column of nothing."""
        return array("q", bytes(8 * len(players)))


class SharedWriter:
    """Commits the scores of one process."""

    def __init__(
        self,
        ledger: PartitionedLedger,
        followed: FollowedLedger,
        registry: Registry,
        clock: Clock,
        settings: Settings,
    ) -> None:
        """The ledger is followed further whenever it says that definitions have changed."""
        self._ledger = ledger
        self._followed = followed
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._numbering = Numbering(ledger)
        self.acceptances = Acceptances(lambda: followed.boards, followed.version_of, ledger.number_context)
        self._seen = followed.seen  # by the acceptances that are remembered
        self._ordered: dict[int, bool] = {}  # contexts, by whether their events reach a team board
        self._commits: GroupCommit[Task] = GroupCommit(
            self._commit, settings.commit_wait_ms, settings.commit_events_max
        )
        self.newcomers = Newcomers()
        self._closed = False
        self._repeats_until = 0.0  # by the monotonic clock
        self.at = max(followed.at, ledger.heads().at)
        self.commits = 0

    @property
    def boards(self) -> Mapping[str, Board]:
        """The boards as they are defined, as far as this process knows."""
        return self._followed.boards

    def board(self, board_id: str) -> Board:
        """Return a board as it is defined now."""
        board = self.boards.get(board_id)
        if board is None:
            raise unknown_board(board_id)
        return board

    def attributes_of(self, board: Board, player: str, sent: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return the attributes that a score is ranked by: those it came with, else those of the player's profile."""
        given = sent or {}
        wanted = board.scopes if board.team is None else (*board.scopes, board.team.attribute)
        if all(name in given for name in wanted):
            return given
        return {**self._registry.attributes(player), **given}

    def submit(self, task: ScoreTask) -> object:
        """Make scores durable."""
        return self._commits.run(task)

    def submit_all(self, tasks: list[Task]) -> None:
        """Make the scores of many callers durable; each task has its result or its error then."""
        self._commits.run_all(tasks)

    def run_for(self, work: Callable[[], Result]) -> Result:
        """Do something on its own between two commits of this process, and return what it returns."""
        results: list[Result] = []
        self._commits.run(OtherTask(lambda: results.append(work())))
        return results[0]

    def close(self) -> None:
        """Take nothing more, once what is under way is done."""

        def end() -> None:
            self._closed = True

        self._commits.run(LastTask(end))

    def check_open(self) -> None:
        """Refuse what comes after `close`."""
        if self._closed:
            raise Closed("the boards were closed; open them again")

    # In the committing thread

    def catch_up(self) -> None:
        """Follow the definitions; what was accepted under others is worked out anew."""
        self._followed.catch_up()
        self.get_ready()

    def get_ready(self) -> None:
        """Find out what time it is, and forget acceptances of other definitions."""
        if self._seen != self._followed.seen:
            self._seen = self._followed.seen
            self.acceptances.forget()
            self._ordered.clear()
        self.at = max(self.at, self._followed.at, self._clock.now())

    def new_commit(self) -> Commit:
        """Begin a commit."""
        return Commit(
            self.at,
            self._numbering,
            self.acceptances,
            self._registry,
            self._followed.applier.state,
            scope_values_max=self._settings.scope_values_max,
        )

    def append(self, commit: Commit, seen: int) -> Appended:
        """Make a commit durable."""
        requests = [Keyed(one.sender, one.key, one.fingerprint, first, count) for one, first, count in commit.requests]
        contexts = {stretch.context for stretch in commit.stretches}
        appended = self._ledger.append(
            PartitionedDraft(
                commit.stretches,
                commit.at,
                seen,
                commit.metadata,
                requests,
                commit.origins,
                frozenset(number for number in contexts if self._is_ordered(number)),
                self.forgotten_before,
            )
        )
        commit.note_scope_values()
        self.commits += 1
        return appended

    @property
    def forgotten_before(self) -> int:
        """A request that came before this instant is no longer recognised, and its key is free."""
        return max(self.at, self._clock.now()) - self._settings.idempotency_ttl_ms + 1

    def retrying(self, work: Callable[[int], Result], taken: Callable[[Keys], None] = lambda _keys: None) -> Result:
        """Do what names the control events seen, again when there are others by then.

        `taken` hears of keys that somebody who was faster has used: what comes under them is a repeat now.
        """
        for _ in range(ATTEMPTS_MAX):
            self.get_ready()
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
        if isinstance(first, OtherTask):
            first.result = first.work()
            return
        tasks = [task for task in group if isinstance(task, ScoreTask)]
        known: dict[tuple[str, str], Request] = {}  # by sender and key: of those that were looked up
        if monotonic() < self._repeats_until:
            known.update(self._ledger.requests([key for task in tasks if (key := _key_of(task.sender)) is not None]))

        def look_up(taken: Keys) -> None:
            self._repeats_until = monotonic() + REPEATS_S
            known.update(self._ledger.requests(taken))

        self.retrying(lambda seen: self._commit_scores(tasks, seen, known), look_up)

    def _commit_scores(self, tasks: list[ScoreTask], seen: int, known: Mapping[tuple[str, str], Request]) -> None:
        """Commit what is new; the ledger itself refuses what came before, so few are looked up beforehand."""
        commit = self.new_commit()
        added: list[Added] = []
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
                    task.result = self._followed.answer_again(task, found)
                else:
                    before = commit.events
                    question = commit.add_scores(task, [self._checked_board(part) for part in task.parts])
                    commit.add_request(sender, task.fingerprint, before)
                    added.append(Added(task, question, before))
                    if key is not None:
                        by_key[key] = task
            except RankdError as problem:
                task.error = problem
        self._find_repeats([task for task in tasks if task.error is not None])
        if added:
            appended = self.append(commit, seen)
            for task, _, _ in added:
                for part in task.parts:
                    self.newcomers.see(part.players)
            self._followed.answer(added, appended)
        for task, twin in same:
            task.result = msgspec.structs.replace(twin.result, repeated=True)  # type: ignore[type-var]

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
                    task.error, task.result = None, self._followed.answer_again(task, request)
            except RankdError as problem:
                task.error = problem

    def _checked_board(self, task: ScoreTask) -> Board:
        board = self.board(task.board_id)
        check_signed(board, task.sender)
        if board is not task.board:  # not checked yet, or changed since
            check_open(board)
            task.check_bounds(board)
        return board

    def _is_ordered(self, number: int) -> bool:
        known = self._ordered.get(number)
        if known is None:
            known = self._ordered[number] = self._reaches_a_team(self._ledger.context(number))
        return known

    def _reaches_a_team(self, context: Context) -> bool:
        catalogue = self._followed.applier.catalogue
        return any(catalogue.board(one, accepted.version).team is not None for one, accepted in context.boards.items())


def unknown_board(board_id: str) -> BoardUnknown:
    """Return the error for a board that is not defined."""
    return BoardUnknown(f"board: there is no board {quote(board_id)}; define it first")


def _key_of(sender: Sender) -> tuple[str, str] | None:
    return None if sender.key is None else (sender.account, sender.key)

"""One commit in the making: what several requests add to the ledger together."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rankd.domain.board import Board
from rankd.domain.instant import check_sent_at
from rankd.errors import InvalidValue
from rankd.intake.accept import Acceptance, Acceptances
from rankd.intake.results import Question, question_about
from rankd.intake.scores import NOW, ScoreTask
from rankd.intake.sender import Sender
from rankd.ledger.event import Detail, Kind, Stretch
from rankd.ledger.port import KeyedRequest
from rankd.projection.state import State
from rankd.registry.port import Registry

_NONE: frozenset[str] = frozenset()
_NO_ATTRIBUTES: dict[str, str] = {}
_NO_TIEBREAK = array("q", [0])


class Commit:
    """Stretches of events, and what goes with them."""

    def __init__(
        self,
        at: int,
        acceptances: Acceptances,
        registry: Registry,
        state: State,
        *,
        scope_values_max: int,
    ) -> None:
        """`at` is the ledger's time, given to events that were sent without one."""
        self.at = at
        self.stretches: list[Stretch] = []
        self.events = 0
        self.questions: dict[int, Question] = {}  # by the index of the event they are about
        self._acceptances = acceptances
        self._registry = registry
        self._state = state
        self._scope_values_max = scope_values_max
        self._fresh_values: dict[tuple[str, str], set[str]] = {}  # of requests that were added
        self._task_values: dict[tuple[str, str], set[str]] = {}  # of the one that is being added
        self.metadata: dict[int, str] = {}  # JSON by the event's index
        self.requests: list[KeyedRequest] = []
        self.origins: list[tuple[str, int, int]] = []  # an address, likewise
        self._single: Stretch | None = None  # the last one, while scores that want an answer may be added to it

    def add_event(
        self, acceptance: Acceptance, player: str | None = None, detail: Detail | None = None, at: int | None = None
    ) -> None:
        """Add an event that is not a score."""
        self._add(
            Stretch(
                acceptance.number,
                array("q", [self.at if at is None else at]),
                array("q", [0]),
                array("q", [0]),
                array("q", [0]),
                [player or ""],
                [detail],
            )
        )

    def add_scores(self, task: ScoreTask, find: Callable[[ScoreTask], Board]) -> Question | None:
        """Add the scores of a request; whatever can be refused is refused here, before anything is added.

        `find` returns the board of a part of the request, or refuses it.
        """
        self._task_values = {}
        question = None
        if task.answers:
            question = self._add_single(task, find(task))
        else:
            self._add_parts(task, find)
        for key, values in self._task_values.items():
            self._fresh_values.setdefault(key, set()).update(values)
        return question

    def _add_parts(self, task: ScoreTask, find: Callable[[ScoreTask], Board]) -> None:
        drafted = []
        boards = [find(part) for part in task.parts]
        for part, board in zip(task.parts, boards, strict=True):
            at = self._instants(part, board)
            first = self._acceptances.at(board, task.sender.name, Kind.SCORE, self.at if at is None else at[0])
            drafted.append((part, self._stretches(part, board, first, at)))
        for part, stretches in drafted:
            if part.metadata is not None:
                self.metadata.update(
                    (self.events + offset, json) for offset, json in enumerate(part.metadata) if json is not None
                )
            for stretch in stretches:
                self._add(stretch)

    def add_request(self, sender: Sender, fingerprint: bytes, before: int) -> None:
        """Remember what is to be known of a request; its events are those added since there were `before`."""
        count = self.events - before
        if sender.key is not None:
            self.requests.append(KeyedRequest(sender.account, sender.key, fingerprint, before, count))
        if sender.origin is not None and count:
            self.origins.append((sender.origin, before, count))

    def note_scope_values(self) -> None:
        """Note the values of scopes as seen, where no applier does: the commit is durable."""
        for (board_id, name), values in self._fresh_values.items():
            live = self._state.boards.get(board_id)
            if live is not None:  # it may have been deleted meanwhile
                live.scope_values.setdefault(name, set()).update(values)

    # One score that wants an answer

    def _add_single(self, task: ScoreTask, board: Board) -> Question | None:
        sent_at = self._instants(task, board)
        at = self.at if sent_at is None else sent_at[0]
        acceptance = self._acceptances.at(board, task.sender.name, Kind.SCORE, at)
        player, metadata = task.players[0], task.metadata[0] if task.metadata else None
        detail = None
        if acceptance.has_details or metadata is not None:
            sent = task.attributes[0] if task.attributes else None
            has_metadata = metadata is not None
            detail = self._detail(acceptance, player, task.scores[0], at, sent=sent, has_metadata=has_metadata)
        reading = acceptance.context.boards[board.id].reading(at)
        question = question_about(board, reading, player, _NO_ATTRIBUTES if detail is None else detail.attributes)
        if metadata is not None:
            self.metadata[self.events] = metadata
        tiebreaks = task.tiebreaks or _NO_TIEBREAK
        stretch = self._single
        if stretch is not None and stretch.context == acceptance.number and stretch is self.stretches[-1]:
            stretch.at.append(at)
            stretch.player.append(0)
            stretch.score.extend(task.scores)
            stretch.tiebreak.extend(tiebreaks)
            stretch.players.append(player)  # type: ignore[attr-defined]
            if detail is not None or stretch.detail is not None:
                stretch.detail = (stretch.detail or [None] * (len(stretch) - 1)) + [detail]
        else:
            details: list[Detail | None] | None = None if detail is None else [detail]
            instants, numbers = array("q", [at]), array("q", [0])
            self._single = Stretch(
                acceptance.number, instants, numbers, task.scores[:], tiebreaks[:], [player], details
            )
            self.stretches.append(self._single)
        if question is not None and question.subject is not None:
            self.questions[self.events] = question
        self.events += 1
        return question

    # Columns

    def _stretches(self, task: ScoreTask, board: Board, first: Acceptance, at: array[int] | None) -> list[Stretch]:
        count = len(task.scores)
        tiebreaks = task.tiebreaks or array("q", bytes(8 * count))
        if at is None:
            times = array("q", [self.at]) * count
            details = self._details(task, [first] * count, times)
            numbers = array("q", bytes(8 * count))  # the ledger's own, if it has any
            return [Stretch(first.number, times, numbers, task.scores, tiebreaks, task.players, details)]
        acceptances = [self._acceptances.at(board, task.sender.name, Kind.SCORE, instant) for instant in at]
        details = self._details(task, acceptances, at)
        whole = Stretch(0, at, array("q", bytes(8 * count)), task.scores, tiebreaks, task.players, details)
        stretches = []
        for start, end in _runs(acceptances):
            part = whole.part(start, end)
            part.context, part.first = acceptances[start].number, 0
            if part.detail is not None and not any(part.detail):
                part.detail = None
            stretches.append(part)
        return stretches

    def _details(self, task: ScoreTask, acceptances: list[Acceptance], times: array[int]) -> list[Detail | None] | None:
        first = acceptances[0]
        if task.metadata is None and not first.has_details:
            return None
        attributes = task.attributes or [None] * len(task.scores)
        metadata = task.metadata or [None] * len(task.scores)
        rows = zip(acceptances, task.players, task.scores, times, attributes, metadata, strict=True)
        details = []
        for index, (acceptance, player, score, at, sent, json) in enumerate(rows):
            with _named(task, index):
                detail = self._detail(acceptance, player, score, at, sent=sent, has_metadata=json is not None)
            details.append(detail)
        return details

    # What is resolved when an event is accepted

    def _instants(self, task: ScoreTask, board: Board) -> array[int] | None:
        if task.at is None:
            return None
        at = array("q", [self.at if one == NOW else one for one in task.at]) if NOW in task.at else task.at
        late_by_ms = None if task.sender.imported else board.late_by_ms
        try:
            check_sent_at(min(at), self.at, late_by_ms)
            check_sent_at(max(at), self.at, late_by_ms)
        except InvalidValue:
            for index, instant in enumerate(at):
                with _named(task, index):
                    check_sent_at(instant, self.at, late_by_ms)
            raise
        return at

    def _detail(
        self,
        acceptance: Acceptance,
        player: str,
        score: int,
        at: int,
        *,
        sent: dict[str, str] | None,
        has_metadata: bool,
    ) -> Detail | None:
        attributes = self._resolved(acceptance, player, sent) if acceptance.attributes else {}
        left_out = self._left_out(acceptance, attributes, score) if attributes else {}
        keys = {
            board.id: board.ranked_score(score, at)
            for board in acceptance.decaying
            if board.score_min <= score <= board.score_max
        }
        if not attributes and not keys and not has_metadata:
            return None
        return Detail(attributes, keys, left_out, has_metadata)

    def _resolved(self, acceptance: Acceptance, player: str, sent: dict[str, str] | None) -> dict[str, str]:
        """Return the attributes the boards reached want to know: from the event, else from the player's profile."""
        given = sent or {}
        if any(name not in given for name in acceptance.attributes):
            given = {**self._registry.attributes(player), **given}
        return {name: given[name] for name in acceptance.attributes if name in given}

    def _left_out(self, acceptance: Acceptance, attributes: dict[str, str], score: int) -> dict[str, list[str]]:
        """Refuse what the board cannot take; what only a board it feeds cannot take does not count there."""
        left_out: dict[str, list[str]] = {}
        for board in acceptance.boards:
            has_team = board.team is None or board.team.attribute in attributes
            if not has_team or not board.score_min <= score <= board.score_max:
                continue  # it does not count there
            for name in dict.fromkeys((*board.scopes, *([] if board.team is None else [board.team.attribute]))):
                try:
                    self._check_attribute(board, name, attributes)
                except InvalidValue:
                    if board is acceptance.board:
                        raise
                    left_out.setdefault(board.id, []).append(name)
        return left_out

    def _check_attribute(self, board: Board, name: str, attributes: dict[str, str]) -> None:
        if name in board.scopes and name in attributes:
            self._check_scope_value(board, name, attributes[name])
        if board.team is not None and board.team.attribute == name:
            board.team.team_of(attributes)

    def _check_scope_value(self, board: Board, name: str, value: str) -> None:
        live = self._state.boards.get(board.id)
        # Where another process deleted the board a moment ago, the ledger will refuse what is committed here.
        seen = () if live is None else live.scope_values.get(name, ())
        fresh = self._fresh_values.get((board.id, name), _NONE) | self._task_values.get((board.id, name), _NONE)
        if value in seen or value in fresh:
            return
        if len(seen) + len(fresh) >= self._scope_values_max:
            raise InvalidValue(
                f"attributes.{name}",
                f"has {self._scope_values_max} values on board {board.id} already, the most there may be; "
                "rank by an attribute with fewer",
            )
        self._task_values.setdefault((board.id, name), set()).add(value)

    def _add(self, stretch: Stretch) -> None:
        self.stretches.append(stretch)
        self.events += len(stretch)


@contextmanager
def _named(task: ScoreTask, index: int) -> Iterator[None]:
    """Name the row that a problem is about, in a request of many."""
    try:
        yield
    except InvalidValue as problem:
        if task.answers:
            raise
        raise InvalidValue(task.row_field(index, problem.field), problem.problem) from None


def _runs(acceptances: list[Acceptance]) -> list[tuple[int, int]]:
    """Return the runs of equal contexts as (start, end)."""
    first = acceptances[0]
    if all(acceptance is first for acceptance in acceptances):
        return [(0, len(acceptances))]
    runs = []
    start = 0
    for index in range(1, len(acceptances) + 1):
        if index == len(acceptances) or acceptances[index].number != acceptances[start].number:
            runs.append((start, index))
            start = index
    return runs

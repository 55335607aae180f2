"""A commit under construction: the events of several requests, appended to the ledger together."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat

from rankd._columns import distinct, extent, take
from rankd.domain.board import Board
from rankd.domain.instant import check_sent_at
from rankd.errors import InvalidValue
from rankd.intake.accept import Acceptance, Acceptances
from rankd.intake.results import Question
from rankd.intake.scores import NOW, ScoreTask, in_request_order
from rankd.intake.sender import Sender
from rankd.ledger.event import Detail, EventKind, EventRun
from rankd.ledger.origin import OriginSpan
from rankd.ledger.port import KeyedRequest, SourceSpan
from rankd.projection.state import State, note_scope_value
from rankd.registry.port import Registry

_NONE: frozenset[str] = frozenset()
_NO_ATTRIBUTES: dict[str, str] = {}
_NO_TIEBREAK = array("q", [0])
_DETAILS_MAX = 50_000  # cached from commit to commit


class Commit:
    """Event runs with their questions, metadata and keyed requests."""

    __slots__ = (
        "_acceptances",
        "_fresh_values",
        "_has_unseen_value",
        "_made_details",
        "_registry",
        "_scope_values_max",
        "_single",
        "_state",
        "_task_values",
        "at",
        "event_runs",
        "events",
        "metadata",
        "origins",
        "questions",
        "requests",
        "sources",
    )

    def __init__(
        self,
        at: int,
        acceptances: Acceptances,
        registry: Registry,
        state: State,
        *,
        scope_values_max: int,
    ) -> None:
        """`at` is the ledger's time, the default of events sent without one."""
        self.at = at
        self.event_runs: list[EventRun] = []
        self.events = 0
        self.questions: dict[int, Question] = {}  # by event index
        self._acceptances = acceptances
        self._registry = registry
        self._state = state
        self._scope_values_max = scope_values_max
        self._fresh_values: dict[tuple[str, str], set[str]] = {}  # of added requests
        self._task_values: dict[tuple[str, str], set[str]] = {}  # of the request that is being added
        self.metadata: dict[int, str] = {}  # JSON by event index
        self.requests: list[KeyedRequest] = []
        self.origins: list[OriginSpan] = []
        self.sources: Sequence[SourceSpan] = ()
        self._has_unseen_value = False  # in the current detail
        self._made_details: dict[tuple[object, ...], Detail] = {}  # equal details share one object
        self._single: EventRun | None = None  # the run that the next score with an answer may extend

    def add_event(
        self, acceptance: Acceptance, player: str | None = None, detail: Detail | None = None, at: int | None = None
    ) -> None:
        """Add an event that is not a score."""
        self._add(
            EventRun(
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
        """Add the scores of a request, or refuse it and add nothing.

        `find` returns the board of a part of the request, or refuses it.
        """
        question = None
        self._task_values.clear()
        if task.answers:
            question = self._add_single(task, find(task))
        else:
            self._add_parts(task, find)
            self.sources = task.sources
        if self._task_values:
            for key, values in self._task_values.items():
                self._fresh_values.setdefault(key, set()).update(values)
        return question

    def _add_parts(self, task: ScoreTask, find: Callable[[ScoreTask], Board]) -> None:
        drafted = []
        boards = {part.board_id: find(part) for part in task.parts}
        for part in _in_commit_order(task.parts, boards):
            board = boards[part.board_id]
            at = self._instants(part, board)
            first = self._acceptances.at(board, task.sender.name, EventKind.SCORE, self.at if at is None else at[0])
            drafted.append((part, self._event_runs(part, board, first, at)))
        for part, event_runs in drafted:
            if part.metadata is not None:
                self.metadata.update(
                    (self.events + offset, json) for offset, json in enumerate(part.metadata) if json is not None
                )
            for event_run in event_runs:
                self._add(event_run)

    def add_request(self, sender: Sender, fingerprint: bytes, before: int) -> None:
        """Add the key and origin of a request; its events are those added since there were `before`."""
        count = self.events - before
        if sender.key is not None:
            self.requests.append(KeyedRequest(sender.account, sender.key, fingerprint, before, count))
        if sender.origin is not None and count:
            self.origins.append(OriginSpan(sender.origin, before, count))

    def note_scope_values(self) -> None:
        """Record the scope values of a durable commit, where no applier does."""
        for (board_id, name), values in self._fresh_values.items():
            live = self._state.boards.get(board_id)
            if live is not None:  # another process may have deleted it
                for value in values:
                    note_scope_value(live, name, value)

    # One score with an answer

    def _add_single(self, task: ScoreTask, board: Board) -> Question | None:
        sent_at = None if task.at is None else self._instants(task, board)
        at = self.at if sent_at is None else sent_at[0]
        acceptance = self._acceptances.of_score(board, task.sender.name, at)
        player, metadata = task.players[0], task.metadata[0] if task.metadata else None
        detail = None
        if acceptance.has_details or metadata is not None:
            given: Mapping[str, str] | None = task.attributes[0] if task.attributes else None
            if not acceptance.has_attributes_in(given):
                given = {**self._registry.attributes([player]).get(player, {}), **(given or {})}
            taking = acceptance.boards_taking(task.scores[0])
            detail = self._detail(acceptance, given, taking, has_metadata=metadata is not None)
        question = acceptance.question(at, player, _NO_ATTRIBUTES if detail is None else detail.attributes)
        if metadata is not None:
            self.metadata[self.events] = metadata
        tiebreaks = task.tiebreaks or _NO_TIEBREAK
        event_run = self._single
        if event_run is not None and event_run.context == acceptance.number and event_run is self.event_runs[-1]:
            event_run.at.append(at)
            event_run.player.append(0)
            event_run.score.extend(task.scores)
            event_run.tiebreak.extend(tiebreaks)
            event_run.players.append(player)  # type: ignore[attr-defined]
            if detail is not None and event_run.detail is None:
                event_run.detail = [None] * (len(event_run.score) - 1)
            if event_run.detail is not None:
                event_run.detail.append(detail)
        else:
            details: list[Detail | None] | None = None if detail is None else [detail]
            instants, numbers = array("q", [at]), array("q", [0])
            self._single = EventRun(
                acceptance.number, instants, numbers, task.scores[:], tiebreaks[:], [player], details
            )
            self.event_runs.append(self._single)
        if question is not None and question.subject is not None:
            self.questions[self.events] = question
        self.events += 1
        return question

    # Columns

    def _event_runs(self, task: ScoreTask, board: Board, first: Acceptance, at: array[int] | None) -> list[EventRun]:
        count = len(task.scores)
        tiebreaks = task.tiebreaks or array("q", bytes(8 * count))
        if at is None:
            times = array("q", [self.at]) * count
            details = self._details(task, first)
            numbers = array("q", bytes(8 * count))  # the ledger replaces them by its own
            return [EventRun(first.number, times, numbers, task.scores, tiebreaks, task.players, details)]
        details = self._details(task, first)  # they do not depend on clocks
        whole = EventRun(0, at, array("q", bytes(8 * count)), task.scores, tiebreaks, task.players, details)
        event_runs = []
        for acceptance, start, end in self._acceptances.runs(board, task.sender.name, EventKind.SCORE, at):
            part = whole if (start, end) == (0, count) else whole.part(start, end)
            part.context, part.first = acceptance.number, 0
            if part.detail is not None and not any(part.detail):
                part.detail = None
            event_runs.append(part)
        return event_runs

    def _details(self, task: ScoreTask, acceptance: Acceptance) -> list[Detail | None] | None:
        """Return the details of a column; equal details share one object."""
        metadata = task.metadata
        if metadata is None and not acceptance.has_details:
            return None
        given: list[dict[str, str] | None] = [None]
        number = memoryview(bytes(4 * len(task.scores))).cast("I")
        if acceptance.attributes:
            given, number = self._given(task, acceptance)
        # A detail follows from attributes, metadata or none, and the boards that take the score.
        is_partial = metadata is not None and None in metadata
        if not is_partial and acceptance.takes(*extent(task.scores)):
            taking = acceptance.boards_taking(task.scores[0])
            kinds = [(attributes, metadata is not None, taking) for attributes in range(len(given))]
        else:
            has_metadata = repeat(False) if metadata is None else [json is not None for json in metadata]
            rows = list(zip(number, has_metadata, map(acceptance.boards_taking, task.scores), strict=False))
            numbers = {kind: index for index, kind in enumerate(dict.fromkeys(rows))}
            kinds, number = list(numbers), memoryview(array("I", map(numbers.__getitem__, rows)))
        made = []
        for index, (attributes, with_metadata, taking) in enumerate(kinds):
            try:
                made.append(self._detail(acceptance, given[attributes], taking, has_metadata=with_metadata))
            except InvalidValue:
                with _named(task, number.tolist().index(index)):
                    raise
        return take(made, number)

    def _given(self, task: ScoreTask, acceptance: Acceptance) -> tuple[list[dict[str, str] | None], memoryview]:
        """Return the different attributes of a column and, for each event, the index of its own.

        Those that the events do not bring come from the profiles of the players.
        """
        sent: list[dict[str, str] | None] = [None]
        numbers = bytes(4 * len(task.scores))
        if task.attributes is not None:
            sent, numbers = distinct(task.attributes)
        number = memoryview(numbers).cast("I")
        is_complete = [acceptance.has_attributes_in(attributes) for attributes in sent]
        if all(is_complete):
            return sent, number
        looked_up = [player for player, index in zip(task.players, number, strict=True) if not is_complete[index]]
        names = acceptance.attributes
        profiles = {
            player: tuple(map(attributes.get, names))
            for player, attributes in self._registry.attributes(looked_up).items()
        }
        completed: dict[tuple[int, tuple[str | None, ...]], int] = {}
        place = array("I")
        for player, index in zip(task.players, number, strict=True):
            values = () if is_complete[index] else profiles.get(player, ())
            place.append(completed.setdefault((index, values), len(completed)))
        given = [_completed(sent[index], names, values) for index, values in completed]
        return given, memoryview(place)

    # Resolved when an event is accepted

    def _instants(self, task: ScoreTask, board: Board) -> array[int] | None:
        if task.at is None:
            return None
        at = array("q", [self.at if instant == NOW else instant for instant in task.at]) if NOW in task.at else task.at
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
        given: Mapping[str, str] | None,
        taking: tuple[bool, ...],
        *,
        has_metadata: bool,
    ) -> Detail | None:
        """Return the detail of events with these attributes, which the boards in `taking` take."""
        if not given and not has_metadata:
            return None
        names = acceptance.attributes
        key = (acceptance.board.id, has_metadata, taking, names, *(map(given.get, names) if given else ()))
        known = self._acceptances.details
        detail = known.get(key) or self._made_details.get(key)
        if detail is None:
            attributes = {name: given[name] for name in names if name in given} if given else {}
            if not attributes and not has_metadata:
                return None
            self._has_unseen_value = False
            left_out = self._left_out(acceptance, attributes, taking) if attributes else {}
            detail = self._made_details[key] = Detail(attributes, {}, left_out, has_metadata)
            if not self._has_unseen_value and not left_out:
                if len(known) >= _DETAILS_MAX:
                    known.clear()
                known[key] = detail
        return detail

    def _left_out(
        self, acceptance: Acceptance, attributes: dict[str, str], taking: tuple[bool, ...]
    ) -> dict[str, list[str]]:
        """Refuse attributes that the board cannot accept; return, by fed board, those that do not count there."""
        left_out: dict[str, list[str]] = {}
        for board, is_taken in zip(acceptance.boards, taking, strict=True):
            has_team = board.team is None or board.team.attribute in attributes
            if not has_team or not is_taken:
                continue  # the score does not count there
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
        # If another process has deleted the board, the ledger refuses this commit.
        seen = () if live is None else live.scope_values.get(name, ())
        if value in seen:
            return
        self._has_unseen_value = True
        before, own = (fresh.get((board.id, name), _NONE) for fresh in (self._fresh_values, self._task_values))
        if value in before or value in own:
            return
        values_max = self._scope_values_max if board.scope_values_max is None else board.scope_values_max
        count = len(seen) + len(before) + len(own)
        if count >= values_max:
            raise InvalidValue(
                f"attributes.{name}",
                f"has {count} values on board {board.id} already, and {values_max} is the most there "
                "may be; rank by an attribute with fewer, or define the board with a higher scope_values_max",
            )
        self._task_values.setdefault((board.id, name), set()).add(value)

    def _add(self, event_run: EventRun) -> None:
        self.event_runs.append(event_run)
        self.events += len(event_run)


def _completed(
    sent: dict[str, str] | None, names: Sequence[str], values: Sequence[str | None]
) -> dict[str, str] | None:
    """Return the attributes sent, completed by values of a profile."""
    if not values:
        return sent
    held = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    return {**held, **(sent or {})}


def _in_commit_order(parts: Sequence[ScoreTask], boards: Mapping[str, Board]) -> Sequence[ScoreTask]:
    """Return the parts of a request, those of boards that reach a common one cut into the order of their rows.

    Scores of boards that have nothing in common may change places; those that reach the same board may not.
    """
    if len(parts) == 1:
        return parts
    times_reached = Counter(reached for board in boards.values() for reached in {board.id, *board.feeds})
    apart: list[ScoreTask] = []
    mixed: list[ScoreTask] = []
    for part in parts:
        board = boards[part.board_id]
        is_mixed = any(times_reached[reached] > 1 for reached in (board.id, *board.feeds))
        (mixed if is_mixed else apart).append(part)
    return [*apart, *in_request_order(mixed)]


@contextmanager
def _named(task: ScoreTask, index: int) -> Iterator[None]:
    """Name the row in a refusal of a request with many rows."""
    try:
        yield
    except InvalidValue as problem:
        if task.answers:
            raise
        raise InvalidValue(task.row_field(index, problem.field), problem.problem) from None

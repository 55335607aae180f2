"""The acceptance of an event: the definitions and clock readings that the ledger stores with it as its context."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping

from rankd._columns import extent
from rankd.domain.acceptance import used_attributes
from rankd.domain.board import Board
from rankd.domain.instance import InstanceKey
from rankd.intake.results import Question, question_about
from rankd.ledger.event import AcceptanceContext, Context, Detail, EventKind
from rankd.ledger.port import DefinitionsChanged

_CACHED_MAX = 10_000
_NONE_KNOWN: tuple[list[int], list[Acceptance]] = ([], [])


class Acceptance:
    """How events at some instant are accepted: their context, the board and those it feeds."""

    __slots__ = (
        "_asked",
        "_attribute_names",
        "attributes",
        "board",
        "boards",
        "context",
        "has_details",
        "number",
        "valid_from",
        "valid_until",
    )

    def __init__(self, context: Context, number: int, board: Board, fed: list[Board], valid: tuple[int, int]) -> None:
        """`fed` are the open boards it feeds; `valid` is the time span in which no clock reading changes."""
        self.context = context
        self.number = number
        self.board = board
        self.boards = [board, *fed]
        self.valid_from, self.valid_until = valid
        self.attributes = used_attributes(self.boards)
        self._attribute_names = frozenset(self.attributes)
        self.has_details = bool(self.attributes)  # whether a detail is stored with each event
        # The instance that answers report, where it is the same for all events, and its time span.
        self._asked: tuple[InstanceKey, int, int] | None = None

    def question(self, at: int, player: str, attributes: Mapping[str, str]) -> Question | None:
        """Return the question whose answer a score gets."""
        asked = self._asked
        if asked is not None and asked[1] <= at < asked[2]:
            return Question(asked[0], player, self.board.ranking)
        board = self.board
        question = question_about(board, self.context.boards[board.id].reading(at), player, attributes)
        if question is not None and board.team is None and board.with_global:
            span = board.first_window.span(question.instance.window)
            start, end = self.valid_from if span.start is None else span.start, span.end
            self._asked = question.instance, start, self.valid_until if end is None else min(end, self.valid_until)
        return question

    def holds(self, at: int) -> bool:
        """Return whether this acceptance is valid at an instant."""
        return self.valid_from <= at < self.valid_until

    def has_attributes_in(self, sent: Mapping[str, str] | None) -> bool:
        """Return whether the sent attributes make a profile lookup unnecessary."""
        return not self.attributes if sent is None else self._attribute_names <= sent.keys()

    def takes(self, lowest: int, highest: int) -> bool:
        """Return whether all reached boards accept scores within these bounds."""
        return all(board.score_min <= lowest and highest <= board.score_max for board in self.boards)

    def boards_taking(self, score: int) -> tuple[bool, ...]:
        """Return for each reached board whether it accepts a score."""
        return tuple([board.score_min <= score <= board.score_max for board in self.boards])


class Acceptances:
    """A cache of acceptances by board and time: definitions and clock readings change rarely."""

    def __init__(
        self,
        boards: Callable[[], Mapping[str, Board]],
        version_of: Callable[[str], int],
        number_context: Callable[[Context], int],
    ) -> None:
        """`boards` returns the boards defined now."""
        self._boards = boards
        self._version_of = version_of
        self._number_context = number_context
        # By board, sender and kind: starts and acceptances, in order of time.
        self._known: dict[tuple[str, str, EventKind], tuple[list[int], list[Acceptance]]] = {}
        self._latest: dict[tuple[str, str], Acceptance] = {}  # of scores, by board and sender
        self._count = 0
        # Details of earlier events whose scope values were all known, by board and attributes.
        self.details: dict[tuple[object, ...], Detail] = {}

    def of_score(self, board: Board, sender: str, at: int) -> Acceptance:
        """Return the acceptance of a score at this instant, most often that of the one before."""
        latest = self._latest.get((board.id, sender))
        if latest is None or not latest.valid_from <= at < latest.valid_until:
            latest = self.at(board, sender, EventKind.SCORE, at)
            self._latest[board.id, sender] = latest
        return latest

    def at(self, board: Board, sender: str, kind: EventKind, at: int) -> Acceptance:
        """Return the acceptance of an event at this instant."""
        starts, known = self._known.get((board.id, sender, kind), _NONE_KNOWN)
        index = bisect_right(starts, at) - 1
        if index >= 0 and known[index].holds(at):
            return known[index]
        if self._count >= _CACHED_MAX:
            self.forget()
        acceptance = self._accept(board, sender, kind, at)
        starts, known = self._known.setdefault((board.id, sender, kind), ([], []))
        index = bisect_right(starts, acceptance.valid_from)
        starts.insert(index, acceptance.valid_from)
        known.insert(index, acceptance)
        self._count += 1
        return acceptance

    def runs(
        self, board: Board, sender: str, kind: EventKind, instants: array[int]
    ) -> Iterator[tuple[Acceptance, int, int]]:
        """Yield the runs of a column that share a context: acceptance, start and end."""
        start, count = 0, len(instants)
        lowest, highest = extent(instants)
        acceptance = self.at(board, sender, kind, instants[0])
        if acceptance.holds(lowest) and acceptance.holds(highest):
            yield acceptance, 0, count
            return
        for index, at in enumerate(instants):
            if not acceptance.holds(at):
                following = self.at(board, sender, kind, at)
                if following.number != acceptance.number:
                    yield acceptance, start, index
                    start = index
                acceptance = following
        yield acceptance, start, count

    def _accept(self, board: Board, sender: str, kind: EventKind, at: int) -> Acceptance:
        defined = self._boards()
        fed = [self._defined(defined, fed_id) for fed_id in board.feeds] if kind is EventKind.SCORE else []
        fed = [fed_board for fed_board in fed if fed_board.open]
        accepted = {reached.id: self.accepted(reached, at) for reached in (board, *fed)}
        context = Context(kind, board.id, sender, accepted)
        readings = [reached.clock_holds(at) for reached in (board, *fed)]
        valid = max(start for start, _ in readings), min(end for _, end in readings)
        return Acceptance(context, self._number_context(context), board, fed, valid)

    @staticmethod
    def _defined(boards: Mapping[str, Board], board_id: str) -> Board:
        board = boards.get(board_id)
        if board is None:  # another process deleted it and changed the board that feeds it
            raise DefinitionsChanged
        return board

    def accepted(self, board: Board, at: int, version: int | None = None) -> AcceptanceContext:
        """Return a board's version and clock reading at an instant."""
        reading = board.read_clock(at)
        return AcceptanceContext(version or self._version_of(board.id), reading.utc_offset_s, reading.resets)

    def forget(self) -> None:
        """Clear the cache: a definition changed, or a context number was not committed."""
        self._known.clear()
        self._latest.clear()
        self._count = 0
        self.details.clear()

"""Accepts events of a log again, under the definitions in force at their place.

A writer accepts an event under the definitions that it knows; when others come into force before the event is in the
log, the writer of a ledger that compares them is refused and asks again. In a log the event stands there already, so
its followers ask: it counts as if it had been sent under the definitions in force, or is refused for the same reasons.

The number of values that an attribute may have, and how late a score may be, are not checked again: the first depends
on what other partitions have applied, the second on who sent it.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankd.domain.acceptance import check_open, not_signed, used_attributes
from rankd.domain.board import Board
from rankd.errors import BoardUnknown, InvalidValue
from rankd.ledger.event import AcceptanceContext, Context, Detail, EventKind
from rankd.projection.catalogue import Catalogue
from rankd.projection.state import State
from rankd.shortening import quote

_ALWAYS = -(1 << 62), 1 << 62
_PLACES_MAX = 10_000  # cached


class Reacceptance:
    """How events of one context count now, as long as no clock reading changes."""

    def __init__(self, context: Context, number: int, board: Board, fed: list[Board], valid: tuple[int, int]) -> None:
        """`number` stands for the context in this process; `valid` is the time span in which it holds."""
        self.context = context
        self.number = number
        self._board = board
        self._boards = [board, *fed]
        self._attributes = used_attributes(self._boards)
        self._valid_from, self._valid_until = valid
        # By the identity of a detail and the boards that take the score; with the detail, so that no other gets its id.
        self._details: dict[tuple[int, tuple[bool, ...]], tuple[Detail | None, Detail | None]] = {}

    def holds(self, at: int) -> bool:
        """Return whether it is valid at an instant."""
        return self._valid_from <= at < self._valid_until

    def detail(self, score: int, detail: Detail | None) -> Detail | None:
        """Return the detail with which a score counts, or refuse it."""
        if self.context.kind is not EventKind.SCORE:
            return detail
        self._board.check_score(score)
        if detail is None:
            return None
        taking = tuple([board.score_min <= score <= board.score_max for board in self._boards])
        known = self._details.get((id(detail), taking))
        if known is None:
            if len(self._details) >= _PLACES_MAX:
                self._details.clear()
            known = self._details[id(detail), taking] = detail, self._made(detail, taking)
        return known[1]

    def _made(self, detail: Detail, taking: tuple[bool, ...]) -> Detail | None:
        attributes = {name: detail.attributes[name] for name in self._attributes if name in detail.attributes}
        if not attributes and not detail.has_metadata:
            return None
        left_out: dict[str, list[str]] = {}
        for board, is_taken in zip(self._boards, taking, strict=True):
            names = [name for name in detail.left_out.get(board.id, ()) if name in attributes]
            if board.team is not None and is_taken and board.team.attribute not in names:
                try:
                    board.team.team_of(attributes)
                except InvalidValue:
                    if board is self._board:
                        raise
                    names.append(board.team.attribute)
            if names:
                left_out[board.id] = names
        return Detail(attributes, {}, left_out, detail.has_metadata)


class Reacceptances:
    """The boards in force, and events of a log under them."""

    def __init__(self, state: State, catalogue: Catalogue, boards: Mapping[str, Board]) -> None:
        """All three are the applier's own; `boards` are those in force."""
        self._state = state
        self._catalogue = catalogue
        self._boards = boards
        self._known: dict[tuple[int, bool], Reacceptance] = {}  # the latest
        self._numbers: dict[bytes, int] = {}
        self._contexts: dict[int, Context] = {}
        self._last_number = 0

    def forget(self) -> None:
        """Clear what is cached: other definitions may be in force."""
        self._known.clear()
        self._numbers.clear()
        self._contexts.clear()

    def context(self, number: int) -> Context:
        """Return a context that was made here: its number is negative, and is not used again."""
        return self._contexts[number]

    def reached(self, context: Context) -> list[Board]:
        """Return the boards that events of a context reach now; none where its own board was deleted."""
        board = self._boards.get(context.board)
        if board is None:
            return []
        if context.kind is not EventKind.SCORE:
            return [board]
        return [board, *(self._boards[fed] for fed in board.feeds if self._boards[fed].open)]

    def is_current(self, context: Context) -> bool:
        """Return whether the definitions in force are those that events of a context were accepted under."""
        live = self._state.boards
        reached = {board.id: live[board.id].version for board in self.reached(context)}
        return reached == {board_id: accepted.version for board_id, accepted in context.boards.items()}

    def held_span(self, context: Context, at: int) -> tuple[int, int]:
        """Return the time span around an instant in which a current context names the right windows; maybe none."""
        boards = self.reached(context)
        if any(self._read_clock(board, at) != context.boards[board.id] for board in boards):
            return 0, 0
        return _span(boards, at)

    def find(self, number: int, context: Context, at: int, *, is_moved: bool) -> Reacceptance:
        """Return how events of a context count at an instant, or refuse them.

        Instants that are not moved are those at which the context was accepted: its clock readings hold.
        """
        known = self._known.get((number, is_moved))
        if known is None or not known.holds(at):
            known = self._known[number, is_moved] = self._accept(context, at, is_moved=is_moved)
        return known

    def _accept(self, context: Context, at: int, *, is_moved: bool) -> Reacceptance:
        boards = self.reached(context)
        if not boards:
            raise BoardUnknown(f"board: there is no board {quote(context.board)}; define it first")
        board = boards[0]
        if context.kind is EventKind.SCORE:
            check_open(board)
            before = self._catalogue.board(board.id, context.boards[board.id].version)
            if board.signing is not None and board.signing != before.signing:
                raise not_signed(board)
        kept = {} if is_moved else {each.id: self._same_reading(each, context) for each in boards}
        accepted = {each.id: kept.get(each.id) or self._read_clock(each, at) for each in boards}
        made = Context(context.kind, context.board, context.sender, accepted)
        read = [each for each in boards if kept.get(each.id) is None]
        return Reacceptance(made, self._number(made), board, boards[1:], _span(read, at))

    def _same_reading(self, board: Board, context: Context) -> AcceptanceContext | None:
        """Return the clock reading of a context under the version in force; None where clocks or windows differ."""
        accepted = context.boards.get(board.id)
        if accepted is None or self._catalogue.board(board.id, accepted.version).time_zone != board.time_zone:
            return None
        if accepted.resets.keys() != board.read_clock(0).resets.keys():
            return None
        return AcceptanceContext(self._state.boards[board.id].version, accepted.utc_offset_s, accepted.resets)

    def _read_clock(self, board: Board, at: int) -> AcceptanceContext:
        reading = board.read_clock(at)
        return AcceptanceContext(self._state.boards[board.id].version, reading.utc_offset_s, reading.resets)

    def _number(self, context: Context) -> int:
        number = self._numbers.get(context.key)
        if number is None:
            self._last_number -= 1
            number = self._numbers[context.key] = self._last_number
            self._contexts[number] = context
        return number


def _span(boards: list[Board], at: int) -> tuple[int, int]:
    readings = [board.clock_holds(at) for board in boards] or [_ALWAYS]
    return max(start for start, _ in readings), min(end for _, end in readings)

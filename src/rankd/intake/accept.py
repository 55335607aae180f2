"""Under which definitions an event is accepted, and what the clocks read: the context stored with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rankd.domain.board import Board
from rankd.ledger.event import Accepted, Context, Kind
from rankd.ledger.port import DefinitionsChanged

_MINUTE_MS = 60_000
_SECOND_MS = 1_000
_WHOLE_MINUTES_SINCE = 94_694_400_000  # 1973: before, some clocks changed within a minute
_CACHED_MAX = 10_000


class Acceptance:
    """What accepting an event at some instant means: its context, the board and those it feeds."""

    __slots__ = ("attributes", "board", "boards", "context", "decaying", "has_details", "number")

    def __init__(self, context: Context, number: int, board: Board, fed: list[Board]) -> None:
        """`fed` are the boards it feeds and reaches."""
        self.context = context
        self.number = number
        self.board = board
        self.boards = [board, *fed]
        self.decaying = [reached for reached in self.boards if reached.decay is not None]
        # What the boards reached want to know of an event, in order.
        self.attributes = sorted(
            {name for reached in self.boards for name in reached.scopes}
            | {reached.team.attribute for reached in self.boards if reached.team is not None}
        )
        self.has_details = bool(self.attributes or self.decaying)  # stored with each event, beside its numbers


class Acceptances:
    """Contexts by board and time: neither definitions nor clocks change often."""

    def __init__(
        self,
        boards: Callable[[], Mapping[str, Board]],
        version_of: Callable[[str], int],
        number_context: Callable[[Context], int],
    ) -> None:
        """`boards` are those defined now."""
        self._boards = boards
        self._version_of = version_of
        self._number_context = number_context
        self._known: dict[tuple[str, str, Kind, int], Acceptance] = {}

    def at(self, board: Board, sender: str, kind: Kind, at: int) -> Acceptance:
        """Return what accepting an event at this instant means."""
        step_ms = _MINUTE_MS if at >= _WHOLE_MINUTES_SINCE else _SECOND_MS
        key = (board.id, sender, kind, at // step_ms)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _CACHED_MAX:
                self._known.clear()
            found = self._known[key] = self._accept(board, sender, kind, at)
        return found

    def _accept(self, board: Board, sender: str, kind: Kind, at: int) -> Acceptance:
        defined = self._boards()
        fed = [self._defined(defined, fed_id) for fed_id in board.feeds] if kind is Kind.SCORE else []
        fed = [one for one in fed if one.open]
        accepted = {reached.id: self.accepted(reached, at) for reached in (board, *fed)}
        context = Context(kind, board.id, sender, accepted)
        return Acceptance(context, self._number_context(context), board, fed)

    @staticmethod
    def _defined(boards: Mapping[str, Board], board_id: str) -> Board:
        board = boards.get(board_id)
        if board is None:  # another process has deleted it, and the board that feeds it has changed, too
            raise DefinitionsChanged
        return board

    def accepted(self, board: Board, at: int, version: int | None = None) -> Accepted:
        """Return a board's version and what its clock reads at an instant."""
        reading = board.read_clock(at)
        return Accepted(version or self._version_of(board.id), reading.utc_offset_s, reading.resets)

    def forget(self) -> None:
        """Work them out anew: a definition changed, or a number given out did not reach the disk."""
        self._known.clear()

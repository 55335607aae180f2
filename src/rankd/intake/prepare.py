"""Requests become tasks: the caller's thread checks values of any type, from every interface."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from rankd.domain.board import Board, check_board_id
from rankd.domain.instant import check_at
from rankd.domain.player import check_player
from rankd.domain.scope import check_attributes
from rankd.domain.score import check_tiebreak
from rankd.errors import BoardUnknown, InvalidValue
from rankd.intake import scores as column
from rankd.intake.scores import DeferredBoard, ScoreRow, ScoreTask
from rankd.intake.sender import Sender

EVENTS = "events"


class SentScore(Protocol):
    """One score as it was sent; its fields may hold anything."""

    @property
    def board(self) -> object:
        """The board id."""
        ...

    @property
    def player(self) -> object:
        """The player id."""
        ...

    @property
    def score(self) -> object:
        """The score."""
        ...

    @property
    def tiebreak(self) -> object:
        """The tiebreak; None for 0."""
        ...

    @property
    def at(self) -> object:
        """The instant; None for now."""
        ...

    @property
    def attributes(self) -> object:
        """The attributes; None for those of the profile."""
        ...

    @property
    def metadata(self) -> object:
        """The metadata; None without any."""
        ...


FindBoard = Callable[[object], Board | DeferredBoard]


def defer_checks(boards: Mapping[str, Board]) -> FindBoard:
    """Return how to find boards whose scores are checked at the commit; `boards` are those known now."""

    def find(board_id: object) -> DeferredBoard:
        known = boards.get(board_id) if isinstance(board_id, str) else None
        return DeferredBoard() if known is None else DeferredBoard(known.decimals)

    return find


def one_score(sent: SentScore, sender: Sender, find: FindBoard) -> ScoreTask:
    """Return the task of one score; `find` returns what to check it against."""
    board = find(sent.board)
    player = check_player(sent.player)
    score = board.check_score(sent.score)
    tiebreak, at, attributes, metadata = sent.tiebreak, sent.at, sent.attributes, sent.metadata
    return ScoreTask(
        board.id if isinstance(board, Board) else check_board_id(sent.board),
        [player],
        array("q", [score]),
        board=board,
        tiebreaks=None if tiebreak is None else array("q", [check_tiebreak(tiebreak)]),
        at=None if at is None else array("q", [check_at(at)]),
        attributes=None if attributes is None else [check_attributes(attributes)],
        metadata=None if metadata is None else [column.encode_one(metadata, "metadata")],
        sender=sender,
        answers=True,
    )


def rows(
    board_id: str,
    given: Iterable[Sequence[object] | Mapping[str, object]],
    sender: Sender,
    board: Board | DeferredBoard,
) -> ScoreTask:
    """Return the task of rows of one board."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidValue("rows", f"must be rows such as (player, score); got {type(given).__name__}")
    columns = _Columns(board)
    for index, row in enumerate(given):
        columns.add_row(column.read_row(row, index, board))
    return columns.task(board_id, sender, rows_named="rows")


def events(sent: Iterable[SentScore], sender: Sender, find: FindBoard) -> ScoreTask:
    """Return the task of scores of any boards; those of one board are a part, in their order.

    Each score is checked as it arrives, so that invalid content is not held until the last one.
    """
    columns_by_board: dict[object, _Columns] = {}
    for row, score in enumerate(sent):
        try:
            columns = columns_by_board[score.board]
        except (KeyError, TypeError):  # a board that was not there before, or no id
            name, board = _find(score.board, find, row)
            columns = columns_by_board[name] = _Columns(board)
        columns.add(score, row)
    if not columns_by_board:
        raise InvalidValue(EVENTS, "must hold a score at least")
    first, *more = [
        columns.task(str(name), sender, rows_named=EVENTS, is_part=True) for name, columns in columns_by_board.items()
    ]
    first.join(more)
    return first


def _find(board_id: object, find: FindBoard, row: int) -> tuple[str, Board | DeferredBoard]:
    with_board = f"{EVENTS}[{row}].board"
    name = check_board_id(board_id, with_board)
    try:
        return name, find(name)
    except BoardUnknown as problem:
        raise BoardUnknown(f"{with_board}: there is no board {name!r}; define it first") from problem


class _Columns:
    """Scores of one board as columns; everything but ids and scores is checked as it is added."""

    def __init__(self, board: Board | DeferredBoard) -> None:
        self._board = board
        self._rows = array("q")  # of the request
        self._players: list[Any] = []
        self._scores: list[Any] = []
        self._tiebreaks: list[int] = []
        self._at: list[int] = []
        self._attributes: list[dict[str, str] | None] = []
        self._metadata: list[str | None] = []
        self._known: dict[object, dict[str, str]] = {}  # checked attributes: equal ones share one object

    def add(self, sent: SentScore, row: int) -> None:
        """Add a score; a refusal names its row."""
        attributes = sent.attributes
        if type(sent.score) is not int:
            self._board.check_score(sent.score, self._named(row, "score"))
        self._rows.append(row)
        self._players.append(sent.player)
        self._scores.append(sent.score)
        self._tiebreaks.append(
            0 if sent.tiebreak is None else check_tiebreak(sent.tiebreak, self._named(row, "tiebreak"))
        )
        self._at.append(column.NOW if sent.at is None else check_at(sent.at, self._named(row, "at")))
        self._attributes.append(None if attributes is None else self._checked(attributes, row))
        self._metadata.append(
            None if sent.metadata is None else column.encode_one(sent.metadata, self._named(row, "metadata"))
        )

    def add_row(self, row: ScoreRow) -> None:
        """Add a checked score."""
        self._rows.append(len(self._rows))
        self._players.append(row.player)
        self._scores.append(row.score)
        self._tiebreaks.append(row.tiebreak or 0)
        self._at.append(column.NOW if row.at is None else row.at)
        self._attributes.append(row.attributes)
        self._metadata.append(row.metadata)

    def _named(self, row: int, field: str) -> str:
        return f"{EVENTS}[{row}].{field}"

    def _checked(self, attributes: object, row: int) -> dict[str, str]:
        try:
            # Types belong to the key: True equals 1 and is no attribute value.
            key = (*attributes.items(), *map(type, attributes.values()))  # type: ignore[attr-defined]
            known = self._known.get(key)
        except (AttributeError, TypeError):
            return check_attributes(attributes, self._named(row, "attributes"))
        if known is None:
            known = self._known[key] = check_attributes(attributes, self._named(row, "attributes"))
        return known

    def task(self, board_id: str, sender: Sender, *, rows_named: str, is_part: bool = False) -> ScoreTask:
        """Return the task of all scores added, without empty columns."""
        try:
            players, scores = column.check_players(self._players), column.check_scores(self._scores, self._board)
        except InvalidValue:  # check one by one, to name the row
            for row, player, score in zip(self._rows, self._players, self._scores, strict=True):
                check_player(player, self._named(row, "player"))
                self._board.check_score(score, self._named(row, "score"))
            raise
        return ScoreTask(
            board_id,
            players,
            scores,
            board=self._board,
            tiebreaks=array("q", self._tiebreaks) if any(self._tiebreaks) else None,
            at=None if self._at.count(column.NOW) == len(self._at) else array("q", self._at),
            attributes=self._attributes if any(self._attributes) else None,
            metadata=self._metadata if any(self._metadata) else None,
            sender=sender,
            rows=self._rows,
            rows_named=rows_named,
            is_part=is_part,
        )

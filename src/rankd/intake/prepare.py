"""Requests become tasks: values of any type are checked in their caller's thread, whatever they came through."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Protocol

from rankd.domain.board import Board, check_board_id
from rankd.domain.instant import check_at
from rankd.domain.player import check_player
from rankd.domain.scope import check_attributes
from rankd.domain.score import check_tiebreak, encode_metadata
from rankd.errors import BoardUnknown, InvalidValue
from rankd.intake import scores as column
from rankd.intake.scores import Row, ScoreTask
from rankd.intake.sender import Sender

EVENTS = "events"


class Sent(Protocol):
    """One score as it was sent, with whatever in its fields."""

    @property
    def board(self) -> object:
        """The board it is for."""
        ...

    @property
    def player(self) -> object:
        """Who has it."""
        ...

    @property
    def score(self) -> object:
        """How much."""
        ...

    @property
    def tiebreak(self) -> object:
        """A second number; None for none."""
        ...

    @property
    def at(self) -> object:
        """When; None for now."""
        ...

    @property
    def attributes(self) -> object:
        """What it is ranked by beside; None for what the profile says."""
        ...

    @property
    def metadata(self) -> object:
        """What belongs to it; None for nothing."""
        ...


FindBoard = Callable[[object], Board | None]


def one_score(sent: Sent, sender: Sender, find: FindBoard) -> ScoreTask:
    """Return the task of one score; `find` gives the board it is checked against, None when that comes later."""
    board = find(sent.board)
    if board is not None and sent.tiebreak is sent.at is sent.attributes is sent.metadata is None:
        return column.single_task(board, check_player(sent.player), board.check_score(sent.score), 0, sender)
    row = _read(sent, board)
    return ScoreTask(
        check_board_id(sent.board) if board is None else board.id,
        [row.player],
        array("q", [row.score]),
        board=board,
        tiebreaks=None if row.tiebreak is None else array("q", [row.tiebreak]),
        at=None if row.at is None else array("q", [row.at]),
        attributes=None if row.attributes is None else [row.attributes],
        metadata=None if row.metadata is None else [row.metadata],
        sender=sender,
        answers=True,
    )


def rows(
    board_id: str,
    given: Iterable[Sequence[object] | Mapping[str, object]],
    sender: Sender,
    board: Board | None,
) -> ScoreTask:
    """Return the task of rows of one board."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidValue("rows", f"must be rows such as (player, score); got {type(given).__name__}")
    listed = [column.read_row(row, index, board) for index, row in enumerate(given)]
    return _task(board_id, listed, sender, board, first_row=0, rows_named="rows")


def events(sent: Iterable[Sent], sender: Sender, find: FindBoard) -> ScoreTask:
    """Return the task of scores of any boards, in their order; each run of one board is a part of it.

    Each is checked as soon as it comes: what a sender put into it beside a score is not held until all are there.
    """
    parts: list[ScoreTask] = []
    start = 0
    for board_id, run in groupby(sent, key=lambda one: one.board):
        parts.append(_part(board_id, run, sender, find, start))
        start += len(parts[-1].players)
    if not parts:
        raise InvalidValue(EVENTS, "must hold a score at least")
    first, *more = parts
    if not more:
        return first
    return ScoreTask(
        first.board_id,
        first.players,
        first.scores,
        board=first.board,
        tiebreaks=first.tiebreaks,
        at=first.at,
        attributes=first.attributes,
        metadata=first.metadata,
        sender=sender,
        rows_named=EVENTS,
        more=more,
    )


def _part(board_id: object, sent: Iterable[Sent], sender: Sender, find: FindBoard, first_row: int) -> ScoreTask:
    with_board = f"{EVENTS}[{first_row}].board"
    name = check_board_id(board_id, with_board)
    try:
        board = find(name)
    except BoardUnknown as problem:
        raise BoardUnknown(f"{with_board}: there is no board {name!r}; define it first") from problem
    listed: list[Sent | Row] = []
    is_plain = True
    for one in sent:
        if type(one.score) is int and one.tiebreak is one.at is one.attributes is one.metadata is None:
            listed.append(one)
        else:
            is_plain = False
            listed.append(_read(one, board, f"{EVENTS}[{first_row + len(listed)}]."))
    if is_plain:
        try:
            return ScoreTask(
                name,
                column.check_players([one.player for one in listed]),
                column.check_scores([one.score for one in listed], board),
                board=board,
                sender=sender,
                first_row=first_row,
                rows_named=EVENTS,
            )
        except InvalidValue:
            pass  # one by one, each is called by its own name
    rows = [
        one if isinstance(one, Row) else _read(one, board, f"{EVENTS}[{first_row + index}].")
        for index, one in enumerate(listed)
    ]
    return _task(name, rows, sender, board, first_row=first_row, rows_named=EVENTS)


def _read(sent: Sent, board: Board | None, where: str = "") -> Row:
    tiebreak, at, attributes, metadata = sent.tiebreak, sent.at, sent.attributes, sent.metadata
    return Row(
        check_player(sent.player, f"{where}player"),
        column.check_one_score(sent.score, board, f"{where}score"),
        None if tiebreak is None else check_tiebreak(tiebreak, f"{where}tiebreak"),
        None if at is None else check_at(at, f"{where}at"),
        None if attributes is None else check_attributes(attributes, f"{where}attributes"),
        None if metadata is None else encode_metadata(metadata, f"{where}metadata").decode(),
    )


def _task(
    board_id: str, listed: list[Row], sender: Sender, board: Board | None, *, first_row: int, rows_named: str
) -> ScoreTask:
    return ScoreTask(
        board_id,
        [row.player for row in listed],
        array("q", [row.score for row in listed]),
        board=board,
        tiebreaks=array("q", [row.tiebreak or 0 for row in listed]) if any(row.tiebreak for row in listed) else None,
        at=column.instants_of_rows(listed),
        attributes=[row.attributes for row in listed] if any(row.attributes for row in listed) else None,
        metadata=[row.metadata for row in listed] if any(row.metadata for row in listed) else None,
        sender=sender,
        first_row=first_row,
        rows_named=rows_named,
    )

"""A request to count scores: checked in its caller's thread, drafted in the committing one."""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from rankd._columns import extent, first_odd
from rankd.domain.board import Board
from rankd.domain.instant import check_at
from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE
from rankd.domain.player import PLAYER_BYTES_MAX, check_player
from rankd.domain.scope import check_attributes
from rankd.domain.score import check_score, check_tiebreak, encode_metadata
from rankd.errors import BoardClosed, Forbidden, InvalidValue
from rankd.intake.queue import Task
from rankd.intake.sender import LOCAL, Sender

IDS_PER_TURN = 10_000  # looked at before other threads may run
NOW = -1  # in a column of instants: the ledger's time at the commit


class ScoreTask(Task):
    """Scores of one board as columns; what no event has is None in place of a column."""

    def __init__(
        self,
        board_id: str,
        players: Sequence[str],
        scores: array[int],
        *,
        board: Board | None = None,
        tiebreaks: array[int] | None = None,
        at: array[int] | None = None,
        attributes: list[dict[str, str] | None] | None = None,
        metadata: list[str | None] | None = None,
        sender: Sender = LOCAL,
        answers: bool = False,
        first_row: int = 0,
        rows_named: str = "rows",
        more: Sequence[ScoreTask] = (),
    ) -> None:
        """The columns have been checked against `board`, the one defined at that time; None when they have not.

        What comes with a key is checked when it is known not to be a repeat: a board may have changed since the first.
        A request for several boards has a task for each run of scores of one board: the first has the `more` others.
        `first_row` is where its scores begin among the rows of the request, which refusals call `rows_named`.
        """
        super().__init__()
        self.board_id = board_id
        self.board = board
        self.players = players
        self.scores = scores
        self.tiebreaks = tiebreaks
        self.at = at
        self.attributes = attributes
        self.metadata = metadata
        self.sender = sender
        self.answers = answers
        self.first_row = first_row
        self.rows_named = rows_named
        self._more = more
        self.events = len(scores)
        for part in more:
            self.events += part.events
        self.fingerprint = b"" if sender.key is None else self._fingerprint()

    @property
    def parts(self) -> Sequence[ScoreTask]:
        """Itself and the others of its request; not kept, as what holds itself is not let go with its last user."""
        return (self, *self._more)

    def check_lengths(self, events_max: int) -> None:
        """Refuse columns of different lengths, and more events than one request may have."""
        count = len(self.scores)
        if count > events_max:
            raise InvalidValue("scores", f"must be at most {events_max}; got {count}: send them in parts")
        for name in ("players", "tiebreaks", "at", "attributes", "metadata"):
            given = getattr(self, name)
            if given is not None and len(given) != count:
                raise InvalidValue(name, f"must be as many as scores; {len(given)} and {count} were given")

    def check_bounds(self, board: Board) -> None:
        """Refuse scores outside a board's bounds, naming the first."""
        if self.scores and (min(self.scores) < board.score_min or max(self.scores) > board.score_max):
            for index, score in enumerate(self.scores):
                board.check_score(score, "score" if self.answers else self.row_field(index, "score"))

    def row_field(self, index: int, field: str) -> str:
        """Return what a refusal calls a field of one of its rows."""
        return f"{self.rows_named}[{self.first_row + index}].{field}"

    def _fingerprint(self) -> bytes:
        first, *rest = (part._said() for part in self.parts)
        return fingerprint_of((*first, *rest))

    def _said(self) -> tuple[object, ...]:
        return (
            self.answers,
            self.board_id,
            list(self.players),
            self.scores.tobytes(),
            None if self.tiebreaks is None else self.tiebreaks.tobytes(),
            None if self.at is None else self.at.tobytes(),
            self.attributes,
            self.metadata,
        )


def fingerprint_of(said: object) -> bytes:
    """Return what tells one decoded request from another."""
    return blake2b(msgspec.msgpack.encode(said, order="deterministic"), digest_size=16).digest()


def single_task(board: Board, player: str, score: int, tiebreak: int, sender: Sender) -> ScoreTask:
    """Return the task of one score that has been checked against a board."""
    return ScoreTask(
        board.id,
        [player],
        array("q", [score]),
        board=board,
        tiebreaks=array("q", [tiebreak]) if tiebreak else None,
        sender=sender,
        answers=True,
    )


def check_open(board: Board) -> None:
    """Refuse scores for a board that takes none at present."""
    if not board.open:
        raise BoardClosed(f"board: {board.id} takes no scores now; define it with open = true")


def check_signed(board: Board, sender: Sender) -> None:
    """Refuse scores that came unsigned to a board that was defined while they were under way."""
    if board.signing is not None and not sender.is_local and sender.signing != board.signing:
        raise Forbidden(
            f"board: {board.id} takes submissions signed with {board.signing} only; sign it and send it again"
        )


def check_players(players: object) -> list[str]:
    """Return the ids of a column, or name the first bad one."""
    listed: list[Any] = _listed("players", players)
    index, count = 0, len(listed)
    while index < count:
        turn_end = min(index + IDS_PER_TURN, count)
        # Most ids are plain: a look tells them from those that need the whole check.
        while (index := first_odd(listed, index, turn_end, PLAYER_BYTES_MAX)) < turn_end:
            check_player(listed[index], f"players[{index}]")
            index += 1
        if turn_end < count:
            time.sleep(0)  # a reader may wait for the interpreter
    return listed


def check_scores(scores: object, board: Board | None) -> array[int]:
    """Return a column of scores within a board's bounds, or name the first bad one."""
    column = _integers("scores", scores)
    if board is not None:
        check_bounds(column, board)
    return column


def check_bounds(column: array[int], board: Board) -> None:
    """Refuse a column that holds a score outside a board's bounds, naming the first."""
    if not column:
        return
    least, greatest = extent(column)
    if least < board.score_min or greatest > board.score_max:
        for index, score in enumerate(column):
            board.check_score(score, f"scores[{index}]")


def check_one_score(score: object, board: Board | None, field: str = "score") -> int:
    """Return a score within a board's bounds, or within those of any board."""
    if board is None:
        return check_score(score, SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE, field)
    return board.check_score(score, field)


def check_tiebreaks(tiebreaks: object) -> array[int]:
    """Return a column of tiebreaks, or name the first bad one."""
    column = _integers("tiebreaks", tiebreaks)
    for index, tiebreak in enumerate(column):
        check_tiebreak(tiebreak, f"tiebreaks[{index}]")
    return column


def check_instants(at: object, count: int) -> array[int]:
    """Return a column of instants; one for all may be given as a number."""
    if type(at) is int:
        return array("q", [check_at(at)]) * count
    column = _integers("at", at)
    for index, instant in enumerate(column):
        check_at(instant, f"at[{index}]")
    return column


def instants_of_rows(rows: Sequence[Row]) -> array[int] | None:
    """Return the instants of rows, NOW for those without one; None when none has one."""
    if all(row.at is None for row in rows):
        return None
    return array("q", [NOW if row.at is None else row.at for row in rows])


def check_attribute_column(attributes: object, count: int) -> list[dict[str, str] | None]:
    """Return a column of attributes; one mapping counts for all."""
    if isinstance(attributes, Mapping):
        return [check_attributes(attributes)] * count
    listed = _listed("attributes", attributes)
    return [None if one is None else check_attributes(one, f"attributes[{index}]") for index, one in enumerate(listed)]


def check_metadata_column(metadata: object) -> list[str | None]:
    """Return a column of metadata as JSON."""
    listed = _listed("metadata", metadata)
    return [
        None if one is None else encode_metadata(one, f"metadata[{index}]").decode() for index, one in enumerate(listed)
    ]


def _listed(field: str, value: object) -> list[object]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise InvalidValue(field, f"must be a list; got {type(value).__name__}")
    return list(value)


def _integers(field: str, value: object) -> array[int]:
    if type(value) is array and value.typecode == "q":
        return value[:]  # a copy: the caller may change its own while it is written
    if isinstance(value, list | tuple):
        if not set(map(type, value)) <= {int}:
            index = next(index for index, one in enumerate(value) if type(one) is not int)
            raise InvalidValue(
                f"{field}[{index}]", f"must be an integer; got {type(value[index]).__name__}: send a whole number"
            )
        try:
            return array("q", value)
        except OverflowError:
            index = next(index for index, one in enumerate(value) if not -(2**63) <= one < 2**63)
            raise InvalidValue(f"{field}[{index}]", "must fit in 64 bits") from None
    try:
        view = memoryview(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        raise InvalidValue(field, f"must be a list or an array of integers; got {type(value).__name__}") from None
    if view.ndim != 1 or view.itemsize != 8 or view.format not in ("q", "l"):
        raise InvalidValue(field, f"must be one dimension of 64-bit signed integers; its format is {view.format!r}")
    return array("q", view.tobytes())


class Row(NamedTuple):
    """One row of a request, checked."""

    player: str
    score: int
    tiebreak: int | None = None
    at: int | None = None
    attributes: dict[str, str] | None = None
    metadata: str | None = None


_FIELDS = ("player", "score", "tiebreak", "at", "attributes", "metadata")


def read_row(row: object, index: int, board: Board | None) -> Row:
    """Return one row of a request, given as (player, score[, tiebreak]) or as a mapping."""
    where = f"rows[{index}]"
    if isinstance(row, Mapping):
        unknown = [name for name in row if name not in _FIELDS]
        if unknown:
            raise InvalidValue(f"{where}.{unknown[0]!s:.40}", f"is unknown; a row has {', '.join(_FIELDS)}")
        given = dict(row)
    elif isinstance(row, tuple | list) and 2 <= len(row) <= 3:
        given = dict(zip(_FIELDS, row, strict=False))
    else:
        raise InvalidValue(where, "must be (player, score), (player, score, tiebreak) or a mapping")
    tiebreak, at = given.get("tiebreak"), given.get("at")
    attributes, metadata = given.get("attributes"), given.get("metadata")
    return Row(
        check_player(given.get("player"), f"{where}.player"),
        check_one_score(given.get("score"), board, f"{where}.score"),
        None if tiebreak is None else check_tiebreak(tiebreak, f"{where}.tiebreak"),
        None if at is None else check_at(at, f"{where}.at"),
        None if attributes is None else check_attributes(attributes, f"{where}.attributes"),
        None if metadata is None else encode_metadata(metadata, f"{where}.metadata").decode(),
    )

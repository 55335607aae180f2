"""A request with scores: checked in the caller's thread, drafted in the committing thread."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from rankd._columns import distinct_mappings, distinct_rows, extent, first_odd, plain_json, take
from rankd.domain.acceptance import not_signed
from rankd.domain.board import Board
from rankd.domain.instant import AT_MS_END, check_at
from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE
from rankd.domain.player import PLAYER_BYTES_MAX, check_player
from rankd.domain.scope import check_attributes
from rankd.domain.score import METADATA_BYTES_MAX, TIEBREAK_MAX, check_score, check_tiebreak, encode_metadata
from rankd.errors import InvalidValue
from rankd.intake.queue import Task
from rankd.intake.sender import LOCAL, Sender
from rankd.ledger.port import SourceSpan

IDS_PER_TURN = 10_000  # checked before other threads may run
NOW = -1  # in a column of instants: the ledger's time at the commit


class DeferredBoard(NamedTuple):
    """Stands for a board whose rules are applied at the commit."""

    decimals: int = 0  # as far as this process knows
    score_min: int = SCORE_MIN_POSSIBLE
    score_max: int = SCORE_MAX_POSSIBLE

    def check_score(self, value: object, field: str = "score") -> int:
        """Return a score that some board may accept, or refuse it."""
        return check_score(value, self.score_min, self.score_max, field, self.decimals)


class ScoreTask(Task):
    """Scores of one board as columns; a column that no event uses is None."""

    fingerprint = b""  # of the request, where it has a key
    sources: Sequence[SourceSpan] = ()  # that its scores were read from

    def __init__(
        self,
        board_id: str,
        players: Sequence[str],
        scores: array[int],
        *,
        board: Board | DeferredBoard | None = None,
        tiebreaks: array[int] | None = None,
        at: array[int] | None = None,
        attributes: list[dict[str, str] | None] | None = None,
        metadata: list[str | None] | None = None,
        sender: Sender = LOCAL,
        answers: bool = False,
        rows: array[int] | None = None,
        rows_named: str = "rows",
        is_part: bool = False,
    ) -> None:
        """`board` is the definition that the columns were checked against, if they were.

        A request with a key is checked only once it is no repeat: the board may have changed since the first.
        A request for several boards has a task for each; the first of these parts holds the others, see `join`.
        `rows` are the request's rows of the scores, None: all in order; refusals call the rows `rows_named`.
        """
        self.board_id = board_id
        self.board = board if isinstance(board, Board) else None
        self.players = players
        self.scores = scores
        self.tiebreaks = tiebreaks
        self.at = at
        self.attributes = attributes
        self.metadata = metadata
        self.sender = sender
        self.answers = answers
        self.rows = rows
        self.rows_named = rows_named
        self._more: Sequence[ScoreTask] = ()
        self.events = len(scores)
        if sender.key is not None and not is_part:
            self.fingerprint = self._fingerprint()

    def join(self, more: Sequence[ScoreTask]) -> None:
        """Make this part the task of a whole request, together with its other parts."""
        self._more = more
        self.events = sum(len(part.scores) for part in self.parts)
        if self.sender.key is not None:
            self.fingerprint = self._fingerprint()

    @property
    def parts(self) -> Sequence[ScoreTask]:
        """This task and the others of its request; not stored, which would be a reference cycle."""
        return (self, *self._more)

    def check_lengths(self, events_max: int) -> None:
        """Refuse columns of different lengths, and more events than one request may have."""
        count = len(self.scores)
        if self.events > events_max:
            raise InvalidValue("scores", f"must be at most {events_max}; got {self.events}: send them in parts")
        for name in ("players", "tiebreaks", "at", "attributes", "metadata"):
            column = getattr(self, name)
            if column is not None and len(column) != count:
                raise InvalidValue(name, f"must be as many as scores; {len(column)} and {count} were given")

    def check_bounds(self, board: Board) -> None:
        """Refuse scores outside a board's bounds, naming the first."""
        if self.scores and (min(self.scores) < board.score_min or max(self.scores) > board.score_max):
            for index, score in enumerate(self.scores):
                board.check_score(score, "score" if self.answers else self.row_field(index, "score"))

    def row_field(self, index: int, field: str) -> str:
        """Return the name of a row's field in a refusal."""
        return f"{self.rows_named}[{index if self.rows is None else self.rows[index]}].{field}"

    def cut(self, start: int, end: int) -> ScoreTask:
        """Return some of a part's scores, as a part without empty columns."""
        tiebreaks = None if self.tiebreaks is None else self.tiebreaks[start:end]
        at = None if self.at is None else self.at[start:end]
        attributes = None if self.attributes is None else self.attributes[start:end]
        metadata = None if self.metadata is None else self.metadata[start:end]
        return ScoreTask(
            self.board_id,
            self.players[start:end],
            self.scores[start:end],
            board=self.board,
            tiebreaks=tiebreaks if tiebreaks and any(tiebreaks) else None,
            at=at if at and at.count(NOW) < len(at) else None,
            attributes=attributes if attributes and any(attributes) else None,
            metadata=metadata if metadata and any(metadata) else None,
            sender=self.sender,
            rows=None if self.rows is None else self.rows[start:end],
            rows_named=self.rows_named,
            is_part=True,
        )

    def _fingerprint(self) -> bytes:
        if not self._more:
            return fingerprint_of(self._said())
        first, *rest = (part._said() for part in in_request_order(self.parts))
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


def in_request_order(parts: Sequence[ScoreTask]) -> list[ScoreTask]:
    """Cut parts of a request so that their scores are in the order of its rows."""
    places = sorted(
        (row, number, index) for number, part in enumerate(parts) for index, row in enumerate(part.rows or ())
    )
    runs = (list(run) for _, run in groupby(places, key=itemgetter(1)))
    return [parts[run[0][1]].cut(run[0][2], run[-1][2] + 1) for run in runs]


def fingerprint_of(content: object) -> bytes:
    """Return a digest that identifies the content of a request."""
    return blake2b(msgspec.msgpack.encode(content, order="deterministic"), digest_size=16).digest()


def check_signed(board: Board, sender: Sender) -> None:
    """Refuse scores without the board's signature: the board may have changed since they were sent."""
    if board.signing is not None and not sender.is_local and sender.signing != board.signing:
        raise not_signed(board)


def check_players(players: object) -> list[str]:
    """Return the ids of a column, or name the first bad one."""
    listed: list[Any] = _listed("players", players)
    index, count = 0, len(listed)
    while index < count:
        turn_end = min(index + IDS_PER_TURN, count)
        # Most ids are plain: `first_odd` finds those that need the whole check.
        while (index := first_odd(listed, index, turn_end, PLAYER_BYTES_MAX)) < turn_end:
            check_player(listed[index], f"players[{index}]")
            index += 1
        if turn_end < count:
            time.sleep(0)  # a reader may wait for the interpreter
    return listed


def check_scores(scores: object, board: Board | DeferredBoard) -> array[int]:
    """Return a column of scores within a board's bounds, or name the first bad one."""
    column = _integers("scores", scores, board.check_score)
    if column and not (board.score_min <= extent(column)[0] and extent(column)[1] <= board.score_max):
        for index, score in enumerate(column):
            board.check_score(score, f"scores[{index}]")
    return column


def check_tiebreaks(tiebreaks: object) -> array[int]:
    """Return a column of tiebreaks, or name the first bad one."""
    column = _integers("tiebreaks", tiebreaks, check_tiebreak)
    if not column or (extent(column)[0] >= 0 and extent(column)[1] <= TIEBREAK_MAX):
        return column
    for index, tiebreak in enumerate(column):
        check_tiebreak(tiebreak, f"tiebreaks[{index}]")
    return column


def check_instants(at: object, count: int) -> array[int]:
    """Return a column of instants; a number counts for all rows."""
    if type(at) is int:
        return array("q", [check_at(at)]) * count
    column = _integers("at", at, check_at)
    if column and not all(0 <= edge < AT_MS_END for edge in extent(column)):
        for index, instant in enumerate(column):
            check_at(instant, f"at[{index}]")
    return column


def check_attribute_column(attributes: object, count: int, field: str = "attributes") -> list[dict[str, str] | None]:
    """Return a column of attributes; equal ones share one object.

    One mapping counts for all, and may hold columns: {"country": ["BR", "FR"], "level": 7}.
    """
    if isinstance(attributes, Mapping):
        named = {name: _plain(value) for name, value in attributes.items()}
        if not any(isinstance(value, list | tuple) for value in named.values()):
            return [check_attributes(named)] * count
        return _columns_of_attributes(named, count, field)
    listed = _listed(field, attributes)
    mappings, index = distinct_mappings(listed)
    return take(_checked(mappings, index, field), index)


def _columns_of_attributes(attributes: Mapping[object, object], count: int, field: str) -> list[dict[str, str] | None]:
    columns = []
    for name, value in attributes.items():
        column = list(value) if isinstance(value, list | tuple) else [value] * count
        if len(column) != count:
            raise InvalidValue(f"{field}.{name}", f"must be as many as scores; {len(column)} and {count} were given")
        columns.append(column)
    rows, index = distinct_rows(columns)
    return take(_checked([dict(zip(attributes, row, strict=True)) for row in rows], index, field), index)


def _checked(mappings: Sequence[object], index: bytes, field: str) -> list[dict[str, str] | None]:
    """Return checked attributes; a refusal names the first row that has them."""
    checked: list[dict[str, str] | None] = []
    for number, attributes in enumerate(mappings):
        try:
            checked.append(None if attributes is None else check_attributes(attributes))
        except InvalidValue as problem:
            row = memoryview(index).cast("I").tolist().index(number)
            raise InvalidValue(f"{field}[{row}]{problem.field.removeprefix('attributes')}", problem.problem) from None
    return checked


def check_metadata_column(metadata: object) -> list[str | None]:
    """Return a column of metadata as JSON."""
    listed = _listed("metadata", metadata)
    encoded, others = plain_json(listed, METADATA_BYTES_MAX)
    for index in others:
        encoded[index] = encode_metadata(listed[index], f"metadata[{index}]").decode()
    return encoded


def encode_one(metadata: object, field: str) -> str:
    """Return the metadata of one score as JSON."""
    (encoded,), _ = plain_json([metadata], METADATA_BYTES_MAX)
    return encode_metadata(metadata, field).decode() if encoded is None else encoded


def _listed(field: str, value: object) -> list[object]:
    listed = _plain(value)
    if isinstance(listed, str | bytes) or not isinstance(listed, Sequence):
        raise InvalidValue(field, f"must be a list; got {type(value).__name__}")
    return list(listed)


def _plain(value: object) -> object:
    """Return an array of Arrow or NumPy as a list, and its scalars as Python's; anything else as it is."""
    if isinstance(value, str | int | list | tuple):
        return value
    if hasattr(value, "to_pylist"):
        # A dictionary array makes an object for each cell, unless it is decoded first.
        return [
            cell
            for chunk in getattr(value, "chunks", [value])
            for cell in (chunk.dictionary_decode() if hasattr(chunk, "dictionary") else chunk).to_pylist()
        ]
    return value.tolist() if hasattr(value, "tolist") else value


def _integers(field: str, value: object, check: Callable[[object, str], int]) -> array[int]:
    """Return a column of integers; `check` refuses another value by what to send."""
    if type(value) is array and value.typecode == "q":
        return value[:]  # a copy: the caller may change its array meanwhile
    if hasattr(value, "to_pylist"):
        value = _plain(value)
    if isinstance(value, list | tuple):
        if not set(map(type, value)) <= {int}:
            index = next(index for index, item in enumerate(value) if type(item) is not int)
            check(value[index], f"{field}[{index}]")
        try:
            return array("q", value)
        except OverflowError:
            index = next(index for index, item in enumerate(value) if not -(2**63) <= item < 2**63)
            raise InvalidValue(f"{field}[{index}]", "must fit in 64 bits") from None
    try:
        view = memoryview(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        raise InvalidValue(field, f"must be a list or an array of integers; got {type(value).__name__}") from None
    if view.ndim == 1 and view.format == "d" and view:
        check(view[0], f"{field}[0]")
    if view.ndim != 1 or view.itemsize != 8 or view.format not in ("q", "l"):
        raise InvalidValue(field, f"must be one dimension of 64-bit signed integers; its format is {view.format!r}")
    return array("q", view.tobytes())


class ScoreRow(NamedTuple):
    """One row of a request, checked."""

    player: str
    score: int
    tiebreak: int | None = None
    at: int | None = None
    attributes: dict[str, str] | None = None
    metadata: str | None = None


_FIELDS = ("player", "score", "tiebreak", "at", "attributes", "metadata")


def read_row(row: object, index: int, board: Board | DeferredBoard) -> ScoreRow:
    """Return one row of a request, given as (player, score[, tiebreak]) or as a mapping."""
    where = f"rows[{index}]"
    if isinstance(row, Mapping):
        unknown = [name for name in row if name not in _FIELDS]
        if unknown:
            raise InvalidValue(f"{where}.{unknown[0]!s:.40}", f"is unknown; a row has {', '.join(_FIELDS)}")
        fields = dict(row)
    elif isinstance(row, tuple | list) and 2 <= len(row) <= 3:
        fields = dict(zip(_FIELDS, row, strict=False))
    else:
        raise InvalidValue(where, "must be (player, score), (player, score, tiebreak) or a mapping")
    tiebreak, at = fields.get("tiebreak"), fields.get("at")
    attributes, metadata = fields.get("attributes"), fields.get("metadata")
    return ScoreRow(
        check_player(fields.get("player"), f"{where}.player"),
        board.check_score(fields.get("score"), f"{where}.score"),
        None if tiebreak is None else check_tiebreak(tiebreak, f"{where}.tiebreak"),
        None if at is None else check_at(at, f"{where}.at"),
        None if attributes is None else check_attributes(attributes, f"{where}.attributes"),
        None if metadata is None else encode_one(metadata, f"{where}.metadata"),
    )

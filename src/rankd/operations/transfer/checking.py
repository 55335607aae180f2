"""Checks rows by the library's own rules: whole columns at once, and row by row where one fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from typing import Any, NamedTuple

import msgspec

from rankd._columns import distinct_mappings, distinct_rows, take
from rankd.domain.board import Board
from rankd.domain.instant import AT_MS_END, check_at, check_sent_at
from rankd.domain.player import PLAYER_BYTES_MAX, check_player
from rankd.domain.scope import check_attributes
from rankd.domain.score import TIEBREAK_MAX, check_tiebreak, encode_metadata
from rankd.errors import InvalidValue
from rankd.operations.transfer.report import BadLine
from rankd.operations.transfer.rows import AttributeColumns, RowChunk, RowReader, UncheckedColumns

PROBLEM_CHARACTERS_MAX = 500


class CheckedColumns(NamedTuple):
    """Valid rows; None in place of a column that no row has."""

    players: list[str]
    scores: list[int]
    tiebreaks: list[int] | None
    at: list[int | None] | None
    attributes: AttributeColumns | list[dict[str, str] | None] | None
    metadata: list[Mapping[str, object] | None] | None
    detail_bytes: list[int] | None  # size of attributes and metadata, by row

    def part(self, start: int, end: int) -> CheckedColumns:
        """Return some of the rows."""
        return CheckedColumns(*(_part(column, start, end) for column in self))


class CheckedBatch(NamedTuple):
    """The valid rows and the bad lines of a batch."""

    columns: CheckedColumns
    bad: list[BadLine]


class CheckedRow(NamedTuple):
    """One valid row."""

    player: str
    score: int
    tiebreak: int | None
    at: int | None
    attributes: dict[str, str] | None
    metadata: Mapping[str, object] | None


class Checker:
    """The rules of one board at one time."""

    def __init__(self, board: Board, now: int) -> None:
        """`now` is the time of the board's clock, which `at` must not exceed."""
        self._board = board
        self._now = now

    def check(self, reader: RowReader, batch: RowChunk) -> CheckedBatch:
        """Separate valid rows from bad lines."""
        columns = reader.columns(batch.rows)
        if columns is not None:
            try:
                return CheckedBatch(self._check_columns(columns), [])
            except InvalidValue:
                pass  # the row loop finds the bad line
        rows: list[CheckedRow] = []
        bad: list[BadLine] = []
        for number, row in zip(batch.numbers, batch.rows, strict=True):
            try:
                rows.append(self._check_row(reader.values(row)))
            except InvalidValue as problem:
                bad.append(BadLine(number, f"{reader.place(row)}{problem}"[:PROBLEM_CHARACTERS_MAX]))
        return CheckedBatch(_columns_of(rows), bad)

    # Columns

    def _check_columns(self, columns: UncheckedColumns) -> CheckedColumns:
        _check_players(columns.players)
        self._board.check_score(min(columns.scores))
        self._board.check_score(max(columns.scores))
        if columns.boards is not None:
            for board in set(columns.boards):
                self._check_board(board)
        tiebreaks = None
        if columns.tiebreaks is not None:
            tiebreaks = [tiebreak or 0 for tiebreak in columns.tiebreaks]
            if min(tiebreaks) < 0 or max(tiebreaks) > TIEBREAK_MAX:
                raise InvalidValue("tiebreak", "is out of its limits")
        at = columns.at
        if at is not None:
            instants = [instant for instant in at if instant is not None]
            if instants and (min(instants) < 0 or max(instants) >= AT_MS_END):
                raise InvalidValue("at", "is out of its limits")
            if instants:
                self._check_at(max(instants))
            else:
                at = None
        attributes, attribute_bytes = self._check_attribute_column(columns.attributes)
        metadata = columns.metadata
        return CheckedColumns(
            columns.players,
            columns.scores,
            tiebreaks,
            at,
            attributes,
            metadata,
            _detail_bytes(attribute_bytes, metadata),
        )

    def _check_attribute_column(
        self, column: AttributeColumns | list[Mapping[str, object] | None] | None
    ) -> tuple[AttributeColumns | list[dict[str, str] | None] | None, list[int] | None]:
        """Check each combination of values once; return the column and the size of each row's."""
        if column is None:
            return None, None
        if isinstance(column, dict):
            rows, index = distinct_rows([*column.values()])
            checked = [self._check_attributes(dict(zip(column, row, strict=True))) for row in rows]
            return column, take(_sizes(checked), index)
        mappings, index = distinct_mappings(column)
        known = [None if mapping is None else self._check_attributes(mapping) for mapping in mappings]
        return take(known, index), take(_sizes(known), index)

    # Row by row

    def _check_row(self, values: Mapping[str, object]) -> CheckedRow:
        for name in ("player", "score"):
            if values.get(name) is None:
                raise InvalidValue(name, "is missing")
        self._check_board(values.get("board"))
        tiebreak = values.get("tiebreak")
        field = "reached_at" if values.get("at") is None else "at"
        at = values.get(field)
        attributes, metadata = values.get("attributes"), values.get("metadata")
        row = CheckedRow(
            check_player(values["player"]),
            self._board.check_score(values["score"]),
            None if tiebreak is None else check_tiebreak(tiebreak),
            None if at is None else self._check_at(check_at(at, field)),
            None if attributes is None else self._check_attributes(attributes),
            metadata,  # type: ignore[arg-type]  # checked below
        )
        if metadata is not None:
            encode_metadata(metadata)
        return row

    def _check_board(self, board: object) -> None:
        if board is not None and board != self._board.id:
            raise InvalidValue("board", f"is {board!r:.80}, and this import is for {self._board.id}")

    def _check_at(self, at: int) -> int:
        return check_sent_at(at, self._now, None)

    def _check_attributes(self, mapping: object) -> dict[str, str]:
        attributes = check_attributes(mapping)
        if self._board.team is not None:
            self._board.team.team_of(attributes)
        return attributes


def _check_players(players: list[str]) -> None:
    # Most ids are plain ASCII; checking a joined batch is faster than checking each.
    joined = "".join(players)
    is_plain = joined.isascii() and joined.isprintable() and "." not in players and ".." not in players
    lengths = [*map(len, players)]
    if not (is_plain and min(lengths) > 0 and max(lengths) <= PLAYER_BYTES_MAX):
        for player in players:
            check_player(player)


def _part(column: Any, start: int, end: int) -> Any:
    if isinstance(column, dict):
        return {name: values[start:end] for name, values in column.items()}
    return None if column is None else column[start:end]


def _sizes(mappings: Sequence[Mapping[str, object] | None]) -> list[int]:
    return [len(msgspec.json.encode(mapping)) if mapping else 0 for mapping in mappings]


def _detail_bytes(attributes: list[int] | None, metadata: list[Mapping[str, object] | None] | None) -> list[int] | None:
    """Return the size of each row's attributes and metadata, given that of the attributes."""
    if metadata is None:
        return attributes
    sizes = [0 if value is None else len(encode_metadata(value)) for value in metadata]
    return sizes if attributes is None else list(map(add, sizes, attributes))


def _columns_of(rows: list[CheckedRow]) -> CheckedColumns:
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in CheckedRow._fields}
    tiebreaks, at = columns["tiebreak"], columns["at"]
    attributes = columns["attributes"] if any(columns["attributes"]) else None
    metadata = columns["metadata"] if any(value is not None for value in columns["metadata"]) else None
    return CheckedColumns(
        columns["player"],
        columns["score"],
        [tiebreak or 0 for tiebreak in tiebreaks] if any(value is not None for value in tiebreaks) else None,
        at if any(value is not None for value in at) else None,
        attributes,
        metadata,
        _detail_bytes(None if attributes is None else _sizes(attributes), metadata),
    )

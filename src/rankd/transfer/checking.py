"""Whether rows can be counted: the library's own rules, many rows at a time where they all hold, else row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from rankd.domain.board import Board
from rankd.domain.instant import AT_MS_END, check_at, check_sent_at
from rankd.domain.player import PLAYER_BYTES_MAX, check_player
from rankd.domain.scope import check_attributes
from rankd.domain.score import TIEBREAK_MAX, check_tiebreak, encode_metadata
from rankd.errors import InvalidValue
from rankd.transfer.report import BadLine
from rankd.transfer.rows import Piece, Reader, Unchecked

PROBLEM_CHARACTERS_MAX = 500


class Columns(NamedTuple):
    """Rows that can be counted; None in place of a column that no row has."""

    players: list[str]
    scores: list[int]
    tiebreaks: list[int] | None
    at: list[int | None] | None
    attributes: list[dict[str, str] | None] | None
    metadata: list[Mapping[str, object] | None] | None
    detail_bytes: list[int] | None  # how much attributes and metadata are, row by row

    def part(self, start: int, end: int) -> Columns:
        """Return some of the rows."""
        return Columns(*(None if column is None else column[start:end] for column in self))  # type: ignore[arg-type]


class Checked(NamedTuple):
    """A batch: what can be counted of it, and what cannot."""

    columns: Columns
    bad: list[BadLine]


class Row(NamedTuple):
    """One row that can be counted."""

    player: str
    score: int
    tiebreak: int | None
    at: int | None
    attributes: dict[str, str] | None
    metadata: Mapping[str, object] | None


class Checker:
    """The rules of one board at one time."""

    def __init__(self, board: Board, now: int) -> None:
        """`now` is the time of the board's clock, behind which `at` must not be."""
        self._board = board
        self._now = now

    def check(self, reader: Reader, batch: Piece) -> Checked:
        """Tell the rows that can be counted from those that cannot."""
        found = reader.columns(batch.rows)
        if found is not None:
            try:
                return Checked(self._check_columns(found), [])
            except InvalidValue:
                pass  # which row it is, is found row by row
        rows: list[Row] = []
        bad: list[BadLine] = []
        for number, row in zip(batch.numbers, batch.rows, strict=True):
            try:
                rows.append(self._check_row(reader.values(row)))
            except InvalidValue as problem:
                bad.append(BadLine(number, str(problem)[:PROBLEM_CHARACTERS_MAX]))
        return Checked(_columns_of(rows), bad)

    # Many rows at a time

    def _check_columns(self, found: Unchecked) -> Columns:
        _check_players(found.players)
        self._board.check_score(min(found.scores))
        self._board.check_score(max(found.scores))
        if found.boards is not None:
            for board in set(found.boards):
                self._check_board(board)
        tiebreaks = None
        if found.tiebreaks is not None:
            tiebreaks = [tiebreak or 0 for tiebreak in found.tiebreaks]
            if min(tiebreaks) < 0 or max(tiebreaks) > TIEBREAK_MAX:
                raise InvalidValue("tiebreak", "is out of its limits")
        at = found.at
        if at is not None:
            instants = [instant for instant in at if instant is not None]
            if instants and (min(instants) < 0 or max(instants) >= AT_MS_END):
                raise InvalidValue("at", "is out of its limits")
            if instants:
                self._check_at(max(instants))
            else:
                at = None
        attributes = None if found.attributes is None else self._check_attribute_column(found.attributes)
        metadata = found.metadata
        return Columns(
            found.players, found.scores, tiebreaks, at, attributes, metadata, _detail_bytes(attributes, metadata)
        )

    def _check_attribute_column(self, column: list[Mapping[str, object] | None]) -> list[dict[str, str] | None]:
        known: dict[int, dict[str, str] | None] = {}  # by identity: a table's rows share what they say
        for mapping in column:
            if id(mapping) not in known:
                known[id(mapping)] = None if mapping is None else self._check_attributes(mapping)
        return [known[id(mapping)] for mapping in column]

    # Row by row

    def _check_row(self, values: Mapping[str, object]) -> Row:
        for name in ("player", "score"):
            if values.get(name) is None:
                raise InvalidValue(name, "is missing")
        self._check_board(values.get("board"))
        tiebreak = values.get("tiebreak")
        field = "reached_at" if values.get("at") is None else "at"
        at = values.get(field)
        attributes, metadata = values.get("attributes"), values.get("metadata")
        row = Row(
            check_player(values["player"]),
            self._board.check_score(values["score"]),
            None if tiebreak is None else check_tiebreak(tiebreak),
            None if at is None else self._check_at(check_at(at, field)),
            None if attributes is None else self._check_attributes(attributes),
            metadata,  # type: ignore[arg-type]  # the next lines see to it
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
    # Most ids are plain ASCII; all of a batch together are looked at faster than each.
    joined = "".join(players)
    is_plain = joined.isascii() and joined.isprintable() and "." not in players and ".." not in players
    lengths = [*map(len, players)]
    if not (is_plain and min(lengths) > 0 and max(lengths) <= PLAYER_BYTES_MAX):
        for player in players:
            check_player(player)


def _detail_bytes(
    attributes: list[dict[str, str] | None] | None, metadata: list[Mapping[str, object] | None] | None
) -> list[int] | None:
    if metadata is not None:
        sizes = [0 if one is None else len(encode_metadata(one)) for one in metadata]
    elif attributes is not None:
        sizes = [0] * len(attributes)
    else:
        return None
    if attributes is not None:
        known = {id(one): len(msgspec.json.encode(one)) for one in attributes if one}
        sizes = [size + known.get(id(one), 0) for size, one in zip(sizes, attributes, strict=True)]
    return sizes


def _columns_of(rows: list[Row]) -> Columns:
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in Row._fields}
    tiebreaks, at = columns["tiebreak"], columns["at"]
    attributes = columns["attributes"] if any(columns["attributes"]) else None
    metadata = columns["metadata"] if any(one is not None for one in columns["metadata"]) else None
    return Columns(
        columns["player"],
        columns["score"],
        [tiebreak or 0 for tiebreak in tiebreaks] if any(one is not None for one in tiebreaks) else None,
        at if any(one is not None for one in at) else None,
        attributes,
        metadata,
        _detail_bytes(attributes, metadata),
    )

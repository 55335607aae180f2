"""Reads rows of NDJSON: one object a line, which is an event, or many as columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Annotated, Any

import msgspec

from rankd.domain.scope import ATTRIBUTES_MAX
from rankd.errors import InvalidValue
from rankd.operations.transfer.formats import METADATA_TEXT_MAX, unknown_name
from rankd.operations.transfer.input import BLOCK_BYTES, TOO_LONG, Input
from rankd.operations.transfer.rows import RowChunk, UncheckedColumns, Unreadable, attribute_rows, instants


class NdjsonLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A line whose fields have the right types; the last four are fields of an export.

    Fields of any size stay encoded: lines are held until their batch is checked, and a line of brackets takes 25 times
    its size as objects.
    """

    player: str
    score: int
    tiebreak: int | None = None
    at: int | None = None
    reached_at: int | None = None
    attributes: Annotated[dict[str, str | int | None], msgspec.Meta(max_length=ATTRIBUTES_MAX)] | None = None
    metadata: msgspec.Raw = msgspec.Raw()
    board: str | None = None
    rank: msgspec.Raw = msgspec.Raw()
    name: msgspec.Raw = msgspec.Raw()
    country: msgspec.Raw = msgspec.Raw()
    avatar_url: msgspec.Raw = msgspec.Raw()


class NdjsonEvent(NdjsonLine, gc=False):
    """One event of a line of columns."""

    index: int = 0  # in its line


_FIELDS = NdjsonLine.__struct_fields__
_decode = msgspec.json.Decoder(NdjsonLine).decode
_decode_any = msgspec.json.Decoder().decode
_decode_metadata = msgspec.json.Decoder(dict[str, Any] | None).decode


class NdjsonReader:
    """JSON, a line at a time."""

    def __init__(self, source: Input) -> None:
        """Nothing is read yet: NDJSON has no header."""
        self._source = source

    def pieces(self) -> Iterator[RowChunk]:
        """Return all lines that are not empty."""
        number = 1
        for block in self._source.blocks():
            lines = block.removesuffix(b"\n").split(b"\n")
            numbers: list[int] = list(range(number, number + len(lines)))
            try:
                block.decode()  # fields that stay encoded are not checked otherwise
                rows: list[Any] = list(map(_decode, lines))
            except (ValueError, RecursionError):
                # A bad line stays bytes; the checker finds its problem.
                decoded = [
                    (place, row)
                    for place, line in zip(numbers, lines, strict=True)
                    if line.strip()
                    for row in _decode_line(line)
                ]
                numbers, rows = [place for place, _ in decoded], [row for _, row in decoded]
            yield RowChunk(numbers, rows, len(block))
            number += len(lines)

    def columns(self, rows: list[Any]) -> UncheckedColumns | None:
        """Return lines as columns; None when one of them is bad."""
        if not set(map(type, rows)) <= {NdjsonLine, NdjsonEvent}:
            return None
        try:
            metadata = _metadata_column(rows)
        except (ValueError, RecursionError):
            return None
        return UncheckedColumns(
            [row.player for row in rows],
            [row.score for row in rows],
            _unless_all_none([row.tiebreak for row in rows]),
            instants(
                _unless_all_none([row.at for row in rows]),
                _unless_all_none([row.reached_at for row in rows]),
            ),
            _unless_all_none([row.attributes for row in rows]),
            _unless_all_none(metadata),
            _unless_all_none([row.board for row in rows]),
        )

    def values(self, row: Any) -> Mapping[str, object]:
        """Return one line by the names of its fields."""
        if isinstance(row, Unreadable):
            raise InvalidValue("line", row.problem)
        if isinstance(row, NdjsonLine):
            fields = {name: getattr(row, name) for name in _FIELDS}
            return {**fields, "metadata": _read_metadata(row)}
        fields = _object_of(row)
        for name in fields:
            if name not in _FIELDS:
                raise InvalidValue("line", f"has a field that is unknown: {unknown_name(name)}")
        if isinstance(fields.get("player"), list) or isinstance(fields.get("score"), list):
            read_columns(row)  # which raises
        return fields

    def place(self, row: Any) -> str:
        """Return which event of its line a row is."""
        return f"event {row.index + 1}: " if isinstance(row, NdjsonEvent) else ""


def _decode_line(line: bytes) -> Sequence[NdjsonLine | bytes | Unreadable]:
    """Return the rows of a line: one, or those of its columns."""
    if line.startswith(TOO_LONG):
        return [Unreadable(f"is longer than {BLOCK_BYTES} bytes")]
    try:
        line.decode()
        return [_decode(line)]
    except (ValueError, RecursionError):
        pass
    try:
        line.decode()
        return read_columns(line)
    except (InvalidValue, ValueError, RecursionError):
        return [line]


class NdjsonColumns(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A line of columns, each an array of one length or one value for all."""

    player: list[str]
    score: list[int]
    tiebreak: list[int | None] | int | None = None
    at: list[int | None] | int | None = None
    reached_at: list[int | None] | int | None = None
    attributes: (
        Annotated[dict[str, list[str | int | None] | str | int | None], msgspec.Meta(max_length=ATTRIBUTES_MAX)] | None
    ) = None
    metadata: msgspec.Raw = msgspec.Raw()
    board: list[str | None] | str | None = None
    rank: msgspec.Raw = msgspec.Raw()
    name: msgspec.Raw = msgspec.Raw()
    country: msgspec.Raw = msgspec.Raw()
    avatar_url: msgspec.Raw = msgspec.Raw()


_decode_columns = msgspec.json.Decoder(NdjsonColumns).decode
_decode_each = msgspec.json.Decoder(list[msgspec.Raw]).decode
_WHERE = re.compile(r"(?P<problem>.*) - at `\$\.?(?P<field>.*)`", re.DOTALL)


def read_columns(line: bytes) -> list[NdjsonEvent]:
    """Return the events of a line of columns, or refuse the line and name the field."""
    try:
        columns = _decode_columns(line)
        written = columns.metadata
        metadata = _decode_each(written) if bytes(written).startswith(b"[") else written
    except (msgspec.ValidationError, RecursionError) as problem:
        where = _WHERE.fullmatch(str(problem))
        field, message = ("line", str(problem)) if where is None else (where["field"], where["problem"])
        raise InvalidValue(field or "line", f"{message[:1].lower()}{message[1:200]}") from None
    count = len(columns.player)
    each = {
        name: _column(name, value, count)
        for name, value in (
            ("score", columns.score),
            ("tiebreak", columns.tiebreak),
            ("at", columns.at),
            ("reached_at", columns.reached_at),
            ("metadata", metadata),
            ("board", columns.board),
        )
    }
    sent = columns.attributes or {}
    attributes = {name: _column(f"attributes.{name}", value, count) for name, value in sent.items()}
    by_row = attribute_rows(attributes) if attributes else None
    return [
        NdjsonEvent(player, score, tiebreak, at, reached_at, attributes, metadata, board, index=index)  # type: ignore[arg-type]
        for index, (player, attributes, (score, tiebreak, at, reached_at, metadata, board)) in enumerate(
            zip(columns.player, by_row or repeat(None, count), zip(*each.values(), strict=True), strict=True)
        )
    ]


def _column(name: str, value: Any, count: int) -> list[Any]:
    """Return a column of one length; one value counts for all events."""
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise InvalidValue(name, f"must be as many as player; {len(value)} and {count} are there")
    return value


def _object_of(line: bytes) -> dict[str, object]:
    """Return a bad line as an object, or refuse it."""
    try:
        line.decode()
        row = _decode_any(line)
    except UnicodeDecodeError as problem:
        byte = problem.object[problem.start]
        raise InvalidValue("line", f"is not UTF-8: it holds the byte 0x{byte:02X}") from None
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidValue("line", f"is not JSON: {problem!s:.200}") from None
    if not isinstance(row, dict):
        raise InvalidValue("line", 'must be an object such as {"player": "alice", "score": 976}')
    return row


def _metadata_column(rows: Sequence[NdjsonLine]) -> list[dict[str, Any] | None]:
    column: list[dict[str, Any] | None] = []
    written = decoded = None
    for row in rows:
        if row.metadata is not written:  # that of a line of columns may count for all
            written, decoded = row.metadata, _metadata_of(row)
        column.append(decoded)
    return column


def _metadata_of(line: NdjsonLine) -> dict[str, Any] | None:
    written = line.metadata
    if not written:
        return None
    if len(written) > METADATA_TEXT_MAX:
        raise ValueError("the metadata of a line is too long")
    decoded: dict[str, Any] | None = _decode_metadata(written)
    return decoded


def _read_metadata(line: NdjsonLine) -> object:
    if len(line.metadata) > METADATA_TEXT_MAX:
        raise InvalidValue(
            "metadata", f"must be at most {METADATA_TEXT_MAX} bytes as it is written; got {len(line.metadata)}"
        )
    try:
        return _decode_any(line.metadata) if line.metadata else None
    except (ValueError, RecursionError) as problem:
        raise InvalidValue("metadata", f"must be plain JSON; {problem!s:.100}") from None


def _unless_all_none(column: list[Any]) -> list[Any] | None:
    return column if any(value is not None for value in column) else None

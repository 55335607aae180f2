"""Rows of NDJSON: one object a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from rankd.domain.scope import ATTRIBUTES_MAX
from rankd.errors import InvalidValue
from rankd.transfer.formats import METADATA_TEXT_MAX, unknown_name
from rankd.transfer.input import BLOCK_BYTES, TOO_LONG, Input
from rankd.transfer.rows import Piece, Unchecked, Unreadable, instants


class Line(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A line whose fields have the right types; the last four are there because an export writes them.

    What may be of any size is left as it was written: lines are held until their batch is checked, and a line of
    brackets takes 25 times its room as objects.
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


_FIELDS = Line.__struct_fields__
_decode = msgspec.json.Decoder(Line).decode
_decode_any = msgspec.json.Decoder().decode
_decode_metadata = msgspec.json.Decoder(dict[str, Any] | None).decode


class NdjsonReader:
    """JSON, a line at a time."""

    def __init__(self, source: Input) -> None:
        """Nothing is read yet: there is no header."""
        self._source = source

    def pieces(self) -> Iterator[Piece]:
        """Return all lines that are not empty."""
        number = 1
        for block in self._source.blocks():
            lines = block.removesuffix(b"\n").split(b"\n")
            numbers: list[int] = list(range(number, number + len(lines)))
            try:
                block.decode()  # what is left as it was written is not looked at otherwise
                rows: list[Any] = list(map(_decode, lines))
            except (ValueError, RecursionError):
                # A bad line is kept as bytes; what exactly is wrong with it is found when it is checked.
                found = [
                    (place, _decode_line(line)) for place, line in zip(numbers, lines, strict=True) if line.strip()
                ]
                numbers, rows = [place for place, _ in found], [row for _, row in found]
            yield Piece(numbers, rows, len(block))
            number += len(lines)

    def columns(self, rows: list[Any]) -> Unchecked | None:
        """Return lines as columns; None when one of them is not as it should be."""
        if set(map(type, rows)) != {Line}:
            return None
        try:
            metadata = [_metadata_of(row) for row in rows]
        except (ValueError, RecursionError):
            return None
        return Unchecked(
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
        if isinstance(row, Line):
            fields = {name: getattr(row, name) for name in _FIELDS}
            return {**fields, "metadata": _read_metadata(row)}
        fields = _object_of(row)
        for name in fields:
            if name not in _FIELDS:
                raise InvalidValue("line", f"has a field that is unknown: {unknown_name(name)}")
        return fields


def _decode_line(line: bytes) -> Line | bytes | Unreadable:
    if line.startswith(TOO_LONG):
        return Unreadable(f"is longer than {BLOCK_BYTES} bytes")
    try:
        line.decode()
        return _decode(line)
    except (ValueError, RecursionError):
        return line


def _object_of(line: bytes) -> dict[str, object]:
    """Return a line that is not as it should be as an object, or say why it is none."""
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


def _metadata_of(line: Line) -> dict[str, Any] | None:
    written = line.metadata
    if not written:
        return None
    if len(written) > METADATA_TEXT_MAX:
        raise ValueError("the metadata of a line is too long")
    decoded: dict[str, Any] | None = _decode_metadata(written)
    return decoded


def _read_metadata(line: Line) -> object:
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

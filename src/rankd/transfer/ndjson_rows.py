"""Rows of NDJSON: one object a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rankd.errors import InvalidValue
from rankd.transfer.formats import unknown_name
from rankd.transfer.input import BLOCK_BYTES, TOO_LONG, Input
from rankd.transfer.rows import Piece, Unchecked, Unreadable, instants


class Line(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A line whose fields have the right types; the last four are there because an export writes them."""

    player: str
    score: int
    tiebreak: int | None = None
    at: int | None = None
    reached_at: int | None = None
    attributes: dict[str, str | int | None] | None = None
    metadata: dict[str, Any] | None = None
    board: str | None = None
    rank: Any = None
    name: Any = None
    country: Any = None
    avatar_url: Any = None


_FIELDS = Line.__struct_fields__
_decode = msgspec.json.Decoder(Line).decode
_decode_any = msgspec.json.Decoder().decode


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
            try:
                yield Piece(list(range(number, number + len(lines))), list(map(_decode, lines)))
            except (ValueError, RecursionError):
                yield _one_by_one(lines, number)
            number += len(lines)

    def columns(self, rows: list[Any]) -> Unchecked | None:
        """Return lines as columns; None when one of them is not as it should be."""
        if set(map(type, rows)) != {Line}:
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
            _unless_all_none([row.metadata for row in rows]),
            _unless_all_none([row.board for row in rows]),
        )

    def values(self, row: Any) -> Mapping[str, object]:
        """Return one line by the names of its fields."""
        if isinstance(row, Unreadable):
            raise InvalidValue("line", row.problem)
        if isinstance(row, Line):
            return {name: getattr(row, name) for name in _FIELDS}
        fields: Mapping[str, object] = row
        for name in fields:
            if name not in _FIELDS:
                raise InvalidValue("line", f"has a field that is unknown: {unknown_name(name)}")
        return fields


def _one_by_one(lines: list[bytes], number: int) -> Piece:
    found = [(number + index, _decode_line(line)) for index, line in enumerate(lines) if line.strip()]
    return Piece([place for place, _ in found], [row for _, row in found])


def _decode_line(line: bytes) -> Line | dict[str, Any] | Unreadable:
    if line.startswith(TOO_LONG):
        return Unreadable(f"is longer than {BLOCK_BYTES} bytes")
    try:
        return _decode(line)
    except (ValueError, RecursionError):
        pass  # what exactly is wrong, is found field by field
    try:
        row = _decode_any(line)
    except UnicodeDecodeError as problem:
        return Unreadable(f"is not UTF-8: it holds the byte 0x{problem.object[problem.start]:02X}")
    except (msgspec.DecodeError, RecursionError) as problem:
        return Unreadable(f"is not JSON: {problem!s:.200}")
    if not isinstance(row, dict):
        return Unreadable('must be an object such as {"player": "alice", "score": 976}')
    return row


def _unless_all_none(column: list[Any]) -> list[Any] | None:
    return column if any(value is not None for value in column) else None

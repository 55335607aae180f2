"""Reads rows of CSV: a header, then records by RFC 4180, in UTF-8."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from rankd.errors import InvalidValue
from rankd.operations.transfer.formats import TableHeader
from rankd.operations.transfer.input import BLOCK_BYTES, TOO_LONG, Input
from rankd.operations.transfer.rows import RowChunk, Unreadable
from rankd.operations.transfer.tables import TableReader

RECORD_LINES_MAX = 64  # per record, with line ends in quotes: an open quote must not swallow the file
RECORD_CHARACTERS_MAX = BLOCK_BYTES
_TOO_LONG = TOO_LONG.decode()
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_INTEGER_DIGITS_MAX = 40  # twice what 64 bits need
_INTEGER_BYTES = b"0123456789-,"
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_integers = msgspec.json.Decoder(list[int]).decode
_integers_or_nulls = msgspec.json.Decoder(list[int | None]).decode


class CsvReader(TableReader):
    """Comma-separated values after a header, by RFC 4180."""

    def __init__(self, source: Input) -> None:
        """Read the header."""
        self._source = source
        self.header = self._read_header()

    def _read_header(self) -> TableHeader:
        for piece in self._records():
            for row in piece.rows:
                if isinstance(row, Unreadable):
                    raise InvalidValue("header", row.problem)
                return TableHeader(row, self._source.name)
        raise InvalidValue("file", f"{self._source.name} is empty; its first line must name the columns")

    def pieces(self) -> Iterator[RowChunk]:
        """Return all rows behind the header."""
        is_header = True
        for numbers, rows, size_bytes in self._records():
            if rows and is_header:
                is_header = False
                del numbers[0], rows[0]
            yield RowChunk(numbers, self._of_width(rows), size_bytes)

    def _of_width(self, rows: list[Any]) -> list[Any]:
        """Replace rows of another width than the header's with Unreadable."""
        width = self.header.width
        return [
            row
            if len(row) == width or isinstance(row, Unreadable)
            else Unreadable(f"has {len(row)} fields, and the header {width}")
            for row in rows
        ]

    def _records(self) -> Iterator[RowChunk]:
        number = 1
        carried: list[str] = []  # lines of a record whose quote is open at the end of a block
        is_damaged = False
        for block in self._source.blocks():
            text, has_escapes = _decoded(block)
            is_damaged = has_escapes or _TOO_LONG in text or (is_damaged and bool(carried))
            lines = [*carried, *io.StringIO(text, newline="\n")]
            if '"' in text or carried:
                numbers, rows, carried = _take_quoted(lines, number, is_last=False)
            else:
                numbers, rows = _take_plain(lines, number)
            number += len(lines) - len(carried)
            yield RowChunk(numbers, _without_damage(rows) if is_damaged else rows, len(block))
        numbers, rows, _ = _take_quoted(carried, number, is_last=True)
        yield RowChunk(numbers, _without_damage(rows) if is_damaged else rows, 0)

    def _whole_numbers(self, cells: Sequence[str]) -> list[int]:
        return [number for number in self._read_numbers(cells, _integers) if number is not None]

    def _optional_numbers(self, cells: Sequence[str]) -> list[int | None]:
        return self._read_numbers(cells, _integers_or_nulls)

    @staticmethod
    def _read_numbers(cells: Sequence[str], decode: Callable[[str], list[Any]]) -> list[Any]:
        # A column of integers is a JSON list without brackets, which msgspec reads fastest. Only digits, signs and
        # commas may be in it, and a comma within a cell would make the list longer.
        joined = ",".join(cells)
        if joined.encode().translate(None, _INTEGER_BYTES):
            raise ValueError("there is something else among the numbers")
        if "" in cells:
            joined = ",".join([cell or "null" for cell in cells])
        numbers = decode(f"[{joined}]")
        if len(numbers) != len(cells):
            raise ValueError("there is a comma among the numbers")
        return numbers

    def _number(self, field: str, cell: str | None) -> int | None:
        if not cell and (cell is None or field != "score"):
            return None
        if _INTEGER.fullmatch(cell) is None:
            raise InvalidValue(field, f"must be a whole number such as 976; got {cell!r:.40}")
        if len(cell) > _INTEGER_DIGITS_MAX:
            raise InvalidValue(field, f"must fit in 64 bits; got a number of {len(cell)} digits")
        return int(cell)


def _decoded(block: bytes) -> tuple[str, bool]:
    try:
        return block.decode(), False
    except UnicodeDecodeError:
        return block.decode(errors="surrogateescape"), True


def _take_plain(lines: list[str], number: int) -> tuple[list[int], list[Any]]:
    """Parse lines without quotes: each is a record."""
    try:
        rows: list[Any] = list(csv.reader(lines))
    except csv.Error:
        return _take_quoted(lines, number, is_last=True)[:2]
    numbers = list(range(number, number + len(lines)))
    if not all(rows):
        numbers = [place for place, row in zip(numbers, rows, strict=True) if row]
        rows = [row for row in rows if row]
    return numbers, rows


def _take_quoted(lines: list[str], number: int, is_last: bool) -> tuple[list[int], list[Any], list[str]]:
    """Parse lines that may hold quotes; the third result is a record that continues in the next block.

    After an unreadable record, parsing continues with the line after its first.
    """
    begin = 0  # of the current record
    reached = 0  # the last line yielded, plus one

    def feed() -> Iterator[str]:
        nonlocal reached
        for reached in range(begin + 1, len(lines) + 1):
            if reached - begin > RECORD_LINES_MAX:
                return
            yield lines[reached - 1]

    numbers: list[int] = []
    rows: list[Any] = []
    while begin < len(lines):
        try:
            for row in csv.reader(feed(), strict=True):
                if row:
                    numbers.append(number + begin)
                    rows.append(row)
                begin = reached
        except csv.Error as problem:
            is_open = reached == len(lines) and reached - begin < RECORD_LINES_MAX
            if is_open and not is_last and sum(map(len, lines[begin:])) <= RECORD_CHARACTERS_MAX:
                break
            numbers.append(number + begin)
            rows.append(Unreadable(_quoting_problem(problem)))
            begin += 1
    return numbers, rows, lines[begin:]


def _quoting_problem(problem: csv.Error) -> str:
    message = str(problem)
    if "unexpected end of data" in message:
        return (
            f"opens a quote that is not closed within {RECORD_LINES_MAX} lines and {RECORD_CHARACTERS_MAX} characters"
        )
    if "new-line" in message:
        return "has a carriage return that ends no line; end lines with LF or CRLF"
    return f"is not CSV: {message}"


def _without_damage(rows: list[Any]) -> list[Any]:
    return [row if isinstance(row, Unreadable) else _or_damage(row) for row in rows]


def _or_damage(row: list[str]) -> list[str] | Unreadable:
    if row[0].startswith(_TOO_LONG):
        return Unreadable(f"is longer than {BLOCK_BYTES} bytes")
    escape = _ESCAPED_BYTE.search("".join(row))
    return row if escape is None else Unreadable(f"is not UTF-8: it holds the byte 0x{ord(escape[0]) - 0xDC00:02X}")

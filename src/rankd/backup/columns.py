"""Rows of tables as columns: read from SQLite without holding up other threads, packed, and inserted again.

SQLite makes one JSON array of each column, and works without the interpreter meanwhile; a few thousand rows at a time
are decoded, so that no commit waits for long. Whole numbers are packed by planes: all lowest bytes, then all second
lowest ones, which compress well.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import apsw
import msgspec

from rankd.errors import ArchiveDamaged, LedgerDamaged

ROWS_READ_AT_ONCE = 4_096
_NUMBER_BYTES = 8
Columns = list[list[Any]]
PackedColumns = list[Any]  # per column: bytes where it has whole numbers only, else a list


class StoredTable(NamedTuple):
    """A table, and how its columns are packed."""

    name: str
    numbers: tuple[str, ...]  # columns of whole numbers, never null
    texts: tuple[str, ...] = ()  # of whatever JSON can say
    blobs: tuple[str, ...] = ()
    rising: str | None = None  # of the numbers: packed as differences

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, in the order in which they are packed."""
        return (*self.numbers, *self.texts, *self.blobs)

    @property
    def insert(self) -> str:
        """The statement that inserts a row."""
        places = ", ".join("?" * len(self.columns))
        return f"INSERT OR REPLACE INTO {self.name} ({', '.join(self.columns)}) VALUES ({places})"  # noqa: S608


EVENTS = StoredTable(
    "events", ("sequence", "context", "at", "player", "score", "tiebreak"), ("detail",), ("seal",), rising="at"
)
PLAYERS = StoredTable("players", ("number",), ("id",))
CONTEXTS = StoredTable("contexts", ("number",), ("context",))
METADATA = StoredTable("metadata", ("sequence", "checksum"), ("json",), rising="sequence")
ORIGINS = StoredTable("origins", ("first", "upto", "checksum"), ("address", "user_agent", "request_id"), rising="first")
REQUESTS = StoredTable(
    "requests", ("first", "upto", "at", "checksum"), ("sender", "key"), ("fingerprint", "answer"), rising="at"
)
PROFILES = StoredTable("profiles", ("player", "checksum"), ("name", "name_key", "avatar_url", "country", "attributes"))
FRIEND_LISTS = StoredTable("friend_lists", ("checksum",), ("player", "friends"))
REGISTRY_LOG = StoredTable("registry_log", ("change",), ("kind", "player"), rising="change")
REGISTRY_CHANGES = StoredTable("registry_changes", ("one", "count", "friends_bytes"))
SOURCES = StoredTable("sources", ("partition", "upto", "checksum"), ("source",))
CREDENTIALS = StoredTable(
    "credentials",
    ("created_at", "checksum"),
    ("id", "name", "scopes", "player", "expires_at", "revoked_at"),
    ("digest",),
)
SIGNING_KEYS = StoredTable("signing_keys", ("created_at", "checksum"), ("name",), ("secret",))
TABLES = {
    table.name: table
    for table in (
        EVENTS,
        PLAYERS,
        CONTEXTS,
        METADATA,
        ORIGINS,
        REQUESTS,
        PROFILES,
        FRIEND_LISTS,
        REGISTRY_LOG,
        REGISTRY_CHANGES,
        SOURCES,
        CREDENTIALS,
        SIGNING_KEYS,
    )
}


def read_columns(reader: apsw.Connection, table: StoredTable, where: str, values: Sequence[object]) -> Columns:
    """Return the columns of the rows that a FROM … ORDER BY clause names; `where` begins with the table's name.

    Rows must not change meanwhile: call it in a transaction.
    """
    columns: Columns = [[] for _ in table.columns]
    query = f"{_selected(table)} FROM {where} LIMIT ? OFFSET ?)"
    while True:
        read = len(columns[0])
        _extend(columns, table, reader.execute(query, (*values, ROWS_READ_AT_ONCE, read)).get)
        if len(columns[0]) - read < ROWS_READ_AT_ONCE:
            return columns


def read_span(reader: apsw.Connection, table: StoredTable, key: str, after: int, upto: int) -> Columns:
    """Return the columns of the rows whose key is above `after` and at most `upto`, in the key's order."""
    columns: Columns = [[] for _ in table.columns]
    keys = columns[table.columns.index(key)]
    query = f"{_selected(table)} FROM {table.name} WHERE {key} > ? AND {key} <= ? ORDER BY {key} LIMIT ?)"
    while True:
        read = len(keys)
        _extend(columns, table, reader.execute(query, (keys[-1] if keys else after, upto, ROWS_READ_AT_ONCE)).get)
        if len(keys) - read < ROWS_READ_AT_ONCE:
            return columns


def _selected(table: StoredTable) -> str:
    outer = ", ".join(
        f"json_group_array(iif({column} IS NULL, NULL, hex({column})))"
        if column in table.blobs
        else f"json_group_array({column})"
        for column in table.columns
    )
    inner = ", ".join(f"{table.name}.{column}" for column in table.columns)
    return f"SELECT {outer} FROM (SELECT {inner}"  # noqa: S608 - names of our own


def _extend(columns: Columns, table: StoredTable, texts: Any) -> None:
    for column, name, text in zip(columns, table.columns, texts, strict=True):
        column.extend(_decode(table, name, text))


def _decode(table: StoredTable, name: str, text: str) -> list[Any]:
    try:
        if name in table.numbers:
            return msgspec.json.decode(text, type=list[int])
        decoded: list[Any] = msgspec.json.decode(text)
        if name not in table.blobs:
            return decoded
        return [None if value is None else bytes.fromhex(value) for value in decoded]
    except (msgspec.DecodeError, ValueError):
        raise LedgerDamaged(
            f"the column {name} of {table.name} is damaged; run `rankd verify`, and restore a copy"
        ) from None


def pack(table: StoredTable, columns: Columns) -> PackedColumns:
    """Return columns as they are stored in a segment."""
    numbers = len(table.numbers)
    return [
        pack_numbers(column, is_rising=name == table.rising)
        for name, column in zip(table.numbers, columns[:numbers], strict=True)
    ] + columns[numbers:]


def unpack(table: StoredTable, packed: PackedColumns) -> Columns:
    """Return the columns of a segment; ArchiveDamaged when they are no such table."""
    numbers = len(table.numbers)
    columns = [
        unpack_numbers(column, is_rising=name == table.rising)
        for name, column in zip(table.numbers, packed[:numbers], strict=True)
    ] + packed[numbers:]
    if len(columns) != len(table.columns) or len({len(column) for column in columns}) != 1:
        raise ArchiveDamaged(f"the rows of {table.name} are incomplete")
    return columns


def pack_numbers(numbers: Sequence[int], *, is_rising: bool = False) -> bytes:
    """Return whole numbers as eight planes of bytes.

    >>> pack_numbers([1, 258])[:4]
    b'\\x01\\x02\\x00\\x01'
    """
    if is_rising and numbers:
        numbers = [numbers[0], *(after - before for before, after in pairwise(numbers))]
    column = array("q", numbers)
    if sys.byteorder == "big":
        column.byteswap()
    packed = column.tobytes()
    return b"".join(packed[plane::_NUMBER_BYTES] for plane in range(_NUMBER_BYTES))


def unpack_numbers(packed: bytes, *, is_rising: bool = False) -> list[int]:
    """Return the whole numbers of `pack_numbers`.

    >>> unpack_numbers(pack_numbers([5, 7, -2], is_rising=True), is_rising=True)
    [5, 7, -2]
    """
    count = len(packed) // _NUMBER_BYTES
    planes = bytearray(count * _NUMBER_BYTES)
    for plane in range(_NUMBER_BYTES):
        planes[plane::_NUMBER_BYTES] = packed[plane * count : (plane + 1) * count]
    column = array("q", bytes(planes))
    if sys.byteorder == "big":
        column.byteswap()
    return list(accumulate(column)) if is_rising else column.tolist()


def rows_of(columns: Columns) -> Iterator[tuple[Any, ...]]:
    """Return columns as rows."""
    return zip(*columns, strict=True)

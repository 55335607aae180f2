"""Rows as read from a file, before they are checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rankd._columns import distinct_rows, take

AttributeColumns = dict[str, list[str | int | None]]  # by name, each as long as the rows


class Unreadable(NamedTuple):
    """In place of a row that could not be parsed."""

    problem: str


class RowChunk(NamedTuple):
    """Consecutive rows, each with its line number."""

    numbers: list[int]
    rows: list[Any]
    size_bytes: int  # of the file's text


class UncheckedColumns(NamedTuple):
    """Rows as columns of the right types, otherwise unchecked; None in place of a column that no row has."""

    players: list[str]
    scores: list[int]
    tiebreaks: list[int | None] | None
    at: list[int | None] | None
    attributes: AttributeColumns | list[Mapping[str, object] | None] | None
    metadata: list[Mapping[str, object] | None] | None
    boards: list[str | None] | None


class RowReader(Protocol):
    """Reads one format; every call of `pieces` returns the same rows."""

    def pieces(self) -> Iterator[RowChunk]:
        """Return all rows from the beginning of the file."""
        ...

    def columns(self, rows: list[Any]) -> UncheckedColumns | None:
        """Return many rows as columns; None when one of them is bad."""
        ...

    def values(self, row: Any) -> Mapping[str, object]:
        """Return one row by field name; InvalidValue for a bad row."""
        ...

    def place(self, row: Any) -> str:
        """Return which event of its line a row is, as the beginning of a message; empty for the only one."""
        ...


def batches_of(pieces: Iterator[RowChunk], batch_events: int, batch_bytes: int) -> Iterator[RowChunk]:
    """Cut rows anew, so that each batch but the last has so many of them, good or bad.

    One has fewer where that many would take more than `batch_bytes` of the file: rows are held until they are checked,
    and a good one is short. The same file is always cut in the same places.
    """
    numbers: list[int] = []
    rows: list[Any] = []
    size_bytes = 0
    for piece in pieces:
        if rows and size_bytes + piece.size_bytes > batch_bytes:
            yield RowChunk(numbers, rows, size_bytes)
            numbers, rows, size_bytes = [], [], 0
        numbers += piece.numbers
        rows += piece.rows
        size_bytes += piece.size_bytes
        start = 0
        while len(rows) - start >= batch_events:
            end = start + batch_events
            yield RowChunk(numbers[start:end], rows[start:end], size_bytes)
            start = end
        if start:
            del numbers[:start], rows[:start]
            size_bytes = piece.size_bytes
    if rows:
        yield RowChunk(numbers, rows, size_bytes)


def attribute_rows(
    attributes: AttributeColumns | Sequence[Mapping[str, object] | None] | None,
) -> Sequence[Mapping[str, object] | None] | None:
    """Return attributes by row; rows with the same values share one mapping."""
    if not isinstance(attributes, dict):
        return attributes
    values, index = distinct_rows([*attributes.values()])
    return take([dict(zip(attributes, row, strict=True)) for row in values], index)


def instants(at: list[int | None] | None, reached_at: list[int | None] | None) -> list[int | None] | None:
    """Return the times of scores: `at`, or else the `reached_at` of an export."""
    if at is None or reached_at is None:
        return reached_at if at is None else at
    return [reached if instant is None else instant for instant, reached in zip(at, reached_at, strict=True)]

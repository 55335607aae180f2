"""Rows as a format's reader takes them from a file, before anybody has checked what they say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol


class Unreadable(NamedTuple):
    """In place of a row: the line could not be taken apart."""

    problem: str


class Piece(NamedTuple):
    """Some rows that follow each other, each with the number of its line."""

    numbers: list[int]
    rows: list[Any]
    size_bytes: int  # of what they were read from


class Unchecked(NamedTuple):
    """Rows as columns whose values have the right types and nothing else is known of; None: no row has one."""

    players: list[str]
    scores: list[int]
    tiebreaks: list[int | None] | None
    at: list[int | None] | None
    attributes: list[Mapping[str, object] | None] | None
    metadata: list[Mapping[str, object] | None] | None
    boards: list[str | None] | None


class Reader(Protocol):
    """One format: rows, and two ways to what they say. All of them give the same rows each time they are asked."""

    def pieces(self) -> Iterator[Piece]:
        """Return all rows from the beginning of the file."""
        ...

    def columns(self, rows: list[Any]) -> Unchecked | None:
        """Return many rows as columns, quickly; None when they are not all alike."""
        ...

    def values(self, row: Any) -> Mapping[str, object]:
        """Return one row by the names of its fields, or raise InvalidValue with what is wrong with it."""
        ...


def batches_of(pieces: Iterator[Piece], batch_events: int, batch_bytes: int) -> Iterator[Piece]:
    """Cut rows anew, so that each batch but the last has so many of them, good or bad.

    One has fewer where that many would take more than `batch_bytes` of the file: rows are held until they are checked,
    and a good one is short. The same file is always cut in the same places.
    """
    numbers: list[int] = []
    rows: list[Any] = []
    size_bytes = 0
    for piece in pieces:
        if rows and size_bytes + piece.size_bytes > batch_bytes:
            yield Piece(numbers, rows, size_bytes)
            numbers, rows, size_bytes = [], [], 0
        numbers += piece.numbers
        rows += piece.rows
        size_bytes += piece.size_bytes
        start = 0
        while len(rows) - start >= batch_events:
            end = start + batch_events
            yield Piece(numbers[start:end], rows[start:end], size_bytes)
            start = end
        if start:
            del numbers[:start], rows[:start]
            size_bytes = piece.size_bytes
    if rows:
        yield Piece(numbers, rows, size_bytes)


def instants(at: list[int | None] | None, reached_at: list[int | None] | None) -> list[int | None] | None:
    """Return when scores were reached: `at`, and where that is missing what an export calls `reached_at`."""
    if at is None or reached_at is None:
        return reached_at if at is None else at
    return [other if one is None else one for one, other in zip(at, reached_at, strict=True)]

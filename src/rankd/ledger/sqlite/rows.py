"""Converts between columns and rows of the `events` table."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby

import apsw

from rankd._columns import distinct, distinct_rows, row_columns, take
from rankd.errors import LedgerDamaged
from rankd.ledger.event import SEAL_BYTES, Detail, EventRun, decode_detail, encode_column, seal, sealed_at
from rankd.ledger.sqlite.statements import ROWS_PER_STATEMENT_MAX, statement

SqliteEventRow = tuple[int, int, int, int, int, str | None, bytes | None, str | None]
"""context, at, player, score, tiebreak, detail, seal, the player's id"""
_WHOLE_NUMBERS, _FIELDS = 5, 8  # of a row

_COLUMNS = 8
_INSERT = "INSERT INTO events (sequence, context, at, player, score, tiebreak, detail, seal) VALUES"


def joined(event_runs: Sequence[EventRun]) -> list[array[int]]:
    """Return the columns context, at, player, score and tiebreak of several runs."""
    first = event_runs[0]
    columns = [array("q", [first.context]) * len(first.score), first.at, first.player, first.score, first.tiebreak]
    if len(event_runs) > 1:
        columns = [column[:] for column in columns]
        for event_run in event_runs[1:]:
            columns[0].extend(array("q", [event_run.context]) * len(event_run))
            columns[1].extend(event_run.at)
            columns[2].extend(event_run.player)
            columns[3].extend(event_run.score)
            columns[4].extend(event_run.tiebreak)
    return columns


def encoded_details(event_runs: Sequence[EventRun]) -> list[bytes] | None:
    """Return the JSON of every event's detail, b"" for none; None when no event has any."""
    for event_run in event_runs:
        if event_run.detail is not None:
            break
    else:
        return None
    encoded: list[bytes] = []
    for event_run in event_runs:
        if event_run.detail is None:
            encoded.extend([b""] * len(event_run))
        else:
            encoded.extend(encode_column(event_run.detail))
    return encoded


def insert_rows(
    writer: apsw.Connection, first: int, columns: list[array[int]], *, details: list[bytes] | None, sealed: bytes
) -> None:
    """Insert the events of a commit, the last of them with the seal."""
    rows = len(columns[0])
    for start in range(0, rows, ROWS_PER_STATEMENT_MAX):
        some = slice(start, min(start + ROWS_PER_STATEMENT_MAX, rows))
        part = [column[some] for column in columns]
        seal_here = sealed if some.stop == rows else None
        values = values_of(first + start, part, None if details is None else details[some], seal_here)
        writer.execute(insert_of(some.stop - start), values)


@cache
def insert_of(rows: int) -> str:
    """Return the statement that inserts `rows` events."""
    return statement(_INSERT, _COLUMNS, rows)


def values_of(first: int, columns: list[array[int]], details: list[bytes] | None, sealed: bytes | None) -> list[object]:
    """Return the values of events row by row; the last row has the seal, if any."""
    rows = len(columns[0])
    values: list[object] = [None] * (_COLUMNS * rows)
    values[::_COLUMNS] = range(first, first + rows)
    for place, column in enumerate(columns, start=1):
        values[place::_COLUMNS] = column.tolist()  # a list, since a slice is filled from one
    if details is not None:
        values[len(columns) + 1 :: _COLUMNS] = texts_of(details)
    values[-1] = sealed
    return values


def texts_of(details: list[bytes]) -> list[str | None]:
    """Return encoded details as text, None for none."""
    encoded, index = distinct(details)
    return take([detail.decode() if detail else None for detail in encoded], index)


class RowColumns:
    """Consecutive rows of the `events` table with their players' ids, as columns."""

    def __init__(self, rows: Sequence[SqliteEventRow], first: int) -> None:
        """`first` is the sequence of the first row."""
        self.first = first
        *numbers, texts, self.seals, self.players = row_columns(list(rows), _WHOLE_NUMBERS, _FIELDS)
        self.numbers = [array("q", column) for column in numbers]  # context, at, player, score, tiebreak
        groups, self._group = distinct_rows([texts])
        self._details: list[str | None] = [text for (text,) in groups]  # each once

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.players)

    @property
    def contexts(self) -> array[int]:
        """The number of each event's context."""
        return self.numbers[0]

    def encoded(self) -> list[bytes]:
        """Return the JSON of each detail, b"" for none."""
        return take([detail.encode() if detail else b"" for detail in self._details], self._group)

    def details(self) -> list[Detail | None]:
        """Return each detail; those of equal texts are one object."""
        return take([decode_detail(detail) if detail else None for detail in self._details], self._group)


def check_seals(columns: RowColumns, before: bytes, contexts_of: Callable[[Iterable[int]], list[bytes]]) -> bytes:
    """Check the seals of whole commits, and return the last."""
    encoded = columns.encoded()
    start = 0
    for index in [index for index, written in enumerate(columns.seals) if written is not None]:
        commit = slice(start, index + 1)
        numbers = [column[commit] for column in columns.numbers]
        written = columns.seals[index]
        made = b""
        first = columns.first + start
        if len(written) == SEAL_BYTES:
            made = seal(before, sealed_at(written), first, contexts_of(numbers[0]), numbers, details=encoded[commit])
        if made != written:
            raise LedgerDamaged(
                f"events {first} to {columns.first + index} are not those that were written; "
                "restore a copy of the data folder"
            )
        before = written
        start = index + 1
    return before


def event_runs_of(columns: RowColumns) -> Iterator[EventRun]:
    """Group ordered rows into runs."""
    contexts, _, player, _, _ = columns.numbers
    details = columns.details()
    if None in columns.players and any(
        number and name is None for number, name in zip(player, columns.players, strict=True)
    ):
        raise LedgerDamaged(
            f"a player of the events from {columns.first} on is missing; restore a copy of the data folder"
        )
    start = 0
    for context, group in groupby(contexts):
        run = slice(start, start + sum(1 for _ in group))
        at, player, score, tiebreak = (column[run] for column in columns.numbers[1:])
        detail = details[run]
        yield EventRun(
            context,
            at,
            player,
            score,
            tiebreak,
            [player or "" for player in columns.players[run]],
            detail if any(detail) else None,
            columns.first + start,
        )
        start = run.stop

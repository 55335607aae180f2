"""Converts between columns and rows of the `events` table."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby

import apsw
import msgspec

from rankd._columns import distinct, distinct_rows, extent, take
from rankd.errors import LedgerDamaged
from rankd.ledger.event import SEAL_BYTES, Detail, EventRun, decode_detail, encode_column, seal, sealed_at
from rankd.ledger.sqlite.statements import ROWS_PER_STATEMENT_MAX, statement

_NUMBERS = 5  # columns of whole numbers
# One row, and one step of the statement, for all events: the driver takes the GIL back after each step.
_SELECT = """
SELECT json_group_array(context), json_group_array(at), json_group_array(player), json_group_array(score),
  json_group_array(tiebreak), json_group_array(detail), json_group_array(id),
  json_group_array(json_array(sequence - :first, hex(seal))) FILTER (WHERE seal IS NOT NULL)
FROM (
  SELECT e.sequence, e.context, e.at, e.player, e.score, e.tiebreak, e.detail, e.seal, p.id
  FROM events e LEFT JOIN players p ON p.number = e.player
  WHERE e.sequence BETWEEN :first AND :last ORDER BY e.sequence
)
"""
_decode_numbers = msgspec.json.Decoder(list[int]).decode
_decode_texts = msgspec.json.Decoder(list[str | None]).decode
_decode_seals = msgspec.json.Decoder(list[tuple[int, str]]).decode
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

    def __init__(self, reader: apsw.Connection, first: int, last: int) -> None:
        """Read the events with these sequences, both inclusive; LedgerDamaged where one is missing or not one."""
        self.first = first
        selected: tuple[str, ...] = reader.execute(_SELECT, {"first": first, "last": last}).get
        try:
            # context, at, player, score, tiebreak
            self.numbers = [array("q", _decode_numbers(column)) for column in selected[:_NUMBERS]]
            texts, self.players = map(_decode_texts, selected[_NUMBERS:-1])
            self.seals = [(index, bytes.fromhex(sealed)) for index, sealed in _decode_seals(selected[-1])]
        except msgspec.DecodeError as problem:
            raise LedgerDamaged(
                f"events from {first} on are damaged ({problem}); restore a copy of the data folder"
            ) from None
        if len(self.players) != last - first + 1:
            raise LedgerDamaged(f"events from {first} to {last} are missing; restore a copy of the data folder")
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
    for index, written in columns.seals:
        commit = slice(start, index + 1)
        numbers = [column[commit] for column in columns.numbers]
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
    if None in columns.players and any(  # events about no player have number 0
        number and name is None for number, name in zip(player, columns.players, strict=True)
    ):
        raise LedgerDamaged(
            f"a player of the events from {columns.first} on is missing; restore a copy of the data folder"
        )
    players = [name or "" for name in columns.players]
    start = 0
    for context, count in _repeats(contexts):
        run = slice(start, start + count)
        at, player, score, tiebreak = (column[run] for column in columns.numbers[1:])
        detail = details[run]
        yield EventRun(
            context,
            at,
            player,
            score,
            tiebreak,
            players[run],
            detail if any(detail) else None,
            columns.first + start,
        )
        start = run.stop


def _repeats(contexts: array[int]) -> Iterator[tuple[int, int]]:
    """Yield each number and how often it comes in a row."""
    least, greatest = extent(contexts)
    if least == greatest:
        yield least, len(contexts)
        return
    for context, group in groupby(contexts):
        yield context, sum(1 for _ in group)

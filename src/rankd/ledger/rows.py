"""Between columns and rows of the `events` table, both ways."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, count, groupby, repeat
from operator import itemgetter

import apsw

from rankd.errors import LedgerDamaged
from rankd.ledger.event import SEAL_BYTES, Stretch, decode_detail, encode_detail, seal, sealed_at
from rankd.ledger.statements import ROWS_PER_STATEMENT_MAX, statement

Row = tuple[int, int, int, int, int, str | None, bytes | None, str | None]
"""context, at, player, score, tiebreak, detail, seal, the player's id"""

_COLUMNS = 8
_INSERT = "INSERT INTO events (sequence, context, at, player, score, tiebreak, detail, seal) VALUES"


def joined(stretches: Sequence[Stretch]) -> list[array[int]]:
    """Return the columns context, at, player, score and tiebreak of several stretches."""
    first = stretches[0]
    columns = [array("q", [first.context]) * len(first), first.at, first.player, first.score, first.tiebreak]
    if len(stretches) > 1:
        columns = [column[:] for column in columns]
        for stretch in stretches[1:]:
            columns[0].extend(array("q", [stretch.context]) * len(stretch))
            columns[1].extend(stretch.at)
            columns[2].extend(stretch.player)
            columns[3].extend(stretch.score)
            columns[4].extend(stretch.tiebreak)
    return columns


def encoded_details(stretches: Sequence[Stretch]) -> list[bytes] | None:
    """Return the JSON of every event's detail, b"" for none; None when no event has any."""
    for stretch in stretches:
        if stretch.detail is not None:
            break
    else:
        return None
    encoded: list[bytes] = []
    for stretch in stretches:
        if stretch.detail is None:
            encoded.extend([b""] * len(stretch))
        else:
            encoded.extend(b"" if detail is None else encode_detail(detail) for detail in stretch.detail)
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
    """Return the statement that inserts so many events."""
    return statement(_INSERT, _COLUMNS, rows)


def values_of(first: int, columns: list[array[int]], details: list[bytes] | None, sealed: bytes | None) -> list[object]:
    """Return the values of events row by row; the last one has the seal, if any."""
    texts = repeat(None) if details is None else [detail.decode() if detail else None for detail in details]
    values: list[object] = list(chain.from_iterable(zip(count(first), *columns, texts, repeat(None))))
    values[-1] = sealed
    return values


def check_seals(
    rows: Sequence[Row], after: int, before: bytes, contexts_of: Callable[[Iterable[int]], list[bytes]]
) -> bytes:
    """Check every seal of some whole commits, and return the last."""
    sealed_rows = [index for index, row in enumerate(rows) if row[6] is not None]
    start = 0
    for index in sealed_rows:
        commit = rows[start : index + 1]
        columns = [array("q", column) for column in list(zip(*commit, strict=True))[:5]]
        details = [detail.encode() if detail else b"" for detail in map(itemgetter(5), commit)]
        written = commit[-1][6]
        made = b""
        if written is not None and len(written) == SEAL_BYTES:
            contexts = contexts_of(columns[0])
            made = seal(before, sealed_at(written), after + start + 1, contexts, columns, details=details)
        if written is None or made != written:
            raise LedgerDamaged(
                f"events {after + start + 1} to {after + index + 1} are not those that were written; "
                "restore a copy of the data folder"
            )
        before = written
        start = index + 1
    return before


def stretches_of(rows: Sequence[Row], first: int) -> Iterator[Stretch]:
    """Make stretches of rows in order."""
    for context, group in groupby(rows, itemgetter(0)):
        run = list(group)
        _, at, player, score, tiebreak, detail, _, players = zip(*run, strict=True)
        if None in players and any(number and name is None for number, name in zip(player, players, strict=True)):
            raise LedgerDamaged(f"a player of the events from {first} on is missing; restore a copy of the data folder")
        yield Stretch(
            context,
            array("q", at),
            array("q", player),
            array("q", score),
            array("q", tiebreak),
            [player or "" for player in players],
            [decode_detail(one) if one else None for one in detail] if any(detail) else None,
            first,
        )
        first += len(run)

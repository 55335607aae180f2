"""Inserts many rows with one statement: the driver releases the GIL around each statement.

Beside a busy event loop, getting it back takes longer than the work: a commit of sixty rows should wait a few times,
not sixty.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain

import apsw

ROWS_PER_STATEMENT_MAX = 100


@cache
def statement(head: str, columns: int, rows: int, tail: str = "") -> str:
    """Return a statement with `rows` rows of values.

    >>> statement("INSERT INTO players VALUES", 2, 3, " RETURNING id")
    'INSERT INTO players VALUES (?, ?), (?, ?), (?, ?) RETURNING id'
    """
    row = f"({', '.join('?' * columns)})"
    return f"{head} {', '.join([row] * rows)}{tail}"


def insert(
    writer: apsw.Connection, head: str, rows: Sequence[tuple[object, ...]], tail: str = "", *tail_values: object
) -> int:
    """Insert rows, all of one length; return how many were inserted or updated."""
    changed = 0
    for start in range(0, len(rows), ROWS_PER_STATEMENT_MAX):
        some = rows[start : start + ROWS_PER_STATEMENT_MAX]
        writer.execute(statement(head, len(some[0]), len(some), tail), [*chain.from_iterable(some), *tail_values])
        changed += writer.changes()
    return changed

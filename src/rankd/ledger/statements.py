"""Many rows by one statement: the driver lets other threads run around each one, and waits for them to let it back.

Beside an event loop that is busy, such a wait is longer than the work: a commit of sixty rows should wait a few times,
not sixty.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain

import apsw

ROWS_PER_STATEMENT_MAX = 100


@cache
def statement(head: str, columns: int, rows: int) -> str:
    """Return a statement that ends in so many rows of values.

    >>> statement("INSERT INTO players VALUES", 2, 3)
    'INSERT INTO players VALUES (?, ?), (?, ?), (?, ?)'
    """
    row = f"({', '.join('?' * columns)})"
    return f"{head} {', '.join([row] * rows)}"


def insert(writer: apsw.Connection, head: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert rows, all of one length."""
    for start in range(0, len(rows), ROWS_PER_STATEMENT_MAX):
        some = rows[start : start + ROWS_PER_STATEMENT_MAX]
        writer.execute(statement(head, len(some[0]), len(some)), list(chain.from_iterable(some)))

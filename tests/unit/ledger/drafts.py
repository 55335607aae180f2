"""A ledger in a folder, and drafts of events for it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw

from rankd.ledger.database import FILE_NAME, Database
from rankd.ledger.event import Accepted, Context, Detail, Kind, Stretch, control_run
from rankd.ledger.port import Draft, KeyedRequest
from rankd.ledger.sqlite import PARTITION, SqliteLedger

AT = 1_777_896_000_000
ARCADE = Context(Kind.SCORE, "arcade", "local", {"arcade": Accepted(1)})
ALL = 1_000_000  # more events than a test writes

Event = tuple[str, int]


@contextmanager
def opened(folder: Path) -> Iterator[SqliteLedger]:
    """Open the ledger of a folder, and close it again."""
    file = Database(folder)
    try:
        ledger = SqliteLedger(folder, file)
        try:
            yield ledger
        finally:
            ledger.close()
    finally:
        file.close()


def scores(
    ledger: SqliteLedger,
    *events: Event,
    context: Context = ARCADE,
    at: int = AT,
    tiebreak: int = 0,
    detail: list[Detail | None] | None = None,
) -> Stretch:
    """Make a stretch of (player, score)."""
    return Stretch(
        ledger.number_context(context),
        array("q", [at]) * len(events),
        array("q", bytes(8 * len(events))),
        array("q", [score for _, score in events]),
        array("q", [tiebreak]) * len(events),
        [player for player, _ in events],
        detail,
    )


def about_no_player(ledger: SqliteLedger, kind: Kind, version: int = 1, detail: Detail | None = None) -> Stretch:
    """Make a stretch of one event that is about a board."""
    context = ledger.number_context(Context(kind, "arcade", "admin", {"arcade": Accepted(version)}))
    return control_run(context, AT, detail)


def draft(
    *stretches: Stretch,
    metadata: Mapping[int, str] | None = None,
    requests: Sequence[KeyedRequest] = (),
    at: int = AT,
) -> Draft:
    """Make a draft of stretches."""
    return Draft(list(stretches), at, 0, dict(metadata or {}), requests)


def end_of(ledger: SqliteLedger) -> int:
    """Return the sequence of the last event."""
    return ledger.heads().sequences[PARTITION]


def everything(ledger: SqliteLedger, after: int = 0) -> list[Stretch]:
    """Read all stretches behind a position."""
    return [part.stretch for part in ledger.read([after], ALL)]


def tamper(folder: Path, statement: str, *values: object) -> int:
    """Change the file behind the ledger's back, and return how many rows were changed."""
    connection = apsw.Connection(str(folder / FILE_NAME))
    connection.execute(statement, tuple(values))
    changed = connection.changes()
    connection.close()
    return changed


def ask(folder: Path, query: str) -> list[tuple[object, ...]]:
    """Ask the file something, as a person with an SQLite shell would."""
    connection = apsw.Connection(str(folder / FILE_NAME))
    rows = connection.execute(query).fetchall()
    connection.close()
    return rows

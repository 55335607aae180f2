"""A ledger in a folder, and drafts of events for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
from tests.contract.ledger_drafts import AT

from rankd.ledger.event import AcceptanceContext, Context, Detail, EventKind, EventRun, control_run
from rankd.ledger.port import Draft, KeyedRequest
from rankd.ledger.sqlite.database import FILE_NAME, Database
from rankd.ledger.sqlite.ledger import PARTITION, SqliteLedger

ALL = 1_000_000  # more events than a test writes


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


def about_no_player(ledger: SqliteLedger, kind: EventKind, version: int = 1, detail: Detail | None = None) -> EventRun:
    """Make a run of one event that is about a board."""
    context = ledger.number_context(Context(kind, "arcade", "admin", {"arcade": AcceptanceContext(version)}))
    return control_run(context, AT, detail)


def draft(
    *event_runs: EventRun,
    metadata: Mapping[int, str] | None = None,
    requests: Sequence[KeyedRequest] = (),
    at: int = AT,
) -> Draft:
    """Make a draft of runs."""
    return Draft(list(event_runs), at, 0, dict(metadata or {}), requests)


def end_of(ledger: SqliteLedger) -> int:
    """Return the sequence of the last event."""
    return ledger.heads().sequences[PARTITION]


def everything(ledger: SqliteLedger, after: int = 0) -> list[EventRun]:
    """Read all runs behind a position."""
    return [part.event_run for part in ledger.read([after], ALL)]


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

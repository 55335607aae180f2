"""Ledgers on PostgreSQL with connections of their own, and transactions that are left open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from rankd.ledger.port import Draft
from rankd.ledger.postgres import PostgresLedger
from rankd.ledger.postgres.appending import OrderedDraft


@contextmanager
def opened(url: str, **settings: float) -> Iterator[PostgresLedger]:
    """Open a ledger with connections of its own, and close it again."""
    ledger = PostgresLedger(url, **settings)  # type: ignore[arg-type]
    try:
        yield ledger
    finally:
        ledger.close()


def waiting_for_locks(url: str) -> int:
    """Return how many sessions of a database wait for a lock."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def uncommitted(ledger: PostgresLedger, draft: Draft, taken_back: bool = False) -> Iterator[None]:
    """Have a draft numbered and written, and commit it when the block ends: the transaction that commits last."""
    ledger.prepare(draft.at)
    statement, arguments = OrderedDraft(draft, ledger.partitions).call()
    with ledger.connections.using() as connection, connection.transaction():
        connection.execute(statement, arguments)
        yield
        if taken_back:
            raise psycopg.Rollback

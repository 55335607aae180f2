"""Where the ledger of a contract test is: a folder with SQLite, a database of PostgreSQL, or topics of Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

import apsw
import psycopg
import pytest

from rankd.ledger.port import Ledger
from rankd.ledger.postgres import PostgresLedger, migrate
from rankd.ledger.sqlite.database import FILE_NAME, Database, ReadOnlyDatabase
from rankd.ledger.sqlite.ledger import SqliteLedger
from rankd.ledger.sqlite.replica import SqliteReplicaLedger

# A context is the writer's until something is appended under its number; `read` has the replica read it.
OF_THE_WRITER = {"append", "append_control", "number_context", "context", "forget_requests", "capabilities"}


_REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse()
"""


class Storage(Protocol):
    """What one adapter stores its ledger in."""

    can_be_changed: ClassVar[bool]  # by SQL, behind the ledger's back

    def refuse(self) -> None:
        """Have every event refused that is appended."""
        ...

    def allow(self) -> None:
        """End that."""
        ...

    def open(self) -> tuple[Ledger, Callable[[], None]]:
        """Open the ledger; return it and what closes it."""
        ...

    def execute(self, statement: str) -> None:
        """Change what is stored behind the ledger's back."""
        ...


class SqliteStorage:
    """A folder."""

    can_be_changed: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> tuple[Ledger, Callable[[], None]]:
        with ExitStack() as opening:
            database = Database(self._folder)
            opening.callback(database.close)
            ledger = SqliteLedger(self._folder, database)
            opening.callback(ledger.close)
            return ledger, opening.pop_all().close

    def refuse(self) -> None:
        self.execute("CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'full'); END")

    def allow(self) -> None:
        self.execute("DROP TRIGGER full")

    def execute(self, statement: str) -> None:
        connection = apsw.Connection(str(self._folder / FILE_NAME))
        try:
            connection.execute(statement)
        finally:
            connection.close()


class ReadBeside:
    """A ledger that is written here, and read as a process beside the writer reads it."""

    def __init__(self, writer: SqliteLedger, replica: SqliteReplicaLedger) -> None:
        self._writer, self._replica = writer, replica

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer if name in OF_THE_WRITER else self._replica, name)


class SqliteReplicaStorage(SqliteStorage):
    """A folder whose ledger is read through a replica."""

    def open(self) -> tuple[Ledger, Callable[[], None]]:
        with ExitStack() as opening:
            writer, close = super().open()
            opening.callback(close)
            database = ReadOnlyDatabase(self._folder)
            database.open()
            opening.callback(database.close)
            replica = SqliteReplicaLedger(database, lambda _timeout_s: None)
            beside: Any = ReadBeside(cast(SqliteLedger, writer), replica)
            return beside, opening.pop_all().close


class PostgresStorage:
    """A database."""

    can_be_changed: ClassVar[bool] = True

    def __init__(self, url: str, partitions: int) -> None:
        migrate(url, partitions)
        self._url = url

    def open(self) -> tuple[Ledger, Callable[[], None]]:
        ledger = PostgresLedger(self._url)
        return ledger, ledger.close

    def refuse(self) -> None:
        self.execute(_REFUSE)

    def allow(self) -> None:
        self.execute("DROP TRIGGER full_disk ON events; DROP FUNCTION refuse")

    def execute(self, statement: str) -> None:
        with psycopg.connect(self._url, autocommit=True, options="-c search_path=rankd") as connection:
            connection.execute(statement.encode())


class LedgerPlace:
    """Opens the ledger of a test, in one place at a time."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._close: Callable[[], None] = lambda: None

    def open(self) -> Ledger:
        """Open the ledger; whoever had it open before has it no longer."""
        self.close()
        ledger, self._close = self._storage.open()
        return ledger

    def now_and_reopened(self, ledger: Ledger) -> Iterator[Ledger]:
        """Go through the ledger as it is open, and as the next one has it who opens it."""
        yield ledger
        yield self.open()

    def close(self) -> None:
        close, self._close = self._close, lambda: None
        close()

    def execute(self, statement: str) -> None:
        """Change what is stored behind the ledger's back; adapters with tables have some of the same names."""
        if not self._storage.can_be_changed:
            pytest.skip("what this ledger stores cannot be changed behind its back")
        self._storage.execute(statement)

    @contextmanager
    def refusing_events(self) -> Iterator[None]:
        """Let every append of events fail for a while."""
        self._storage.refuse()
        try:
            yield
        finally:
            self._storage.allow()

"""Moves an embedded installation into shared stores: every event in order, then profiles, friends and keys.

The folder is not changed, and must not be in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec
import psycopg

from rankd.clock import Clock, SystemClock
from rankd.folder import FolderLock
from rankd.ledger.port import SharedLedger
from rankd.ledger.postgres.connections import Connections
from rankd.ledger.sqlite.database import Database
from rankd.ledger.sqlite.ledger import SqliteLedger
from rankd.operations.move_events import LedgerMove, Progress
from rankd.registry.postgres.registry import PostgresRegistry
from rankd.registry.sqlite.credentials_file import FILE_NAME as CREDENTIALS_FILE
from rankd.registry.sqlite.registry import SqliteRegistry

PLAYERS_AT_ONCE = 5_000
ALL_FRIENDS_BYTES = 2**62  # stored lists are moved whatever the target's limit is


class MoveReport(msgspec.Struct, frozen=True):
    """The result of a move."""

    events: int
    players: int  # with a profile or friends
    keys: int  # API keys and signing keys


class FolderMove:
    """Moves one folder into a shared ledger and its registry; used by one thread."""

    def __init__(
        self, folder: Path, ledger: SharedLedger, progress: Progress | None = None, clock: Clock | None = None
    ) -> None:
        """`ledger` is migrated, and empty or filled by an earlier move of the same folder."""
        self._folder = folder
        self._ledger = ledger
        self._progress = progress
        self._clock = clock or SystemClock()

    def run(self, registry_url: str) -> MoveReport:
        """Move everything."""
        lock = FolderLock(self._folder)
        try:
            database = Database(self._folder, None)
            try:
                source = SqliteLedger(self._folder, database)
                events = LedgerMove(source, self._ledger, self._clock, self._progress).run()
                players = self._move_players(database, source, registry_url)
                source.close()
            finally:
                database.close()
            return MoveReport(events, players, self._move_keys(registry_url))
        finally:
            lock.release()

    # Players and keys

    def _move_players(self, database: Database, ledger: SqliteLedger, registry_url: str) -> int:
        source = SqliteRegistry(database, ledger.players, PLAYERS_AT_ONCE, lambda _changes: None)
        target = PostgresRegistry(registry_url, 1, friends_bytes_max=ALL_FRIENDS_BYTES)
        count = 0
        try:
            for players in _in_parts(database, "SELECT id FROM players ORDER BY number"):
                target.meet(players)
            for players in _in_parts(database, "SELECT id FROM profiles JOIN players ON number = player"):
                for profile in source.profiles(players).values():
                    target.set_profile(profile)
                    count += 1
            for players in _in_parts(database, "SELECT player FROM friend_lists"):
                for player in players:
                    target.set_friends(player, source.friends(player))
                    count += 1
        finally:
            target.close()
        return count

    def _move_keys(self, registry_url: str) -> int:
        file = self._folder / CREDENTIALS_FILE
        if not file.exists():
            return 0
        source = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        connections = Connections(registry_url, 1)
        try:
            with connections.using() as connection, connection.transaction():
                keys = _copy_keys(source, connection)
                connection.execute("UPDATE credentials_version SET version = gen_random_uuid()")
                return keys
        finally:
            connections.close()
            source.close()


def _in_parts(database: Database, statement: str) -> Iterator[list[str]]:
    with database.reading() as reader:
        part: list[str] = []
        for (player,) in reader.execute(statement):
            part.append(str(player))
            if len(part) == PLAYERS_AT_ONCE:
                yield part
                part = []
    if part:
        yield part


def _copy_keys(source: apsw.Connection, target: psycopg.Connection[tuple[object, ...]]) -> int:
    """Copy API keys, as digests, and signing keys; existing ones stay."""
    count = 0
    columns = {
        "credentials": "id, name, digest, scopes, player, created_at, expires_at, revoked_at",
        "signing_keys": "name, secret, created_at",
    }
    for table, names in columns.items():
        values = ", ".join(["%s"] * len(names.split(",")))
        for row in source.execute(f"SELECT {names} FROM {table}"):  # noqa: S608 - names of our own
            statement = f"INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT DO NOTHING"  # noqa: S608
            count += target.execute(statement, row).rowcount
    return count

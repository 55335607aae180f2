"""Writes the rows of segments into the files of a folder that nobody serves yet.

Indexes by id are written with the players and profiles; the others follow when the folder is opened.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from rankd.backup import columns
from rankd.backup.columns import Columns, StoredTable
from rankd.backup.segment import Segment
from rankd.errors import ArchiveDamaged
from rankd.ledger.sqlite.database import Database, Transaction
from rankd.registry.sqlite.credentials_file import open_file, translated

_ADDED = (columns.CONTEXTS, columns.PLAYERS, columns.EVENTS, columns.METADATA, columns.ORIGINS, columns.REQUESTS)
_REPLACED = (columns.SOURCES, columns.REGISTRY_CHANGES)
_CREDENTIALS = (columns.CREDENTIALS, columns.SIGNING_KEYS)
_FORGET = {
    "profile": (
        "DELETE FROM profile_ids WHERE number = ?",
        "DELETE FROM profiles WHERE player = ?",
        "DELETE FROM registry_log WHERE kind = 'profile' AND player = ?",
    ),
    "friends": (
        "DELETE FROM friend_lists WHERE player = ?",
        "DELETE FROM registry_log WHERE kind = 'friends' AND player = ?",
    ),
}
_INDEX_PROFILES = (
    "INSERT OR REPLACE INTO profile_ids (id, number)"
    " SELECT players.id, players.number FROM registry_log JOIN players ON players.number = registry_log.player"
    " WHERE registry_log.kind = 'profile' AND registry_log.change > ? AND registry_log.change <= ?"
)


class SegmentWriter:
    """Writes segments into a folder; used by one thread.

    Segments up to a complete one share a transaction: what is committed is a ledger as it was at one moment.
    """

    def __init__(self, folder: Path, database: Database) -> None:
        """Write into the folder's database, and its file of credentials."""
        self._folder = folder
        self._database = database
        self._transaction: Transaction | None = None
        self._writer: apsw.Connection

    def write(self, segment: Segment) -> None:
        """Write a segment that follows everything written before."""
        if self._transaction is None:
            transaction = self._database.writing()
            self._writer = transaction.__enter__()
            self._transaction = transaction
            _set_triggers(self._writer, False)  # the log is copied as it is
        try:
            self._write(self._writer, segment)
        except BaseException:
            self.abandon()
            raise
        if segment.header.is_complete:
            transaction, self._transaction = self._transaction, None
            _set_triggers(self._writer, True)
            transaction.__exit__(None, None, None)
            self._write_credentials(segment.tables)

    def abandon(self) -> None:
        """Undo what was written behind the last complete segment."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            _set_triggers(self._writer, True)
            with suppress(_Abandoned):
                transaction.__exit__(_Abandoned, _Abandoned(), None)

    def _write(self, writer: apsw.Connection, segment: Segment) -> None:
        header, tables = segment.header, segment.tables
        if header.after.sequence == 0:
            writer.execute("UPDATE ledger_identity SET identity = ?", (header.ledger,))
        for table in _ADDED:
            _insert(writer, table, tables)
        log = tables.get(columns.REGISTRY_LOG.name)
        if log is not None:
            _forget(writer, log)
            for table in (columns.REGISTRY_LOG, columns.PROFILES, columns.FRIEND_LISTS):
                _insert(writer, table, tables)
        if header.is_complete:
            for table in _REPLACED:
                writer.execute(f"DELETE FROM {table.name}")  # noqa: S608 - a name of our own
                _insert(writer, table, tables)
        _index_profiles(writer, tables)

    def _write_credentials(self, tables: dict[str, Columns]) -> None:
        """Replace all credentials: a segment has them whole, or not at all."""
        if not any(table.name in tables for table in _CREDENTIALS):
            return
        connection = open_file(self._folder)
        try:
            with translated(), connection as writer:
                for table in _CREDENTIALS:
                    writer.execute(f"DELETE FROM {table.name}")  # noqa: S608 - a name of our own
                    _insert(writer, table, tables)
        finally:
            connection.close()


class _Abandoned(Exception):
    """Ends a transaction without a commit."""


def check_end(database: Database, segment: Segment) -> None:
    """Raise ArchiveDamaged where the folder does not end as the last segment says."""
    upto = segment.header.upto
    with database.reading() as reader:
        row: Any = reader.execute("SELECT sequence, seal FROM events ORDER BY sequence DESC LIMIT 1").get or (0, b"")
        events: int = reader.execute("SELECT count(*) FROM events").get or 0
        players: int = reader.execute("SELECT count(*) FROM players").get or 0
    sequence, sealed = row
    if (sequence, sealed.hex()) != (upto.sequence, upto.seal) or events != sequence or players != upto.players:
        raise ArchiveDamaged(
            f"what was restored ends at event {sequence} with {events} events, and the archive at {upto.sequence}"
        )


def _insert(writer: apsw.Connection, table: StoredTable, tables: dict[str, Columns]) -> None:
    stored = tables.get(table.name)
    if stored is not None:
        writer.executemany(table.insert, columns.rows_of(stored))


def _forget(writer: apsw.Connection, log: Columns) -> None:
    """Delete the profiles and lists that a segment has again, or that are gone."""
    by_kind: dict[str, list[tuple[object]]] = {"profile": [], "friends": []}
    for _, kind, player in columns.rows_of(log):
        by_kind[kind].append((player,))
    for kind, players in by_kind.items():
        for statement in _FORGET[kind]:
            writer.executemany(statement, players)


def _index_profiles(writer: apsw.Connection, tables: dict[str, Columns]) -> None:
    """Index profiles by id: a player may come in a segment before or behind that of the profile."""
    log = tables.get(columns.REGISTRY_LOG.name)
    if log is not None:
        changes = log[0]
        writer.execute(_INDEX_PROFILES, (min(changes) - 1, max(changes)))
    players = tables.get(columns.PLAYERS.name)
    if players is not None:
        writer.execute(
            "INSERT OR REPLACE INTO profile_ids (id, number) SELECT players.id, players.number FROM profiles"
            " JOIN players ON players.number = profiles.player WHERE profiles.player >= ? AND profiles.player <= ?",
            (min(players[0]), max(players[0])),
        )


def _set_triggers(writer: apsw.Connection, is_on: bool) -> None:
    writer.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(is_on))

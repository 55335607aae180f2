"""Reads what a ledger has that its archive lacks, one segment at a time, beside commits.

Events, players and contexts are only added, so they are found behind the numbers that were copied. Profiles and lists
of friends are found by the registry's log, requests by their time. A segment that reaches the end of all of them is
read in one transaction, with everything else there is: a folder restored up to it is that of one moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from rankd.backup import columns
from rankd.backup.columns import Columns, read_columns, read_span
from rankd.backup.segment import LedgerCursor, digest_of
from rankd.errors import LedgerDamaged
from rankd.ledger.event import SEAL_BYTES, sealed_at
from rankd.ledger.sqlite.database import ReadOnlyDatabase
from rankd.registry.sqlite.credentials_file import FILE_NAME as CREDENTIALS_FILE
from rankd.registry.sqlite.credentials_file import open_file, translated

SEGMENT_ROWS_MAX = 65_536  # events, players or requests of a segment; a larger commit is not cut
SEGMENT_CHANGES_MAX = 4_096  # of the registry: a list of friends may have kilobytes
ANSWERS_AFTER_MS = 10_000  # answers of requests that old may be written after a restart
UNANSWERED_MAX = 65_536  # requests that are read again for their answers
_HEAD = "SELECT sequence, seal FROM events ORDER BY sequence DESC LIMIT 1"
_LAST_NUMBERS = """
SELECT
  (SELECT coalesce(max(number), 0) FROM players),
  (SELECT coalesce(max(number), 0) FROM contexts),
  (SELECT coalesce(max(change), 0) FROM registry_log)
"""
_NTH_CHANGE = "SELECT change FROM registry_log WHERE change > ? ORDER BY change LIMIT 1 OFFSET ?"
_NTH_REQUEST = "SELECT at FROM requests WHERE at >= ? ORDER BY at LIMIT 1 OFFSET ?"
_END_OF_COMMIT = "SELECT min(sequence) FROM events WHERE sequence >= ? AND seal IS NOT NULL"
_OF_CHANGES = (
    "registry_log JOIN {0} ON registry_log.kind = '{1}' AND {0}.player = registry_log.player"
    " WHERE registry_log.change > ? AND registry_log.change <= ? ORDER BY registry_log.change"
)
_CHANGE = "SELECT kind || ' ' || player FROM registry_log WHERE change = ?"
Tables = dict[str, Columns]


class LedgerPart(NamedTuple):
    """What was read for a segment."""

    tables: Tables
    upto: LedgerCursor
    is_complete: bool
    at: int  # the ledger's time at the last commit
    is_new: bool  # whether it holds anything that the archive lacks
    requests_at: int  # as upto.requests_at, for as long as this process lives
    version: int | None  # of the credentials


class SegmentReader:
    """Reads one ledger for its archive; used by one thread."""

    def __init__(self, folder: Path, database: ReadOnlyDatabase) -> None:
        """`database` is the folder's; it may be written meanwhile."""
        self._folder = folder
        self._database = database
        self._credentials: apsw.Connection | None = None
        self._version: int | None = None  # SQLite's data_version of the credentials that were sent; None: none were
        self._sources: Columns = []
        self._requests_at = 0
        self._unanswered: set[tuple[str, str]] = set()  # requests that were sent without an answer
        self._is_first = True  # whether it is not known which those are

    def close(self) -> None:
        """Close what was opened here."""
        if self._credentials is not None:
            self._credentials.close()
            self._credentials = None

    def identity(self) -> str:
        """Return whose copies these are."""
        with self._database.reading() as reader:
            identity: str | None = reader.execute("SELECT identity FROM ledger_identity").get
        if not identity:
            raise LedgerDamaged("the identity of the ledger is missing; restore a copy of the data folder")
        return identity

    def contains(self, cursor: LedgerCursor) -> bool:
        """Return whether the ledger has everything up to a cursor, and nothing else in its place."""
        with self._database.reading() as reader:
            players, contexts, changes = _last_numbers(reader)
            if players < cursor.players or contexts < cursor.contexts or changes < cursor.changes:
                return False
            here = _digests(reader, cursor)
        # The log has no row of a change that was replaced by a later one.
        return here in ((cursor.seal, cursor.last_player, cursor.last_change), (cursor.seal, cursor.last_player, ""))

    def behind(self, after: LedgerCursor) -> int:
        """Return how many events and changes of the registry are not copied."""
        with self._database.reading() as reader:
            sequence: int = reader.execute("SELECT coalesce(max(sequence), 0) FROM events").get or 0
            changes: int = reader.execute("SELECT coalesce(max(change), 0) FROM registry_log").get or 0
        return max(0, sequence - after.sequence) + max(0, changes - after.changes)

    def restart(self, after: LedgerCursor) -> None:
        """Forget what was sent before: the archive ends at `after`."""
        self._version, self._sources, self._unanswered, self._is_first = None, [], set(), True
        self._requests_at = max(0, after.requests_at - ANSWERS_AFTER_MS)

    def read(self, after: LedgerCursor) -> LedgerPart:
        """Read what comes after a cursor: as much as a segment may hold."""
        with self._database.reading() as reader, _transaction(reader):
            return self._read(reader, after)

    def sent(self, part: LedgerPart) -> None:
        """Note that the archive has it."""
        self._requests_at = part.requests_at
        if part.is_complete:
            self._is_first = False
            self._version = self._version if part.version is None else part.version
            self._sources = part.tables[columns.SOURCES.name]
        *_, senders, keys, _, answers = part.tables.get(columns.REQUESTS.name, [[]] * 8)
        for sender, key, answer in zip(senders, keys, answers, strict=True):
            if answer is not None:
                self._unanswered.discard((sender, key))
            elif len(self._unanswered) < UNANSWERED_MAX:
                self._unanswered.add((sender, key))

    def _read(self, reader: apsw.Connection, after: LedgerCursor) -> LedgerPart:
        head: Any = reader.execute(_HEAD).get
        sequence, sealed = head or (0, None)
        if sequence and (sealed is None or len(sealed) != SEAL_BYTES):
            raise LedgerDamaged(f"the ledger ends at event {sequence} in the middle of a commit; restore a copy")
        at = sealed_at(sealed) if sealed else 0
        end = _with_digests(reader, LedgerCursor(sequence, "", *_last_numbers(reader), at))
        upto = self._limited(reader, after, end)
        if upto is not None:
            upto = _with_digests(reader, upto)
            tables = self._tables(reader, after, upto)
            return LedgerPart(tables, upto, False, at, is_new=True, requests_at=self._requests_at, version=None)
        until = self._requests_until(reader)
        if until is not None:
            upto = msgspec.structs.replace(after, requests_at=max(after.requests_at, until))
            requests = read_columns(
                reader, columns.REQUESTS, "requests WHERE at >= ? AND at < ? ORDER BY at", (self._requests_at, until)
            )
            tables = {columns.REQUESTS.name: requests}
            return LedgerPart(tables, upto, False, at, is_new=True, requests_at=until, version=None)
        return self._complete(reader, after, end)

    def _limited(self, reader: apsw.Connection, after: LedgerCursor, end: LedgerCursor) -> LedgerCursor | None:
        """Return where a segment has to end before the end of the ledger; None where it need not."""
        replace = msgspec.structs.replace
        if end.players - after.players > SEGMENT_ROWS_MAX:
            return replace(after, players=after.players + SEGMENT_ROWS_MAX)
        change: int | None = reader.execute(_NTH_CHANGE, (after.changes, SEGMENT_CHANGES_MAX)).get
        if change is not None:
            return replace(after, changes=change)
        if end.sequence - after.sequence > SEGMENT_ROWS_MAX:
            stop: int = reader.execute(_END_OF_COMMIT, (after.sequence + SEGMENT_ROWS_MAX,)).get or 0
            if stop < end.sequence:
                return replace(after, sequence=stop)
        return None

    def _requests_until(self, reader: apsw.Connection) -> int | None:
        """Return up to which time requests need a segment of their own; None where they do not."""
        until: int | None = reader.execute(_NTH_REQUEST, (self._requests_at, SEGMENT_ROWS_MAX)).get
        # More of the same instant may come after the last request.
        latest: int = reader.execute("SELECT coalesce(max(at), 0) FROM requests").get or 0
        return until + 1 if until is not None and until < latest else None

    def _complete(self, reader: apsw.Connection, after: LedgerCursor, end: LedgerCursor) -> LedgerPart:
        tables = self._tables(reader, after, end)
        requests = self._requests(reader)
        times = requests[columns.REQUESTS.columns.index("at")]
        sources = read_columns(reader, columns.SOURCES, "sources ORDER BY source, partition", ())
        tables[columns.REQUESTS.name], tables[columns.SOURCES.name] = requests, sources
        tables[columns.REGISTRY_CHANGES.name] = read_columns(
            reader, columns.REGISTRY_CHANGES, "registry_changes ORDER BY one", ()
        )
        version = self._read_credentials(tables)
        has_answers = any(
            answer is not None and (self._is_first or (sender, key) in self._unanswered)
            for *_, sender, key, _, answer in columns.rows_of(requests)
        )
        is_new = (
            (end.sequence, end.players, end.contexts, end.changes)
            != (after.sequence, after.players, after.contexts, after.changes)
            or version is not None
            or (sources != self._sources and bool(sources[0] or self._sources))
            or has_answers
        )
        requests_at = max([self._requests_at, end.requests_at, *times])
        return LedgerPart(tables, end, True, end.requests_at, is_new, requests_at, version)

    def _tables(self, reader: apsw.Connection, after: LedgerCursor, upto: LedgerCursor) -> Tables:
        """Return what was added between two cursors, and what of the registry has changed."""
        tables: Tables = {}
        for table, key, span in (
            (columns.CONTEXTS, "number", (after.contexts, upto.contexts)),
            (columns.PLAYERS, "number", (after.players, upto.players)),
            (columns.EVENTS, "sequence", (after.sequence, upto.sequence)),
            (columns.METADATA, "sequence", (after.sequence, upto.sequence)),
            (columns.ORIGINS, "first", (after.sequence, upto.sequence)),
            (columns.REGISTRY_LOG, "change", (after.changes, upto.changes)),
        ):
            if span[0] < span[1]:
                tables[table.name] = read_span(reader, table, key, *span)
        self._check_whole(tables, after, upto)
        if after.changes < upto.changes:
            for table, kind in ((columns.PROFILES, "profile"), (columns.FRIEND_LISTS, "friends")):
                tables[table.name] = read_columns(
                    reader, table, _OF_CHANGES.format(table.name, kind), (after.changes, upto.changes)
                )
        return tables

    def _check_whole(self, tables: Tables, after: LedgerCursor, upto: LedgerCursor) -> None:
        """Refuse to copy a ledger that lacks rows: its copy would lack them too, and look whole."""
        for name, first, last in (
            (columns.EVENTS.name, after.sequence, upto.sequence),
            (columns.CONTEXTS.name, after.contexts, upto.contexts),
        ):
            if name in tables and len(tables[name][0]) != last - first:
                raise LedgerDamaged(f"{name} between {first} and {last} are missing; restore a copy of the data folder")

    def _requests(self, reader: apsw.Connection) -> Columns:
        """Return the requests since the last segment, and earlier ones whose answers have come since."""
        requests = read_columns(reader, columns.REQUESTS, "requests WHERE at >= ? ORDER BY at", (self._requests_at,))
        *_, senders, keys, _, _ = requests
        for sender, key in self._unanswered - set(zip(senders, keys, strict=True)):
            late = read_columns(
                reader, columns.REQUESTS, "requests WHERE sender = ? AND key = ? AND answer IS NOT NULL", (sender, key)
            )
            for column, values in zip(requests, late, strict=True):
                column.extend(values)
        return requests

    def _read_credentials(self, tables: Tables) -> int | None:
        """Add all credentials if they have changed, and return their version."""
        if self._credentials is None:
            if not (self._folder / CREDENTIALS_FILE).exists():
                return None
            self._credentials = open_file(self._folder)
        with translated(), self._credentials as reader:
            version: int = reader.execute("PRAGMA data_version").get or 0
            if version == self._version:
                return None
            for table, key in ((columns.CREDENTIALS, "id"), (columns.SIGNING_KEYS, "name")):
                tables[table.name] = read_columns(reader, table, f"{table.name} ORDER BY {key}", ())
        return version


def _last_numbers(reader: apsw.Connection) -> tuple[int, int, int]:
    """Return the highest numbers of players, contexts and changes of the registry."""
    row: Any = reader.execute(_LAST_NUMBERS).get
    players, contexts, changes = row
    return players, contexts, changes


def _digests(reader: apsw.Connection, cursor: LedgerCursor) -> tuple[str, str, str]:
    """Return the seal, and digests of the last player and change; "" for what is not there."""
    sealed: Any = reader.execute("SELECT seal FROM events WHERE sequence = ?", (cursor.sequence,)).get
    player: Any = reader.execute("SELECT id FROM players WHERE number = ?", (cursor.players,)).get
    change: Any = reader.execute(_CHANGE, (cursor.changes,)).get
    return (
        "" if sealed is None else sealed.hex(),
        "" if player is None else digest_of(player.encode()),
        "" if change is None else digest_of(change.encode()),
    )


def _with_digests(reader: apsw.Connection, cursor: LedgerCursor) -> LedgerCursor:
    sealed, last_player, last_change = _digests(reader, cursor)
    return msgspec.structs.replace(cursor, seal=sealed, last_player=last_player, last_change=last_change)


@contextmanager
def _transaction(reader: apsw.Connection) -> Iterator[None]:
    reader.execute("BEGIN")
    try:
        yield
    finally:
        reader.execute("ROLLBACK")

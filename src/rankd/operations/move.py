"""Moves an embedded installation into PostgreSQL: every event in order, then profiles, friends and keys.

    ledger.db → event runs → Ledger.append, append_control → the same ranks, from the same events

Each batch is committed under its own key, so that an interrupted move resumes. The folder is not changed, and must not
be in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

import apsw
import msgspec
import psycopg

from rankd.domain.definition import define_board
from rankd.errors import Refused
from rankd.folder import FolderLock
from rankd.ledger.event import CONTROLS, Context, EventKind, EventRun, rows
from rankd.ledger.port import ControlEvent, Draft, KeyedRequest, Ledger
from rankd.ledger.postgres.connections import Connections
from rankd.ledger.sqlite.database import Database
from rankd.ledger.sqlite.ledger import PARTITION, SqliteLedger
from rankd.projection.catalogue import Catalogue
from rankd.registry.postgres.registry import PostgresRegistry
from rankd.registry.sqlite.credentials_file import FILE_NAME as CREDENTIALS_FILE
from rankd.registry.sqlite.registry import SqliteRegistry

BATCH_EVENTS = 10_000
READ_EVENTS = 50_000
SENDER = "rankd migrate-from"
PLAYERS_AT_ONCE = 5_000
ALL_FRIENDS_BYTES = 2**62  # stored lists are moved whatever the target's limit is
Progress = Callable[[int, int], None]


class MoveReport(msgspec.Struct, frozen=True):
    """The result of a move."""

    events: int
    players: int  # with a profile or friends
    keys: int  # API keys and signing keys


class FolderMove:
    """Moves one folder into a database; used by one thread."""

    def __init__(self, folder: Path, ledger: Ledger, progress: Progress | None = None) -> None:
        """`ledger` is migrated, and empty or filled by an earlier move of the same folder."""
        self._folder = folder
        self._ledger = ledger
        self._progress = progress or (lambda _done, _all: None)
        self._catalogue = Catalogue()
        self._contexts: dict[int, int] = {}  # number in the target by number in the source
        self._ordered: set[int] = set()
        self._identity = ""  # of the folder's ledger
        self._seen = 0
        self._at = 0

    def run(self, registry_url: str) -> MoveReport:
        """Move everything."""
        lock = FolderLock(self._folder)
        try:
            database = Database(self._folder, None)
            try:
                source = SqliteLedger(self._folder, database)
                self._check_target(source)
                events = self._move_events(source)
                players = self._move_players(database, source, registry_url)
                source.close()
            finally:
                database.close()
            return MoveReport(events, players, self._move_keys(registry_url))
        finally:
            lock.release()

    def _check_target(self, source: SqliteLedger) -> None:
        heads = self._ledger.heads()
        if any(heads.sequences) and self._ledger.request(SENDER, self._key(source, 1)) is None:
            raise Refused("ledger.url: the database holds other events already; move into an empty one")

    # Events

    def _move_events(self, source: SqliteLedger) -> int:
        (total,) = source.heads().sequences
        batch: list[EventRun] = []
        done = 0
        while parts := source.read([done], READ_EVENTS):
            for _, event_run, *_ in parts:
                context = source.context(event_run.context)
                if context.kind in CONTROLS:
                    self._append(source, batch)
                    batch = []
                    self._append_controls(source, context, event_run)
                    continue
                batch.append(event_run)
                if sum(map(len, batch)) >= BATCH_EVENTS:
                    self._append(source, batch)
                    batch = []
            done = parts[-1].event_run.span.upto
            self._progress(done, total)
        self._append(source, batch)
        return total

    def _append(self, source: SqliteLedger, batch: list[EventRun]) -> None:
        if not batch:
            return
        first, count = batch[0].first, sum(map(len, batch))
        self._at = max(self._at, *(max(event_run.at) for event_run in batch))
        key = self._key(source, first)
        if self._ledger.request(SENDER, key) is not None:
            return  # an interrupted move appended it
        places = [(PARTITION, sequence) for sequence in range(first, first + count)]
        metadata = {sequence - first: json for (_, sequence), json in source.metadata(places).items()}
        moved = [self._moved(source, event_run) for event_run in batch]
        self._ledger.append(
            Draft(
                moved,
                self._at,
                self._seen,
                metadata,
                [KeyedRequest(SENDER, key, b"", 0, count)],
                [],
                frozenset(event_run.context for event_run in moved) & self._ordered,
            )
        )

    def _append_controls(self, source: SqliteLedger, context: Context, event_run: EventRun) -> None:
        for event in rows(event_run):
            if context.kind is EventKind.DEFINE:
                board = define_board(context.board, event.detail.definition)
                self._catalogue.add(board, context.boards[context.board].version)
            self._at = max(self._at, event.at)
            key = self._key(source, event.sequence)
            if self._ledger.request(SENDER, key) is None:
                control = ControlEvent(context, event.detail, event.at)
                self._ledger.append_control([control], self._seen, KeyedRequest(SENDER, key, b"", 0, 1))
            self._seen += 1

    def _moved(self, source: SqliteLedger, event_run: EventRun) -> EventRun:
        number = self._contexts.get(event_run.context)
        if number is None:
            context = source.context(event_run.context)
            number = self._contexts[event_run.context] = self._ledger.number_context(context)
            boards = context.boards.items()
            if any(self._catalogue.board(name, accepted.version).team is not None for name, accepted in boards):
                self._ordered.add(number)
        return msgspec.structs.replace(event_run, context=number, first=0)

    def _key(self, source: SqliteLedger, first: int) -> str:
        """Return the key of a batch: the head of the folder's ledger, which does not change, and the first event."""
        if not self._identity:
            ends = source.heads().sequences
            stamp = f"{ends} {source.stamp(ends)}"
            self._identity = blake2b(stamp.encode(), digest_size=8).hexdigest()
        return f"{self._identity}-{first}"

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

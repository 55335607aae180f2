"""An embedded installation moves into PostgreSQL: every event in its order, then profiles, friends and keys.

    ledger.db → stretches → Ledger.append, append_control → the same ranks, from the same events

Each batch is committed under a key of its own, so that a move which was cut off goes on where it was. The folder is not
changed, and must not be in use.
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
from rankd.ledger.database import Database
from rankd.ledger.event import CONTROLS, Context, Kind, Stretch, rows
from rankd.ledger.port import ControlEvent, Draft, KeyedRequest, Ledger
from rankd.ledger.postgres.connections import Connections
from rankd.ledger.sqlite import PARTITION, SqliteLedger
from rankd.projection.catalogue import Catalogue
from rankd.registry.credentials_file import FILE_NAME as CREDENTIALS_FILE
from rankd.registry.postgres import PostgresRegistry
from rankd.registry.sqlite import SqliteRegistry

BATCH_EVENTS = 10_000
READ_EVENTS = 50_000  # at a time
SENDER = "rankd migrate-from"
PLAYERS_AT_ONCE = 5_000
ALL_FRIENDS_BYTES = 2**62  # what was stored moves whole, whatever the limit is there
Progress = Callable[[int, int], None]


class Moved(msgspec.Struct, frozen=True):
    """What was moved."""

    events: int
    players: int  # with a profile or friends
    keys: int  # of the API, and to sign with


class Moving:
    """Moves one folder into a database; used by one thread."""

    def __init__(self, folder: Path, ledger: Ledger, progress: Progress | None = None) -> None:
        """The ledger is migrated, and empty or filled by an earlier move of the same folder."""
        self._folder = folder
        self._ledger = ledger
        self._progress = progress or (lambda _done, _all: None)
        self._catalogue = Catalogue()
        self._contexts: dict[int, int] = {}  # numbers there, by those here
        self._ordered: set[int] = set()
        self._identity = ""  # of the folder's ledger
        self._seen = 0
        self._at = 0

    def run(self, registry_url: str) -> Moved:
        """Move everything."""
        lock = FolderLock(self._folder)
        try:
            database = Database(self._folder, None)
            try:
                source = SqliteLedger(self._folder, database)
                self._check_target(source)
                events = self._move_events(source)
                players = self._move_players(database, registry_url)
                source.close()
            finally:
                database.close()
            return Moved(events, players, self._move_keys(registry_url))
        finally:
            lock.release()

    def _check_target(self, source: SqliteLedger) -> None:
        heads = self._ledger.heads()
        if any(heads.sequences) and self._ledger.request(SENDER, self._key(source, 1)) is None:
            raise Refused("ledger.url: the database holds other events already; move into an empty one")

    # Events

    def _move_events(self, source: SqliteLedger) -> int:
        (total,) = source.heads().sequences
        batch: list[Stretch] = []
        done = 0
        while parts := source.read([done], READ_EVENTS):
            for _, stretch, _ in parts:
                context = source.context(stretch.context)
                if context.kind in CONTROLS:
                    self._append(source, batch)
                    batch = []
                    self._append_controls(source, context, stretch)
                    continue
                batch.append(stretch)
                if sum(map(len, batch)) >= BATCH_EVENTS:
                    self._append(source, batch)
                    batch = []
            done = parts[-1].stretch.span.upto
            self._progress(done, total)
        self._append(source, batch)
        return total

    def _append(self, source: SqliteLedger, batch: list[Stretch]) -> None:
        if not batch:
            return
        first, count = batch[0].first, sum(map(len, batch))
        self._at = max(self._at, *(max(stretch.at) for stretch in batch))
        key = self._key(source, first)
        if self._ledger.request(SENDER, key) is not None:
            return  # by a move that was cut off later
        places = [(PARTITION, sequence) for sequence in range(first, first + count)]
        metadata = {sequence - first: json for (_, sequence), json in source.metadata(places).items()}
        moved = [self._moved(source, stretch) for stretch in batch]
        self._ledger.append(
            Draft(
                moved,
                self._at,
                self._seen,
                metadata,
                [KeyedRequest(SENDER, key, b"", 0, count)],
                [],
                frozenset(stretch.context for stretch in moved) & self._ordered,
            )
        )

    def _append_controls(self, source: SqliteLedger, context: Context, stretch: Stretch) -> None:
        for event in rows(stretch):
            if context.kind is Kind.DEFINE:
                board = define_board(context.board, event.detail.definition)
                self._catalogue.add(board, context.boards[context.board].version)
            self._at = max(self._at, event.at)
            key = self._key(source, event.sequence)
            if self._ledger.request(SENDER, key) is None:
                control = ControlEvent(context, event.detail, event.at)
                self._ledger.append_control([control], self._seen, KeyedRequest(SENDER, key, b"", 0, 1))
            self._seen += 1

    def _moved(self, source: SqliteLedger, stretch: Stretch) -> Stretch:
        number = self._contexts.get(stretch.context)
        if number is None:
            context = source.context(stretch.context)
            number = self._contexts[stretch.context] = self._ledger.number_context(context)
            boards = context.boards.items()
            if any(self._catalogue.board(one, accepted.version).team is not None for one, accepted in boards):
                self._ordered.add(number)
        return msgspec.structs.replace(stretch, context=number, first=0)

    def _key(self, source: SqliteLedger, first: int) -> str:
        """Return what a batch is known by: the end of the folder's ledger, which stays so, and its first event."""
        if not self._identity:
            ends = source.heads().sequences
            stamp = f"{ends} {source.stamp(ends)}"
            self._identity = blake2b(stamp.encode(), digest_size=8).hexdigest()
        return f"{self._identity}-{first}"

    # Players and keys

    def _move_players(self, database: Database, registry_url: str) -> int:
        source = SqliteRegistry(database, PLAYERS_AT_ONCE, lambda _changes: None)
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
        found = reader.execute(statement)
        part: list[str] = []
        for (player,) in found:
            part.append(str(player))
            if len(part) == PLAYERS_AT_ONCE:
                yield part
                part = []
    if part:
        yield part


def _copy_keys(source: apsw.Connection, target: psycopg.Connection[tuple[object, ...]]) -> int:
    """Copy API keys, as digests, and signing keys; those that are there already stay as they are."""
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

"""One SQLite file: commits survive a power cut, migrations run at open, driver errors are translated.

    lock file (one process) → ledger.db: WAL, synchronous FULL → migrations in order

One connection writes, under a lock; concurrent reads have a connection each. Driver errors never leave this package: a
full or failing disk is LedgerUnavailable, an inconsistent file is LedgerDamaged. A file that was moved while it was
open is not written any more: the next process to open its path would not find those commits.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from time import sleep
from types import TracebackType
from typing import NoReturn

import apsw

from rankd.errors import Closed, LedgerDamaged, LedgerNewer, LedgerUnavailable
from rankd.folder import LEDGER_FILE
from rankd.ledger.sqlite.checksum import checksum
from rankd.ledger.sqlite.place import LedgerPath

FILE_NAME = LEDGER_FILE
APPLICATION_ID = 0x52414E4B  # "RANK"
# In older versions, a concurrent write and checkpoint can lose a commit.
SQLITE_VERSION_MIN = 3_051_003
CACHE_KIB = 65_536
READER_CACHE_KIB = 8_192
BUSY_MS = 10_000
FRAME_BYTES = 4_096 + 24  # of a page in the log
CHECKPOINT_TRIES_MAX = 50
CHECKPOINT_RETRY_S = 0.001
GIVE_WAY_S = 0.001
LOG_AHEAD_BYTES = 4 * 1024 * 1024
_ZEROS = bytes(256 * 1024)  # per step of extending the log
MIGRATIONS = "schema"
NOT_WRITTEN_HERE = "this process reads the ledger, and another one writes it; send it there"
STATEMENTS_CACHED = 256  # commits of each size up to a hundred rows have their own
_log = logging.getLogger("rankd")


class ReadOnlyDatabase:
    """The file and the connections that read it, for a process beside the one that writes."""

    _flags = apsw.SQLITE_OPEN_READONLY

    def __init__(self, folder: Path, vfs: str | None = None) -> None:
        """The file exists, and its writer has migrated it; `open` connects to it."""
        check_sqlite_version(apsw.sqlite_lib_version())
        self._path = str(folder / FILE_NAME)
        self._vfs = vfs
        self._lock = threading.RLock()
        self._idle_readers: deque[apsw.Connection] = deque()
        self._closed = False
        self._place = LedgerPath(self._path)

    def open(self) -> None:
        """Connect once; the files at the path stay the ones that later connections are checked against."""
        with translated():
            reader = self._connect(READER_CACHE_KIB)
            self._idle_readers.append(reader)
            version = reader.pragma("user_version")
        if version != len(migrations()):
            raise LedgerNewer(f"{FILE_NAME} has version {version}, and this rankd knows others: upgrade all workers")
        self._place.remember()

    def _connect(self, cache_kib: int) -> apsw.Connection:
        # No SQLITE_OPEN_CREATE: a new file would not be the ledger.
        connection = apsw.Connection(self._path, self._flags, vfs=self._vfs, statementcachesize=STATEMENTS_CACHED)
        connection.set_busy_timeout(BUSY_MS)
        connection.pragma("cache_size", -cache_kib)
        return connection

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Read committed data, on an exclusive connection."""
        with translated():
            self._check_open()
            try:
                reader = self._idle_readers.pop()
            except IndexError:
                reader = self._connect_reader()
            try:
                yield reader
            finally:
                if self._closed:
                    reader.close()
                else:
                    self._idle_readers.append(reader)

    def _connect_reader(self) -> apsw.Connection:
        reader = self._connect(READER_CACHE_KIB)
        if not self._place.is_same():  # after connecting: the file at the path may be another by now
            reader.close()
            raise self._place.moved()
        return reader

    def check_place(self) -> None:
        """Raise LedgerUnavailable when the files at the path are no longer the open ones."""
        if not self._place.is_same():
            raise self._place.moved()

    def writing(self) -> AbstractContextManager[apsw.Connection]:
        """Refuse: another process writes."""
        raise LedgerUnavailable(NOT_WRITTEN_HERE)

    def give_way(self) -> None:
        """Let a commit that waits go first: who asks again at once has the lock before the other is awake."""
        sleep(GIVE_WAY_S)

    def check(self) -> None:
        """Check the file's structure, indexes included; LedgerDamaged when it is inconsistent."""
        with self.reading() as reader:
            result = reader.execute("PRAGMA integrity_check(1)").get
        if result != "ok":
            raise LedgerDamaged(f"{FILE_NAME} is damaged ({result}); restore a copy of the data folder")

    def close(self) -> None:
        """Close every connection."""
        with self._lock, translated():
            self._closed = True
            while self._idle_readers:
                self._idle_readers.pop().close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the boards were closed; open them again with rankd.open")


class Database(ReadOnlyDatabase):
    """The file with its one writing connection and its readers."""

    _flags = apsw.SQLITE_OPEN_READWRITE

    def __init__(self, folder: Path, vfs: str | None = None) -> None:
        """Open or create the file in a folder, and migrate it."""
        super().__init__(folder, vfs)
        self.is_moved = False
        self._is_written = True  # until it is closed or moved
        self._log_kept = False
        self._log_pages_known = 0
        with translated():
            self._writer = self._connect(CACHE_KIB)
            self._single = self._writer.cursor()  # reused: making a cursor costs as much as the call
            try:
                self._prepare()
                self._place.remember()
                with suppress(OSError):  # an optimization
                    self.extend_log(LOG_AHEAD_BYTES)
            except BaseException:
                self._writer.close()
                raise

    def check_place(self) -> None:
        """Stop writing for good, with LedgerUnavailable, when the files at the path are no longer the open ones.

        The commits are in the open files, wherever those are now. They are moved from the log into the file, since the
        log may have been left behind or removed.
        """
        if self._is_written and not self._place.is_same():
            with self._lock:
                self._stop_writing_if_moved()
        self._check_written()

    def _stop_writing_if_moved(self) -> None:
        if not self._is_written or self._place.is_same():
            return  # closed meanwhile, or stopped by another thread
        self.is_moved, self._is_written = True, False
        _log.error("%s", self._place.moved())
        if not self._log_kept:
            with suppress(apsw.Error):
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._log_kept = True  # at close, SQLite would delete it by its path, where another file may be now

    def _prepare(self) -> None:
        writer = self._writer
        application_id = writer.pragma("application_id")
        has_tables = writer.execute("SELECT 1 FROM sqlite_master LIMIT 1").get is not None
        if application_id != APPLICATION_ID and (application_id != 0 or has_tables):
            raise LedgerDamaged(f"{FILE_NAME} is a database of another program; choose another data folder")
        version = writer.pragma("user_version")
        scripts = migrations()
        if version > len(scripts):
            raise LedgerNewer(
                f"{FILE_NAME} has version {version}, and this rankd knows versions up to {len(scripts)}: upgrade rankd"
            )
        if writer.pragma("journal_mode", "wal") != "wal":
            raise LedgerUnavailable("the file system does not allow a write-ahead log; use a local disk")
        writer.pragma("synchronous", "full")
        # Checkpoints are made between commits, off the hot path; see `checkpoint`.
        writer.pragma("wal_autocheckpoint", 0)
        add_functions(writer)
        for number, script in enumerate(scripts[version:], start=version + 1):
            with self.writing() as connection:
                connection.execute(script)
                connection.pragma("application_id", APPLICATION_ID)
                connection.pragma("user_version", number)

    @property
    def log_pages(self) -> int:
        """The number of pages in the log, moved into the file or not.

        Read on demand: a commit hook would slow every commit.
        """
        return self._checkpoint_beside_writer(apsw.SQLITE_CHECKPOINT_NOOP)[0]

    def _checkpoint_beside_writer(self, mode: int) -> tuple[int, int]:
        """Return the number of pages in the log, and how many of them are in the file after a checkpoint.

        SQLite reports a locked database while a commit writes the log's head, for microseconds, or while another
        program checkpoints. It is retried; if it lasts, nothing is moved and the last known number is returned.
        """
        with self.reading() as reader:
            for _ in range(CHECKPOINT_TRIES_MAX):
                try:
                    logged, moved = reader.wal_checkpoint(mode=mode)
                except apsw.BusyError:
                    sleep(CHECKPOINT_RETRY_S)
                else:
                    self._log_pages_known = max(0, logged)
                    return self._log_pages_known, max(0, moved)
        return self._log_pages_known, 0

    def writing(self) -> Transaction:
        """Write in one transaction that is on disk when the block ends, or not at all when it raises."""
        return Transaction(self)

    def write_one(self, statement: str, values: Sequence[object]) -> None:
        """Run one statement in its own transaction: on disk when this returns, or not at all when it raises."""
        with self._lock:
            try:
                if not self._is_written:
                    self._check_written()
                self._single.execute(statement, values)
            except BaseException as problem:
                raise_translated(problem)

    def extend_log(self, ahead_bytes: int) -> None:
        """Extend the log's file by zeros: a commit that does not grow its file syncs faster.

        Bytes behind the last commit are no part of the log. Commits wait during each step.
        """
        self.check_place()
        path = f"{self._path}-wal"
        if self._vfs is not None or os.stat(path).st_size >= self.log_pages * FRAME_BYTES + ahead_bytes // 2:
            return
        with open(path, "r+b", buffering=0) as log:
            for _ in range(0, ahead_bytes, len(_ZEROS)):
                with self.writing():
                    log.seek(0, os.SEEK_END)
                    log.write(_ZEROS)
                os.fdatasync(log.fileno())  # per step, outside the lock: no commit waits for megabytes

    def _connect_reader(self) -> apsw.Connection:
        if self.is_moved:
            raise self._place.moved()
        reader = self._connect(READER_CACHE_KIB)
        try:
            self.check_place()  # after connecting: the file at the path may be another by now
        except LedgerUnavailable:
            reader.close()
            raise
        return reader

    def checkpoint(self, restart: bool = False) -> int:
        """Move the log into the file, and return the number of pages left.

        After a failed sync of the file it is unknown which pages are on disk, and SQLite would not write them again. So
        the log is kept from then on, and moved again at the next open.

        With `restart` the next commit begins the log anew: commits wait until all is moved, so little should be left.
        """
        if self._log_kept:
            return self.log_pages
        try:
            return self._restart_log() if restart else self._move_log()
        except LedgerUnavailable as problem:
            if isinstance(problem.__cause__, apsw.IOError):
                self._log_kept = True
            raise

    def _move_log(self) -> int:
        logged, moved = self._checkpoint_beside_writer(apsw.SQLITE_CHECKPOINT_PASSIVE)
        return logged - moved

    def _restart_log(self) -> int:
        with self.exclusive() as writer:
            writer.set_busy_timeout(0)  # while another program reads, the log keeps growing
            try:
                logged, moved = writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            except apsw.BusyError:
                return self.log_pages
            finally:
                writer.set_busy_timeout(BUSY_MS)
            return logged - moved

    @contextmanager
    def exclusive(self) -> Iterator[apsw.Connection]:
        """Use the writing connection exclusively, outside a transaction."""
        with self._lock, translated():
            self._check_open()
            yield self._writer

    def close(self) -> None:
        """Close every connection; the last one moves the log into the file."""
        with self._lock, translated():
            if self._closed:
                return
            self._closed, self._is_written = True, False
            connections = [*self._idle_readers, self._writer]
            self._idle_readers.clear()
            with ExitStack() as closing:  # closes the others when one fails
                for connection in connections:
                    if self._log_kept:
                        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                    closing.callback(connection.close)

    def _check_written(self) -> None:
        self._check_open()
        if self.is_moved:
            raise self._place.moved()


def migrations() -> list[str]:
    """Return the migration scripts, one per version."""
    scripts = [script for script in files(__package__).joinpath(MIGRATIONS).iterdir() if script.name.endswith(".sql")]
    return [script.read_text() for script in sorted(scripts, key=lambda script: script.name)]


def add_functions(connection: apsw.Connection) -> None:
    """Add the SQL function `row_checksum`, for migrations."""
    connection.create_scalar_function("row_checksum", checksum, deterministic=True)


def check_sqlite_version(version: str) -> None:
    """Refuse an SQLite that can lose commits."""
    major, minor, patch = (int(part) for part in version.split("."))
    if major * 1_000_000 + minor * 1_000 + patch < SQLITE_VERSION_MIN:
        raise LedgerUnavailable(f"SQLite {version} can lose commits in WAL mode; install apsw 3.51.3 or newer")


class Transaction:
    """One transaction of the writing connection, which holds the write lock."""

    __slots__ = ("_database",)

    def __init__(self, database: Database) -> None:
        """The block begins the transaction."""
        self._database = database

    def __enter__(self) -> apsw.Connection:
        """Begin."""
        database = self._database
        database._lock.acquire()
        try:
            database._check_written()
            database._writer.execute("BEGIN IMMEDIATE")
        except BaseException as problem:
            database._lock.release()
            raise_translated(problem)
        return database._writer

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or roll back."""
        writer = self._database._writer
        try:
            if problem is None:
                writer.execute("COMMIT")
        except BaseException as failed:
            problem = failed
        try:
            if problem is not None:
                if writer.in_transaction:
                    writer.execute("ROLLBACK")
                raise_translated(problem)
        finally:
            self._database._lock.release()


@contextmanager
def translated() -> Iterator[None]:
    """Translate driver errors."""
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as problem:
        raise_translated(problem)


def raise_translated(problem: BaseException) -> NoReturn:
    """Raise our error for a driver error; raise any other error as it is."""
    match problem:
        case apsw.CorruptError() | apsw.NotADBError() | UnicodeDecodeError():
            raise LedgerDamaged(f"{FILE_NAME} is damaged ({problem}); restore a copy of the data folder") from problem
        case apsw.SQLError():  # our statements are correct, so a table or column is missing
            raise LedgerDamaged(f"{FILE_NAME} lacks a part ({problem}); restore a copy of the data folder") from problem
        case apsw.FullError():
            raise LedgerUnavailable(
                "the disk is full; make room, then send it again: nothing was acknowledged"
            ) from problem
        case apsw.Error():
            raise LedgerUnavailable(f"the ledger cannot be used now ({problem}); send it again") from problem
    raise problem

"""The file of the credentials: private to its owner, migrated, its errors translated.

    credentials.db, mode 0600: WAL, synchronous FULL → migrations in order

It has no exclusive lock as the ledger has: keys are created and revoked while a server uses the folder. A full or
failing disk is LedgerUnavailable, an inconsistent file is LedgerDamaged.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import NoReturn

import apsw

from rankd.errors import LedgerDamaged, LedgerNewer, LedgerUnavailable
from rankd.folder import check_private_file, make_private_folder, private_opener
from rankd.ledger.sqlite.database import check_sqlite_version

FILE_NAME = "credentials.db"
APPLICATION_ID = 0x524B4559  # "RKEY"
BUSY_MS = 10_000
_RETRY_S = 0.01
_opening = threading.Lock()
_REMEDY = "restore a copy of it, or move it away and make new keys"


def open_file(folder: Path) -> apsw.Connection:
    """Open or create the file in a folder, readable by its owner only, and migrate it."""
    check_sqlite_version(apsw.sqlite_lib_version())
    path = folder / FILE_NAME
    with _opening, translated():
        _make_private(path)
        connection = apsw.Connection(str(path), statementcachesize=32)
        try:
            connection.set_busy_timeout(BUSY_MS)
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def write_private(path: Path, text: str) -> None:
    """Write and sync a file that only its owner may read, replacing any former one."""
    try:
        path.unlink(missing_ok=True)
        with open(path, "x", encoding="ascii", opener=private_opener) as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise LedgerUnavailable(
            f"{path} cannot be written: {problem.strerror}; make room, or let the user that runs rankd write there"
        ) from problem


def _make_private(path: Path) -> None:
    """Make the file and its log private to the owner; refuse links in their place."""
    make_private_folder(path.parent)
    for part in ("", "-wal", "-shm", "-journal"):
        check_private_file(Path(f"{path}{part}"))
    try:
        # Closing any handle of a file releases all locks of this process on it, so only a new file is opened here.
        with suppress(FileExistsError):
            os.close(private_opener(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except OSError as problem:
        raise LedgerUnavailable(
            f"{path} cannot be used: {problem.strerror}; the user that runs rankd has to own it"
        ) from problem


def _prepare(connection: apsw.Connection) -> None:
    scripts = migrations()
    with connection:  # a transaction, since another process may be creating the file
        _check_ours(connection, len(scripts))
    _use_log(connection)
    connection.pragma("synchronous", "full")
    connection.pragma("secure_delete", "on")
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _check_ours(connection, len(scripts))
        for script in scripts[version:]:
            connection.execute(script)
        if version < len(scripts):
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", len(scripts))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_ours(connection: apsw.Connection, known: int) -> int:
    has_tables = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").get is not None
    application_id = connection.pragma("application_id")
    if application_id != APPLICATION_ID and (application_id != 0 or has_tables):
        raise LedgerDamaged(f"{FILE_NAME} is a database of another program; choose another data folder")
    version: int = connection.pragma("user_version")
    if version > known:
        raise LedgerNewer(
            f"{FILE_NAME} has version {version}, and this rankd knows versions up to {known}: upgrade rankd"
        )
    return version


def _use_log(connection: apsw.Connection) -> None:
    # SQLite has no busy timeout here, and another process may be creating the same file.
    deadline = time.monotonic() + BUSY_MS / 1_000
    while True:
        try:
            if connection.pragma("journal_mode", "wal") != "wal":
                raise LedgerUnavailable("the file system does not allow a write-ahead log; use a local disk")
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)


def migrations() -> list[str]:
    """Return the migration scripts, one per version."""
    scripts = [script for script in files(__package__).joinpath("schema").iterdir() if script.name.endswith(".sql")]
    return [script.read_text() for script in sorted(scripts, key=lambda script: script.name)]


@contextmanager
def translated() -> Iterator[None]:
    """Translate driver errors."""
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as problem:
        _raise_translated(problem)


def _raise_translated(problem: Exception) -> NoReturn:
    match problem:
        case apsw.CorruptError() | apsw.NotADBError() | UnicodeDecodeError():
            raise LedgerDamaged(f"{FILE_NAME} is damaged; {_REMEDY}") from problem
        case apsw.SQLError():  # our statements are correct, so a table or column is missing
            raise LedgerDamaged(f"{FILE_NAME} lacks a part; {_REMEDY}") from problem
        case apsw.FullError():
            raise LedgerUnavailable("the disk is full; make room, then try again: no key was changed") from problem
        case apsw.BusyError():
            raise LedgerUnavailable(f"{FILE_NAME} is in use by another process for too long; try again") from problem
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            raise LedgerUnavailable(
                f"{FILE_NAME} cannot be opened or written; the user that runs rankd has to own it"
            ) from problem
    raise LedgerUnavailable(f"{FILE_NAME} cannot be used now ({problem}); try again") from problem

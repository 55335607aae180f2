"""The data folder: private to its owner, created when it is missing, locked by one process at a time.

Its path may contain symbolic links. Inside the folder rankd follows none: a link could lead to another user's file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from contextlib import suppress
from pathlib import Path

from rankd.errors import FolderLocked, LedgerUnavailable

LEDGER_FILE = "ledger.db"
SNAPSHOTS = "snapshots"  # in a folder: checkpoints of the engine
RESTORING = "restoring"  # in a folder: what a restore has not finished
FOLDER_MODE = 0o700
FILE_MODE = 0o600
_LOCK_FILE = "lock"
_OTHERS = 0o077
_log = logging.getLogger("rankd")


def make_private_folder(folder: Path) -> None:
    """Create a folder that only its owner may enter; an existing one loses other users' rights, with its contents."""
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        before = stat.S_IMODE(os.stat(folder).st_mode)
        if not before & _OTHERS:
            return
        _narrow(folder, os.stat(folder), FOLDER_MODE)
        for root, folders, files in os.walk(folder):
            for path in (Path(root, name) for name in (*folders, *files)):
                status = os.lstat(path)
                if not stat.S_ISLNK(status.st_mode):
                    _narrow(path, status, FOLDER_MODE if stat.S_ISDIR(status.st_mode) else FILE_MODE)
    except OSError as problem:
        raise LedgerUnavailable(
            f"the folder {folder} cannot be used: {problem.strerror}; the user that runs rankd has to own it"
        ) from problem
    _log.warning("%s was open to other users (mode %03o); now only its owner may use it", folder, before)


def _narrow(path: Path, status: os.stat_result, mode: int) -> None:
    """Take other users' rights away, or raise."""
    if not status.st_mode & _OTHERS:
        return
    if status.st_uid == os.geteuid():
        with suppress(OSError):
            os.chmod(path, mode)
        if not os.stat(path).st_mode & _OTHERS:
            return
    raise LedgerUnavailable(
        f"{path} is open to other users (mode {stat.S_IMODE(status.st_mode):03o}) and user {os.geteuid()} cannot "
        f"change that: it belongs to user {status.st_uid}, or its file system keeps no modes; let the user that runs "
        f"rankd own it and run chmod {mode:o} on it, or name a folder inside it, which rankd creates"
    )


def check_private_file(path: Path) -> None:
    """Refuse a link in place of a file, and take other users' rights away; a missing file is fine."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            raise LedgerUnavailable(f"{path} is a symbolic link; put the file itself there")
        if not stat.S_ISREG(status.st_mode):
            raise LedgerUnavailable(f"{path} is no file; take it away")
        if status.st_nlink > 1:
            raise LedgerUnavailable(
                f"{path} has {status.st_nlink} names (hard links), and a write under one changes the others; "
                "put a copy of it there"
            )
        _narrow(path, status, FILE_MODE)
    except FileNotFoundError:
        return


def private_opener(path: str, flags: int) -> int:
    """Open a file for `open`, private to its owner whatever the umask is; a link is not followed."""
    opened = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    if stat.S_IMODE(os.fstat(opened).st_mode) != FILE_MODE:
        os.fchmod(opened, FILE_MODE)
    return opened


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class FolderLock:
    """Held from open to close; the system releases it when the process ends.

    It locks three files: `lock`, which names the process; the folder itself, so that a new `lock` does not help; and
    the ledger, wherever it is moved to. `flock` is independent of SQLite's own locks, but closing any descriptor of the
    ledger releases those: ours is closed after the database, and never where this process may have it open already.
    """

    def __init__(self, folder: Path, *, has_ledger: bool = True) -> None:
        """Take the lock, or raise FolderLocked with the process that has it."""
        self._folder = folder
        self._held: list[int] = []
        make_private_folder(folder)
        try:
            lock = self._hold(_opened(folder / _LOCK_FILE))
            # Some network file systems lock files but not folders.
            self._hold(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), is_needed=False)
            if has_ledger:
                self._hold(_opened(folder / LEDGER_FILE), closes=False)
        except BaseException:
            self.release()
            raise
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)

    def _hold(self, opened: int, *, closes: bool = True, is_needed: bool = True) -> int:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if closes:
                os.close(opened)
            if isinstance(problem, BlockingIOError):
                raise FolderLocked(
                    f"the data folder {self._folder} is open in another process{self._holder()}; close that first"
                ) from problem
            if is_needed:
                raise LedgerUnavailable(
                    f"the data folder {self._folder} cannot be locked ({problem.strerror}); use a local disk"
                ) from problem
        else:
            self._held.append(opened)
        return opened

    def _holder(self) -> str:
        lines: list[str] = []
        with suppress(OSError):
            lines = (self._folder / _LOCK_FILE).read_text("ascii", "replace").splitlines()
        return f" (process {', '.join(lines[:2])})" if lines and lines[0].isdigit() else ""

    def release(self) -> None:
        """Unlock the folder, even if a forked child still has the files open."""
        while self._held:
            opened = self._held.pop()
            fcntl.flock(opened, fcntl.LOCK_UN)
            os.close(opened)


def note_server(folder: Path, url: str, process: int | None = None) -> None:
    """Write the server's URL into the lock file, for commands that find the folder locked.

    `process` is the one to stop, where it is another than this one.
    """
    lock = _opened(folder / _LOCK_FILE)
    try:
        os.pwrite(lock, f"{process or os.getpid()}\n{url}\n".encode(), 0)
    finally:
        os.close(lock)


def _opened(path: Path) -> int:
    check_private_file(path)
    try:
        return private_opener(str(path), os.O_RDWR | os.O_CREAT)
    except OSError as problem:
        raise LedgerUnavailable(f"{path} cannot be used: {problem.strerror}") from problem

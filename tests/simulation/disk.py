"""A disk that fails when a test says so: an SQLite VFS over the real one, for tests of faults and power cuts.

    with FaultyDisk() as disk:
        boards = rankd.open(folder, vfs=disk.name)
        disk.fail(Fault(Operation.SYNC, nth=3, trouble=Trouble.ENOSPC))

It counts what is done to files, fails the nth operation of a kind, and keeps a `DiskImage`: what each file would hold
had the power been cut now. SQLite's shared memory (`-shm`) goes to the real VFS unseen, as it holds nothing durable.

In one way it is harder than a real disk: apsw raises an injected error from the call under way even where SQLite itself
passes over it, which is when a checkpoint fails that SQLite made of its own accord after a commit or at a close. The
commit stands although the call that made it has raised.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self

import apsw
from typing_extensions import Buffer

from .disk_image import SECTOR_BYTES, DiskImage, Inode, Unsynced

REAL_VFS = "unix"
NAME = "rankd-faults"


class Operation(Enum):
    """What is counted and can fail."""

    OPEN = "open"
    READ = "read"
    WRITE = "write"
    SYNC = "sync"
    TRUNCATE = "truncate"
    DELETE = "delete"
    COMMITTED = "committed"  # a commit stands, and whoever made it hears of an error all the same


class Trouble(Enum):
    """Why an operation fails; that a disk is full is noticed when it is written to."""

    EIO = "EIO"
    ENOSPC = "ENOSPC"


_EIO_CODES = {
    Operation.OPEN: apsw.SQLITE_CANTOPEN,
    Operation.READ: apsw.SQLITE_IOERR_READ,
    Operation.WRITE: apsw.SQLITE_IOERR_WRITE,
    Operation.SYNC: apsw.SQLITE_IOERR_FSYNC,
    Operation.TRUNCATE: apsw.SQLITE_IOERR_TRUNCATE,
    Operation.DELETE: apsw.SQLITE_IOERR_DELETE,
    Operation.COMMITTED: apsw.SQLITE_IOERR,
}


def troubles(operation: Operation) -> tuple[Trouble, ...]:
    """Return in how many ways an operation can fail as far as SQLite can tell."""
    return tuple(Trouble) if operation is Operation.WRITE else (Trouble.EIO,)


@dataclass(frozen=True)
class Fault:
    """The nth operation of a kind from now on fails (1 is the next one); a lasting one fails all after it too."""

    operation: Operation
    nth: int
    trouble: Trouble
    lasting: bool = False

    def error(self) -> Exception:
        """Return the answer to SQLite."""
        full = self.trouble is Trouble.ENOSPC and self.operation is Operation.WRITE
        return apsw.exception_for(apsw.SQLITE_FULL if full else _EIO_CODES[self.operation])


class FaultyDisk(apsw.VFS):
    """The VFS: registered while it is in use as a context."""

    def __init__(self, name: str = NAME) -> None:
        super().__init__(name, REAL_VFS)
        self.name = name
        self.image = DiskImage()
        self.before_sync: Callable[[str], None] | None = None
        self.hits = 0
        self._lock = threading.RLock()
        self._counts: Counter[Operation] = Counter()
        self._fault: Fault | None = None
        self._due = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.repair()
        self.before_sync = None
        self.unregister()

    def fail(self, fault: Fault) -> None:
        """Arm one fault in place of any before; `hits` counts how often it struck."""
        with self._lock:
            self._fault = fault
            self._due = self._counts[fault.operation] + fault.nth
            self.hits = 0

    def repair(self) -> None:
        """Let everything succeed again, also for open files that have not reported a failed sync yet."""
        with self._lock:
            self._fault = None
            self.image.repair()

    def count(self, operation: Operation) -> int:
        """Return how many operations of a kind were asked for, failed ones included."""
        with self._lock:
            return self._counts[operation]

    def cut_power(self, folder: Path, into: Path, unsynced: Unsynced, rng: random.Random) -> None:
        """Make a copy of a folder as it would be found had the power been cut now; nothing moves meanwhile."""
        with self._lock:
            self.image.write_after_cut(folder, into, unsynced, rng)

    def struck(self, operation: Operation) -> Exception | None:
        """Count an operation; return the error it must end with, None when it may go on."""
        with self._lock:
            self._counts[operation] += 1
            fault = self._fault
            if fault is None or fault.operation is not operation:
                return None
            number = self._counts[operation]
            if number < self._due or (number > self._due and not fault.lasting):
                return None
            self.hits += 1
            return fault.error()

    def excepthook(
        self, etype: type[BaseException] | None, evalue: BaseException | None, etraceback: TracebackType | None
    ) -> bool:
        """Say nothing of an injected error where SQLite goes on without its caller knowing, such as at a close."""
        return isinstance(evalue, apsw.Error) or super().excepthook(etype, evalue, etraceback)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        """Open a file of the real VFS behind a `FaultyFile`."""
        if error := self.struck(Operation.OPEN):
            raise error
        return FaultyFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        """Delete a file; until its folder is synced a power cut brings it back."""
        if error := self.struck(Operation.DELETE):
            raise error
        with self._lock:
            super().xDelete(filename, syncdir)
            self.image.deleted(os.path.abspath(filename), folder_synced=syncdir)


class FaultyFile(apsw.VFSFile):
    """One open file: does what it is asked for, tells the image, and fails when its disk says so."""

    def __init__(self, disk: FaultyDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        exists = path is not None and os.path.exists(path)
        super().__init__(REAL_VFS, name, flags)
        self._disk = disk
        self._path = None if path is None else os.path.abspath(path)
        self._inode: Inode | None = None
        self._known_failures = 0  # of how many failed syncs this open file knows
        if self._path is not None:
            # Those that a transaction hangs on: SQLite's first sync of a new one syncs the folder too.
            hangs_on = flags[0] & (apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL)
            with disk._lock:
                self._inode = disk.image.opened(self._path, exists=exists, syncs_folder=bool(hangs_on))
                self._known_failures = self._inode.failed_syncs

    def excepthook(
        self, etype: type[BaseException] | None, evalue: BaseException | None, etraceback: TracebackType | None
    ) -> bool:
        """Say nothing of an injected error where SQLite goes on without its caller knowing."""
        return isinstance(evalue, apsw.Error) or super().excepthook(etype, evalue, etraceback)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        """Read, or fail."""
        if error := self._disk.struck(Operation.READ):
            raise error
        return super().xRead(amount, offset)

    def xWrite(self, data: Buffer, offset: int) -> None:  # noqa: N802
        """Write; a write that fails has left its first half behind, as a disk that runs full does."""
        written = bytes(data)
        error = self._disk.struck(Operation.WRITE)
        if error:
            written = written[: len(written) // 2 // SECTOR_BYTES * SECTOR_BYTES]
        if written:
            super().xWrite(written, offset)
            if self._inode is not None:
                with self._disk._lock:
                    self._inode.wrote(offset, written)
        if error:
            raise error

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        """Truncate, or fail."""
        if error := self._disk.struck(Operation.TRUNCATE):
            raise error
        super().xTruncate(newsize)
        if self._inode is not None:
            with self._disk._lock:
                self._inode.truncated(newsize)

    def xFileControl(self, op: int, ptr: int) -> bool:  # noqa: N802
        """Pass on what SQLite says or asks; it says when a commit is done."""
        known = super().xFileControl(op, ptr)
        if op == apsw.SQLITE_FCNTL_COMMIT_PHASETWO and (error := self._disk.struck(Operation.COMMITTED)):
            raise error
        return known

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Sync; where that fails the kernel forgets what it could not write and tells every open file of it, once.

        The real file is not synced: what is durable is for the image to say, and no test cuts the real power.
        """
        disk, inode, path = self._disk, self._inode, self._path
        # Under the lock, so that nothing reaches the disk between the cut that a hook makes and this sync.
        with disk._lock:
            if disk.before_sync is not None and path is not None:
                disk.before_sync(path)
            error = disk.struck(Operation.SYNC)
            if inode is None or path is None:
                if error:
                    raise error
                return
            if error:
                inode.fail_to_sync()
            else:
                disk.image.synced(path, inode)
            known, self._known_failures = self._known_failures, inode.failed_syncs
            if error or max(known, inode.repaired_syncs) < inode.failed_syncs:
                raise error or apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)

"""The ledger's files: private to their owner, and the same files at their path as long as they are open."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rankd.errors import LedgerDamaged, LedgerUnavailable
from rankd.folder import check_private_file, private_opener

_PARTS = ("", "-wal", "-shm")
_Inodes = list[tuple[int, int] | None]


class LedgerPath:
    """The path of a ledger, and the inodes of its files when it was opened."""

    def __init__(self, path: str) -> None:
        """Check that the files are private, and that no log is applied to another file."""
        self.path = path
        self._opened: _Inodes = []
        for part in (*_PARTS, "-journal"):
            check_private_file(Path(path + part))
        with suppress(FileExistsError):  # SQLite copies the mode of this file to its others
            os.close(private_opener(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        log = Path(f"{path}-wal")
        if os.stat(path).st_size == 0 and log.exists() and log.stat().st_size > 0:
            raise LedgerDamaged(
                f"{path} is missing, and its log is there: put it back, or restore a copy of the data folder"
            )

    def remember(self) -> None:
        """Store the inodes of the open files."""
        self._opened = self._inodes()

    def is_same(self) -> bool:
        """Return whether the path still has the open files."""
        return self._inodes() == self._opened

    def _inodes(self) -> _Inodes:
        inodes: _Inodes = []
        for part in _PARTS:
            try:
                status = os.lstat(self.path + part)
            except OSError:
                inodes.append(None)
            else:
                inodes.append((status.st_dev, status.st_ino))
        return inodes

    def moved(self) -> LedgerUnavailable:
        """Return the error for a write to moved files."""
        return LedgerUnavailable(
            f"{self.path} or its log was moved, removed or replaced while it was open, so nothing is written any more: "
            "stop this process, put back what was moved, and start it again",
            public_message="the ledger is not where it was: nothing is written until the operator has put it back",
        )

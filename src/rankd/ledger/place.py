"""Where the ledger's files are: nobody else's to read, and at their path the same files as long as they are open."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rankd.errors import LedgerDamaged, LedgerUnavailable
from rankd.folder import check_private_file, private_opener

_PARTS = ("", "-wal", "-shm")
_Inodes = list[tuple[int, int] | None]


class Place:
    """The path of a ledger, and which files were there when it was opened."""

    def __init__(self, path: str) -> None:
        """See that nobody else can read the files, and that no log is applied to a file it is not of."""
        self.path = path
        self._opened: _Inodes = []
        for part in (*_PARTS, "-journal"):
            check_private_file(Path(path + part))
        with suppress(FileExistsError):  # SQLite gives its other files the rights of this one
            os.close(private_opener(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        log = Path(f"{path}-wal")
        if os.stat(path).st_size == 0 and log.exists() and log.stat().st_size > 0:
            raise LedgerDamaged(
                f"{path} is missing, and its log is there: put it back, or restore a copy of the data folder"
            )

    def remember(self) -> None:
        """Take the files that are there for those that are open."""
        self._opened = self._inodes()

    def is_same(self) -> bool:
        """Tell whether those files are still there."""
        return self._inodes() == self._opened

    def _inodes(self) -> _Inodes:
        inodes: _Inodes = []
        for part in _PARTS:
            try:
                found = os.lstat(self.path + part)
            except OSError:
                inodes.append(None)
            else:
                inodes.append((found.st_dev, found.st_ino))
        return inodes

    def moved(self) -> LedgerUnavailable:
        """Return the error of whoever would write to files that are not there any more."""
        return LedgerUnavailable(
            f"{self.path} or its log was moved, removed or replaced while it was open, so nothing is written any more: "
            "stop this process, put back what was moved, and start it again",
            told="the ledger is not where it was: nothing is written until whoever runs the server has put it back",
        )

"""The data folder: made when it is missing, used by one process at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rankd.errors import FolderLocked, LedgerUnavailable

_LOCK_FILE = "lock"


class FolderLock:
    """Held from open to close; the system lets it go when the process ends in whatever way."""

    def __init__(self, folder: Path) -> None:
        """Take the lock, or say who has it."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise LedgerUnavailable(f"the data folder {folder} cannot be used: {problem.strerror}") from problem
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            os.close(self._file)
            by = f" (process {holder})" if holder.isdigit() else ""
            raise FolderLocked(
                f"the data folder {folder} is open in another process{by}; close that first"
            ) from problem
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let another process have the folder, though a forked child may still have the file open."""
        fcntl.flock(self._file, fcntl.LOCK_UN)
        os.close(self._file)

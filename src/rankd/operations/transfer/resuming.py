"""The progress of an import, in a small file beside the imported one until the import is complete.

It lets an import resume after the keys of its batches have expired. One file may be imported into several boards of
several targets, so each of them has its own record.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

ENDING = ".rankd-import"
VERSION = 1


class ImportProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of one import."""

    destination: str  # the data folder, or the server's address
    board: str
    fingerprint: str  # of the file's content
    format: str
    batch_events: int
    run: str  # part of the keys of an import begun anew without resuming, else empty
    batches: int  # sent so far
    line: int  # the last line of them
    position: str | None  # of the ledger after them


class _IncompleteImports(msgspec.Struct, frozen=True):
    version: int
    imports: list[ImportProgress]


class ProgressFile:
    """The progress of all incomplete imports of one file."""

    def __init__(self, imported: Path) -> None:
        """Nothing is read or written yet."""
        self.path = imported.with_name(imported.name + ENDING)

    def find(self, destination: str, board: str) -> ImportProgress | None:
        """Return the progress of an import into a board; None when there is none, or it cannot be read."""
        return next((entry for entry in self._read() if (entry.destination, entry.board) == (destination, board)), None)

    def note(self, reached: ImportProgress) -> None:
        """Store the progress of an import; without a writable folder, only the keys prevent double counting."""
        with suppress(OSError):
            self._write([*self._others(reached.destination, reached.board), reached])

    def forget(self, destination: str, board: str) -> None:
        """Remove the progress of a complete import."""
        with suppress(OSError):
            others = self._others(destination, board)
            if others:
                self._write(others)
            else:
                self.path.unlink(missing_ok=True)

    def _others(self, destination: str, board: str) -> list[ImportProgress]:
        return [entry for entry in self._read() if (entry.destination, entry.board) != (destination, board)]

    def _read(self) -> list[ImportProgress]:
        try:
            incomplete = msgspec.json.decode(self.path.read_bytes(), type=_IncompleteImports)
        except (OSError, ValueError):
            return []
        return incomplete.imports if incomplete.version == VERSION else []

    def _write(self, imports: list[ImportProgress]) -> None:
        draft = self.path.with_name(self.path.name + ".draft")
        try:
            with draft.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(_IncompleteImports(VERSION, imports))) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
        finally:
            draft.unlink(missing_ok=True)

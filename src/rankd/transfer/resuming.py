"""How far an import came: a small file beside the imported one, there while an import is not complete.

It lets an import go on when the keys of its batches are forgotten. One file may be imported into several boards of
several targets, so each of them has its own note.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

ENDING = ".rankd-import"
VERSION = 1


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """How far one import came."""

    destination: str  # the data folder, or the server's address
    board: str
    fingerprint: str  # of the file's content
    format: str
    batch_events: int
    run: str  # part of the keys of an import that was begun anew on purpose, else empty
    batches: int  # that count
    line: int  # of the file, the last one of them
    position: str | None  # of the ledger, after them


class _Notes(msgspec.Struct, frozen=True):
    version: int
    imports: list[Reached]


class ProgressFile:
    """The notes of all imports of one file that are under way."""

    def __init__(self, imported: Path) -> None:
        """Nothing is read or written yet."""
        self.path = imported.with_name(imported.name + ENDING)

    def find(self, destination: str, board: str) -> Reached | None:
        """Return how far an import into a board came; None when there is no note, or none that can be read."""
        return next((one for one in self._read() if (one.destination, one.board) == (destination, board)), None)

    def note(self, reached: Reached) -> None:
        """Remember how far an import came; where nothing can be written beside the file, keys must do."""
        with suppress(OSError):
            self._write([*self._others(reached.destination, reached.board), reached])

    def forget(self, destination: str, board: str) -> None:
        """Take the note away: the import is complete."""
        with suppress(OSError):
            others = self._others(destination, board)
            if others:
                self._write(others)
            else:
                self.path.unlink(missing_ok=True)

    def _others(self, destination: str, board: str) -> list[Reached]:
        return [one for one in self._read() if (one.destination, one.board) != (destination, board)]

    def _read(self) -> list[Reached]:
        try:
            notes = msgspec.json.decode(self.path.read_bytes(), type=_Notes)
        except (OSError, ValueError):
            return []
        return notes.imports if notes.version == VERSION else []

    def _write(self, imports: list[Reached]) -> None:
        draft = self.path.with_name(self.path.name + ".draft")
        try:
            with draft.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(_Notes(VERSION, imports))) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
        finally:
            draft.unlink(missing_ok=True)

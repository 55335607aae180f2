"""A save of the engine under way: its instant is fixed, its file is written later."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Protocol, Self

from rankd.projection.port import START, Position


class Savable(Protocol):
    """The part of the native engine that a save needs."""

    def write_save(self, number: int, file: int) -> None:
        """Write a save to an open file."""

    def abandon_save(self, number: int) -> None:
        """End a save."""


class Saving:
    """A save that has begun: its file holds the store as it was then, whenever it is written.

    `write`, successful or not, or `abandon` ends it, and so does its garbage collection.
    """

    __slots__ = ("_native", "_number", "_positions")

    def __init__(self, native: Savable, number: int, positions: list[tuple[int, int, int]]) -> None:
        self._native = native
        self._number = number
        self._positions = {partition: Position(epoch, sequence) for partition, epoch, sequence in positions}

    def position(self, partition: int) -> Position:
        """Return a partition's position when the save began, which the file will hold."""
        return self._positions.get(partition, START)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file, complete or not at all, while batches and readers go on.

        Raises SaveInterrupted when too much changed meanwhile or the save was abandoned: begin another. Raises OSError
        when the file cannot be written.
        """
        target = Path(path)
        try:
            # A unique name for each call: several stores may save to the same path at once.
            file, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".draft", dir=target.parent)
        except OSError:
            self.abandon()
            raise
        draft = Path(name)
        try:
            try:
                self._native.write_save(self._number, file)
                os.fsync(file)
            finally:
                os.close(file)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def abandon(self) -> None:
        """End the save without a file; a `write` in another thread stops. Does nothing after the end."""
        self._native.abandon_save(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def __del__(self) -> None:
        self.abandon()  # the engine would keep undo records for ever

"""A save of the engine under way: its instant is past, its file is written whenever somebody does it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Protocol, Self

from rankd.projection.port import START, Position


class Savable(Protocol):
    """What a save needs of the native engine."""

    def write_save(self, number: int, file: int) -> None:
        """Write a save to an open file."""

    def abandon_save(self, number: int) -> None:
        """End a save."""


class Saving:
    """A save that has begun: it shows its store as it was then, whenever it is written.

    It ends by `write`, whatever comes of that, or by `abandon`; one that is forgotten ends by itself.
    """

    __slots__ = ("_native", "_number", "_positions")

    def __init__(self, native: Savable, number: int, positions: list[tuple[int, int, int]]) -> None:
        """Made by `EngineStore.begin_save`."""
        self._native = native
        self._number = number
        self._positions = {partition: Position(epoch, sequence) for partition, epoch, sequence in positions}

    def position(self, partition: int = 0) -> Position:
        """Return how far a partition was applied when the save began: the position that the file will hold."""
        return self._positions.get(partition, START)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file, complete or not at all, while batches and readers go on.

        SaveInterrupted when too much changed meanwhile or the save was abandoned: begin another. OSError when the file
        cannot be written.
        """
        target = Path(path)
        try:
            # A name of its own for each call: several stores may save to the same path at once.
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
        """End the save without a file; a `write` at work in another thread gives up. Does nothing when it has ended."""
        self._native.abandon_save(self._number)

    def __enter__(self) -> Self:
        """Return the save; it ends with the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Abandon what was not written."""
        self.abandon()

    def __del__(self) -> None:
        """Abandon what nobody will write any more: it would keep changes for ever."""
        self.abandon()

"""What a disk holds after the power was cut: everything synced, and of the rest as much as chance has it."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

SECTOR_BYTES = 512


class Unsynced(Enum):
    """What becomes, at a power cut, of writes that were not synced."""

    DROPPED = "dropped"
    WRITTEN = "written"
    SOME = "some"  # each write arrives or does not, whatever their order was
    TORN = "torn"  # each sector of each write does


@dataclass(frozen=True)
class _Write:
    offset: int
    data: bytes

    def sectors(self) -> list[_Write]:
        pieces, at = [], 0
        while at < len(self.data):
            end = at + SECTOR_BYTES - (self.offset + at) % SECTOR_BYTES
            pieces.append(_Write(self.offset + at, self.data[at:end]))
            at = end
        return pieces


@dataclass(frozen=True)
class _Truncate:
    size: int


@dataclass
class Inode:
    """A file's content, whatever it is called: what was synced, and the changes since in their order."""

    synced: bytearray
    syncs_folder: bool
    unsynced: list[_Write | _Truncate] = field(default_factory=list)
    failed_syncs: int = 0
    repaired_syncs: int = 0  # failed ones that need no report any more

    def wrote(self, offset: int, data: bytes) -> None:
        """Take note of a write."""
        self.unsynced.append(_Write(offset, data))

    def truncated(self, size: int) -> None:
        """Take note of a new length."""
        self.unsynced.append(_Truncate(size))

    def sync(self) -> None:
        """Make every change so far durable."""
        for change in self.unsynced:
            _make(change, self.synced)
        self.unsynced.clear()

    def fail_to_sync(self) -> None:
        """Lose the changes for good though readers still see them: only writing them again will help."""
        self.unsynced.clear()
        self.failed_syncs += 1

    def after_cut(self, unsynced: Unsynced, rng: random.Random) -> bytes:
        """Return what is found when the power is back."""
        content = bytearray(self.synced)
        if unsynced is not Unsynced.DROPPED:
            for change in self.unsynced:
                parts = change.sectors() if unsynced is Unsynced.TORN and isinstance(change, _Write) else [change]
                for part in parts:
                    if unsynced is Unsynced.WRITTEN or rng.random() < 0.5:
                        _make(part, content)
        return bytes(content)


def _make(change: _Write | _Truncate, content: bytearray) -> None:
    size = change.size if isinstance(change, _Truncate) else change.offset
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    if isinstance(change, _Truncate):
        del content[size:]
    else:
        content[size : size + len(change.data)] = change.data


class DiskImage:
    """All files that were opened through a disk: those that are there, and those a power cut would leave.

    A new file's name is durable from the first sync of the file, or of its folder; a deleted one's absence from the
    next sync of the folder. There is one folder as far as the image is concerned.
    """

    def __init__(self) -> None:
        self._named: dict[str, Inode] = {}
        self._durable: dict[str, Inode] = {}

    def opened(self, path: str, *, exists: bool, syncs_folder: bool) -> Inode:
        """Return the file behind a name, a new one where nothing was found."""
        inode = self._named.get(path)
        if inode is None:
            inode = Inode(
                bytearray(Path(path).read_bytes() if exists else b""), syncs_folder=syncs_folder and not exists
            )
            self._named[path] = inode
            if exists:
                self._durable[path] = inode
        return inode

    def synced(self, path: str, inode: Inode) -> None:
        """Make a file's content and name durable."""
        inode.sync()
        if inode.syncs_folder:
            inode.syncs_folder = False
            self._durable = dict(self._named)
        elif self._named.get(path) is inode:
            self._durable[path] = inode

    def deleted(self, path: str, *, folder_synced: bool) -> None:
        """Take a name away."""
        self._named.pop(path, None)
        if folder_synced:
            self._durable = dict(self._named)

    def repair(self) -> None:
        """Forget about syncs that failed."""
        for inode in self._named.values():
            inode.repaired_syncs = inode.failed_syncs

    def after_cut(self, unsynced: Unsynced, rng: random.Random) -> dict[str, bytes]:
        """Return the files, by path, that are found when the power is back."""
        if unsynced is Unsynced.DROPPED:
            names = self._durable
        elif unsynced is Unsynced.WRITTEN:
            names = self._named
        else:
            names = {}
            for path in sorted({*self._named, *self._durable}):
                inode = rng.choice([self._named, self._durable]).get(path)
                if inode is not None:
                    names[path] = inode
        return {path: inode.after_cut(unsynced, rng) for path, inode in names.items()}

    def write_after_cut(self, folder: Path, into: Path, unsynced: Unsynced, rng: random.Random) -> None:
        """Make a copy of a folder as it is found when the power is back.

        Files that did not go through the disk are copied as they are.
        """
        files = self.after_cut(unsynced, rng)
        into.mkdir(parents=True)
        # Not rglob, which raises where a writer beside us takes a folder away.
        paths = [Path(where) / name for where, folders, files in os.walk(folder) for name in (*folders, *files)]
        for path in sorted(paths):
            copy = into / path.relative_to(folder)
            if path.is_dir():
                copy.mkdir()
            elif str(path.absolute()) not in self._named:
                try:
                    copy.write_bytes(path.read_bytes())
                except FileNotFoundError:  # A writer beside us may rename what it has finished.
                    continue
        for name, content in files.items():
            (into / Path(name).relative_to(folder.absolute())).write_bytes(content)

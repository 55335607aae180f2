"""Snapshots: the ranks and what the applier remembers, as of one commit, in a folder that is complete or absent.

    snapshots/00000000000000123456/   engine.rankd   the rank store, with checksums of its own
                                      state.rankd    position, seal and state, with a checksum

A snapshot only saves time: whatever it holds follows from the ledger, and one that does not verify is passed over.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import msgspec

from rankd.errors import LedgerDamaged, SnapshotDamaged, SnapshotNewer, SnapshotUnreadable
from rankd.folder import FOLDER_MODE, private_opener
from rankd.ledger.port import Head
from rankd.projection.catalogue import Catalogue, Definition
from rankd.projection.engine import EngineStore
from rankd.projection.saving import Saving
from rankd.projection.state import State

STATE_VERSION = 1
_MAGIC = b"RANKDSTA"
_CHECKSUM_BYTES = 16
_ENGINE_FILE = "engine.rankd"
_STATE_FILE = "state.rankd"
_DRAFT = "draft-"
_log = logging.getLogger("rankd")
_encode = msgspec.json.encode


class Saved(msgspec.Struct):
    """What `state.rankd` holds."""

    sequence: int
    seal: str  # hexadecimal
    definitions: list[Definition]
    state: State


_decode = msgspec.json.Decoder(Saved).decode


class Taken:
    """A snapshot that is begun: its instant is fixed, and writing it may take its time."""

    def __init__(self, saving: Saving, head: Head, catalogue: Catalogue, state: State) -> None:
        """To be made between two commits."""
        self.sequence = head.sequence
        self._saving = saving
        payload = _encode(Saved(head.sequence, head.seal.hex(), catalogue.definitions(), state))
        version = STATE_VERSION.to_bytes(4, "little")
        self._state = _MAGIC + version + blake2b(payload, digest_size=_CHECKSUM_BYTES).digest() + payload

    def write(self, folder: Path) -> Path:
        """Write the snapshot into a folder of its own, complete or absent."""
        target = folder / f"{self.sequence:020}"
        draft = folder / f"{_DRAFT}{self.sequence:020}"
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir(FOLDER_MODE)
            self._saving.write(draft / _ENGINE_FILE)
            with open(draft / _STATE_FILE, "wb", opener=private_opener) as file:
                file.write(self._state)
                file.flush()
                os.fsync(file.fileno())
            sync_folder(draft)
            shutil.rmtree(target, ignore_errors=True)
            draft.replace(target)
            sync_folder(folder)
        except BaseException:
            self._saving.abandon()
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return target


class Snapshots:
    """The snapshots of a data folder."""

    def __init__(self, folder: Path, kept: int) -> None:
        """`kept` is how many of the newest are kept."""
        self._folder = folder
        self._kept = kept
        self.passed_over = 0
        folder.mkdir(FOLDER_MODE, exist_ok=True)

    def write(self, taken: Taken) -> Path:
        """Write a snapshot and let the oldest go."""
        path = taken.write(self._folder)
        for old in self._all()[self._kept :]:
            shutil.rmtree(old, ignore_errors=True)
        return path

    def newest(self, head: Head, seal_at: Callable[[int], bytes | None]) -> tuple[EngineStore, Saved] | None:
        """Load the newest that verifies; None when there is none. `seal_at` is the ledger's seal at a commit's end."""
        for stale in self._folder.glob(f"{_DRAFT}*"):
            shutil.rmtree(stale, ignore_errors=True)
        for path in self._all():
            try:
                saved = _read_state(path / _STATE_FILE)
                if saved.sequence > head.sequence:
                    raise LedgerDamaged(
                        f"the ledger ends at event {head.sequence}, and a snapshot holds event {saved.sequence}: "
                        "its log is damaged; restore a copy of the data folder. If an older copy of the ledger was put "
                        "here on purpose, take snapshots away"
                    )
                if seal_at(saved.sequence) != bytes.fromhex(saved.seal):
                    raise SnapshotDamaged("it is not of this ledger")
                store = EngineStore.load(path / _ENGINE_FILE)
                if store.position().sequence != saved.sequence:
                    raise SnapshotDamaged("its two files are of different instants")
            except (SnapshotUnreadable, OSError) as problem:
                # As text: whoever keeps the record would keep the half-loaded engine with the error.
                _log.warning("snapshot %s is passed over: %s", path.name, str(problem))
                self.passed_over += 1
                continue
            return store, saved
        return None

    def _all(self) -> list[Path]:
        return sorted((path for path in self._folder.iterdir() if path.name.isdigit()), reverse=True)


def _read_state(path: Path) -> Saved:
    written = path.read_bytes()
    start = len(_MAGIC) + 4 + _CHECKSUM_BYTES
    if written[: len(_MAGIC)] != _MAGIC or len(written) < start:
        raise SnapshotDamaged(f"{path.name} is no state of a snapshot")
    version = int.from_bytes(written[len(_MAGIC) : len(_MAGIC) + 4], "little")
    payload = written[start:]
    if blake2b(payload, digest_size=_CHECKSUM_BYTES).digest() != written[len(_MAGIC) + 4 : start]:
        raise SnapshotDamaged(f"{path.name} is damaged: use an older snapshot")
    if version > STATE_VERSION:
        raise SnapshotNewer(f"{path.name} has version {version}: upgrade rankd to read it")
    return _decode(payload)


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

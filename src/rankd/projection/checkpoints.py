"""The ranks of a follower in files, so that it need not read the whole ledger after a restart.

    <folder>/<events>/   engine.rankd   the engine, with checksums of its own
                         state.rankd    positions, definitions and state, with a checksum

A checkpoint only saves time: what it holds follows from the ledger, and one that does not verify is passed over.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, NamedTuple

import msgspec

from rankd.errors import LedgerDamaged, SnapshotDamaged, SnapshotNewer, SnapshotUnreadable
from rankd.folder import FOLDER_MODE, private_opener
from rankd.ledger.port import Heads, Ledger
from rankd.projection.catalogue import Catalogue, Definition
from rankd.projection.encoding import encoded_in_parts
from rankd.projection.follower import Follower, Store
from rankd.projection.saving import Saving
from rankd.projection.state import State

FORMAT = 1
_MAGIC = b"RANKDCHK"
_CHECKSUM_BYTES = 16
_ENGINE_FILE = "engine.rankd"
_STATE_FILE = "state.rankd"
_DRAFT = "draft-"
_log = logging.getLogger("rankd")


class _Saved(msgspec.Struct):
    """What `state.rankd` holds."""

    stamp: str  # of the ledger at these positions
    positions: tuple[int, ...]
    ordinal: int
    controls: int
    definitions: list[Definition]
    state: State


_decode = msgspec.json.Decoder(_Saved).decode


class LoadedCheckpoint(NamedTuple, Generic[Store]):
    """What a follower continues from."""

    store: Store
    state: State
    catalogue: Catalogue
    ordinal: int
    controls: int


class Checkpoints:
    """The checkpoints of one follower."""

    def __init__(self, folder: Path, kept: int = 2) -> None:
        """`kept` is how many of the newest are kept."""
        self._folder = folder
        self._kept = kept
        self.passed_over = 0  # by `newest`: those that did not verify
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)

    def begin(self, ledger: Ledger, follower: Follower[Any]) -> Checkpoint:
        """Fix the instant of a checkpoint; between two steps of its follower."""
        stamp = ledger.stamp(follower.positions)
        if stamp is None:
            raise AssertionError("a checkpoint is begun between two commits")
        saved = _Saved(
            stamp,
            follower.positions,
            follower.ordinal,
            follower.controls,
            follower.applier.catalogue.definitions(),
            follower.applier.state,
        )
        return Checkpoint(self._folder, follower.store.begin_save(), saved, self._kept)

    def newest(self, ledger: Ledger, heads: Heads, load: Callable[[Path], Store]) -> LoadedCheckpoint[Store] | None:
        """Load the newest that verifies and is of this ledger; None when there is none."""
        for stale in self._folder.glob(f"{_DRAFT}*"):
            shutil.rmtree(stale, ignore_errors=True)
        for path in checkpoints_in(self._folder):
            try:
                return _load(path, ledger, heads, load)
            except (SnapshotUnreadable, OSError) as problem:
                self.passed_over += 1
                # As text: whoever keeps the record would keep the half-loaded engine with the error.
                _log.warning("checkpoint %s is passed over: %s", path.name, str(problem))
        return None


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class Checkpoint:
    """A checkpoint whose instant is fixed; writing it may take its time, in another thread."""

    def __init__(self, folder: Path, saving: Saving, saved: _Saved, kept: int) -> None:
        """Made by `Checkpoints.begin`."""
        self._folder = folder
        self._saving = saving
        self._kept = kept
        self.events = sum(saved.positions)
        self._name = f"{self.events:020}"
        payload = b"".join(encoded_in_parts(saved))
        head = _MAGIC + FORMAT.to_bytes(4, "little")
        self._state = head + blake2b(payload, digest_size=_CHECKSUM_BYTES).digest() + payload

    def write(self) -> None:
        """Write it, complete or not at all, and let the oldest go."""
        target, draft = self._folder / self._name, self._folder / f"{_DRAFT}{self._name}"
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
            sync_folder(self._folder)
        except BaseException:
            self._saving.abandon()
            shutil.rmtree(draft, ignore_errors=True)
            raise
        for old in checkpoints_in(self._folder)[self._kept :]:
            shutil.rmtree(old, ignore_errors=True)


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, the newest first."""
    return sorted((path for path in folder.iterdir() if path.name.isdigit()), reverse=True)


def _load(path: Path, ledger: Ledger, heads: Heads, load: Callable[[Path], Store]) -> LoadedCheckpoint[Store]:
    saved = _read(path / _STATE_FILE)
    is_ahead = any(ours > theirs for ours, theirs in zip(saved.positions, heads.sequences, strict=False))
    if is_ahead and ledger.capabilities.is_sole_writer:
        raise LedgerDamaged(
            f"the ledger ends at event {sum(heads.sequences)}, and a checkpoint holds event {sum(saved.positions)}: "
            "its log is damaged; restore a copy of the data folder. If an older copy of the ledger was put here on "
            f"purpose, take {path.parent.name} away"
        )
    if ledger.stamp(saved.positions) != saved.stamp or len(saved.positions) != ledger.partitions:
        raise SnapshotDamaged("it is of another ledger")
    if is_ahead:
        raise SnapshotDamaged("it holds events that the ledger does not have; was an older copy of it restored?")
    store = load(path / _ENGINE_FILE)
    if any(store.position(partition).sequence != one for partition, one in enumerate(saved.positions)):
        raise SnapshotDamaged("its two files are of different instants")
    return LoadedCheckpoint(store, saved.state, Catalogue.of(saved.definitions), saved.ordinal, saved.controls)


def _read(path: Path) -> _Saved:
    written = path.read_bytes()
    start = len(_MAGIC) + 4 + _CHECKSUM_BYTES
    if written[: len(_MAGIC)] != _MAGIC or len(written) < start:
        raise SnapshotDamaged(f"{path.name} is no state of a checkpoint")
    payload = written[start:]
    if blake2b(payload, digest_size=_CHECKSUM_BYTES).digest() != written[len(_MAGIC) + 4 : start]:
        raise SnapshotDamaged(f"{path.name} is damaged")
    version = int.from_bytes(written[len(_MAGIC) : len(_MAGIC) + 4], "little")
    if version > FORMAT:
        raise SnapshotNewer(f"{path.name} has version {version}: upgrade rankd to read it")
    return _decode(payload)

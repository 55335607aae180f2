"""Checkpoints: a follower's ranks in files, so that a restart replays only the events after them.

    <folder>/<events>/   engine.rankd   the engine's snapshot, with its own checksums
                         state.rankd    positions, definitions and state, with a checksum
                         keys.rankd     of a log: the keys of late, with a checksum

A checkpoint only saves time: the ledger stays the truth, and the follower skips a checkpoint that does not verify.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rankd.errors import LedgerDamaged, SnapshotDamaged, SnapshotNewer, SnapshotUnreadable
from rankd.folder import FOLDER_MODE, private_opener, sync_folder
from rankd.ledger.port import Heads, Ledger
from rankd.ledger.vector import reaches
from rankd.projection.catalogue import Catalogue, Definition
from rankd.projection.encoding import decode_native, encoded_in_parts
from rankd.projection.follower import Follower, Store
from rankd.projection.log_state import KEYS_FILE, LogStateSnapshot, SavedPartition, load_log_state, write_keys
from rankd.projection.saving import Saving
from rankd.projection.state import State

FORMAT = 3
_MAGIC = b"RANKDCHK"
_CHECKSUM_BYTES = 16
_ENGINE_FILE = "engine.rankd"
_STATE_FILE = "state.rankd"
_DRAFT = "draft-"
_log = logging.getLogger("rankd")


class _Saved(msgspec.Struct):
    """The contents of `state.rankd`."""

    stamp: str  # of the ledger at these positions
    positions: tuple[int, ...]
    ordinal: int
    controls: int
    definitions: list[Definition]
    state: State
    log: list[SavedPartition] | None = None  # by partition, where the ledger is a log


FollowerType = TypeVar("FollowerType", bound=Follower[Any])
_decode = msgspec.json.Decoder(_Saved, dec_hook=decode_native).decode


class Checkpoints:
    """The checkpoints of one follower."""

    def __init__(self, folder: Path, kept: int = 2, *, is_written: bool = True) -> None:
        """`kept` is how many checkpoints stay on disk, the newest ones; only one process writes them."""
        self._folder = folder
        self._kept = kept
        self._is_written = is_written
        self.skipped = 0  # checkpoints that `newest` skipped because they did not verify
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)

    def begin(self, ledger: Ledger, follower: Follower[Any]) -> Checkpoint:
        """Fix the instant of a checkpoint; call it between two steps of the follower."""
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
        log = None if follower.admission is None else LogStateSnapshot(follower.admission.state)
        if log is not None:
            saved.log = log.partitions
        return Checkpoint(self._folder, follower.store.begin_save(), saved, self._kept, log)

    def newest(
        self,
        ledger: Ledger,
        heads: Heads,
        load: Callable[[Path], Store],
        follow: Callable[..., FollowerType],
    ) -> FollowerType | None:
        """Return a follower that continues from the newest checkpoint of this ledger that verifies; None without one.

        `load` opens a store, `follow` makes a follower.
        """
        if self._is_written:
            for stale in self._folder.glob(f"{_DRAFT}*"):
                shutil.rmtree(stale, ignore_errors=True)
        for path in checkpoints_in(self._folder):
            try:
                return _load(path, _read(path / _STATE_FILE), ledger, heads.sequences, load=load, follow=follow)
            except (SnapshotUnreadable, OSError) as problem:
                self.skipped += 1
                # As text: a log record with the error itself would keep the half-loaded engine alive.
                _log.warning("checkpoint %s is skipped: %s", path.name, str(problem))
        return None

    def newest_upto(
        self,
        ledger: Ledger,
        upto: Sequence[int],
        load: Callable[[Path], Store],
        follow: Callable[..., FollowerType],
    ) -> FollowerType | None:
        """Return a follower that continues from the newest checkpoint that holds nothing behind `upto`; None without.

        Any thread may call it, also while another checkpoint is written or this one is deleted.
        """
        for path in checkpoints_in(self._folder):
            if int(path.name) > sum(upto):
                continue
            try:
                saved = _read(path / _STATE_FILE)
                if reaches(upto, saved.positions):
                    return _load(path, saved, ledger, upto, load=load, follow=follow)
            except (SnapshotUnreadable, OSError) as problem:
                _log.warning("checkpoint %s is skipped: %s", path.name, str(problem))
        return None


class Checkpoint:
    """A checkpoint whose instant is fixed; another thread may write it later."""

    def __init__(
        self, folder: Path, saving: Saving, saved: _Saved, kept: int, log: LogStateSnapshot | None = None
    ) -> None:
        self._folder = folder
        self._saving = saving
        self._kept = kept
        self._log = log
        self.events = sum(saved.positions)
        self._name = f"{self.events:020}"
        self._state = list(encoded_in_parts(saved))

    def write(self) -> None:
        """Write the checkpoint, complete or not at all, and delete the oldest ones."""
        target, draft = self._folder / self._name, self._folder / f"{_DRAFT}{self._name}"
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir(FOLDER_MODE)
            self._saving.write(draft / _ENGINE_FILE)
            with open(draft / _STATE_FILE, "wb", opener=private_opener) as file:
                checksum = blake2b(digest_size=_CHECKSUM_BYTES)
                for part in self._state:
                    checksum.update(part)
                file.write(_MAGIC + FORMAT.to_bytes(4, "little") + checksum.digest())
                file.writelines(self._state)
                file.flush()
                os.fsync(file.fileno())
            if self._log is not None:
                write_keys(draft / KEYS_FILE, self._log)
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


def _load(
    path: Path,
    saved: _Saved,
    ledger: Ledger,
    heads: Sequence[int],
    *,
    load: Callable[[Path], Store],
    follow: Callable[..., FollowerType],
) -> FollowerType:
    is_ahead = any(ours > theirs for ours, theirs in zip(saved.positions, heads, strict=False))
    if is_ahead and ledger.capabilities.is_sole_writer:
        raise LedgerDamaged(
            f"the ledger ends at event {sum(heads)}, and a checkpoint holds event {sum(saved.positions)}: "
            "its log is damaged; restore a copy of the data folder. If an older copy of the ledger was put here on "
            f"purpose, take {path.parent.name} away"
        )
    if ledger.stamp(saved.positions) != saved.stamp or len(saved.positions) != ledger.partitions:
        raise SnapshotDamaged("it is of another ledger")
    if is_ahead:
        raise SnapshotDamaged("it holds events that the ledger does not have; was an older copy of it restored?")
    store = load(path / _ENGINE_FILE)
    if any(store.position(partition).sequence != sequence for partition, sequence in enumerate(saved.positions)):
        raise SnapshotDamaged("its two files are of different instants")
    catalogue = Catalogue.of(saved.definitions)
    if ledger.capabilities.appends_conditionally:
        return follow(ledger, store, saved.state, catalogue, ordinal=saved.ordinal, controls=saved.controls)
    if saved.log is None:
        raise SnapshotDamaged("it lacks what is known of a log")
    log = load_log_state(path / KEYS_FILE, saved.log)
    return follow(ledger, store, saved.state, catalogue, controls=saved.controls, log=log)


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
    if version < FORMAT:
        raise SnapshotDamaged(f"{path.name} was written by an older version: the ledger is followed from its beginning")
    return _decode(payload)

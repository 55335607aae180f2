"""What the follower of a log knows beside the ranks: the time of each partition, and the keys of late.

It is derived from the log alone, as of the applied positions, and saved in checkpoints.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes
from typing import Self

import msgspec

from rankd._columns import KeysSnapshot, RecentKeys
from rankd.errors import SnapshotDamaged
from rankd.folder import private_opener
from rankd.ledger.port import REPEATS_KNOWN_MS

KEYS_FILE = "keys.rankd"
HASH_KEY_BYTES = 16
_MAGIC = b"RANKDKEY"
_CHECKSUM_BYTES = 16
_SAVED_KEY_BYTES = 20
_READ_BYTES = 50_000 * _SAVED_KEY_BYTES  # at once


class LogState:
    """Times and recent keys, by partition."""

    def __init__(self, times: list[int], keys: list[RecentKeys]) -> None:
        self.times = times  # of the last applied place; they never go back
        self.keys = keys

    @classmethod
    def empty(cls, partitions: int) -> Self:
        """Return the state at the beginning of a log."""
        return cls([0] * partitions, [new_keys() for _ in range(partitions)])


def new_keys(hash_key: bytes | None = None) -> RecentKeys:
    """Return a set without keys; sets that exchange snapshots have the same hash key."""
    # A secret key: without it, no client can choose keys that crowd in one place.
    return RecentKeys(hash_key or token_bytes(HASH_KEY_BYTES), REPEATS_KNOWN_MS)


class SavedPartition(msgspec.Struct):
    """One partition of a saved log state; its keys stand in a file of their own, one partition after the other."""

    time: int
    hash_key: bytes
    keys_time: int
    keys: int  # their number


class LogStateSnapshot:
    """A log state as it was at an instant; another thread may write it later."""

    def __init__(self, state: LogState) -> None:
        self._keys: list[KeysSnapshot] = [keys.snapshot() for keys in state.keys]
        self.partitions = [
            SavedPartition(time, keys.key, keys.time, len(keys))
            for time, keys in zip(state.times, self._keys, strict=True)
        ]

    def parts(self) -> Iterator[bytes]:
        """Yield the bytes of the keys of all partitions."""
        for keys in self._keys:
            for index in range(keys.part_count):
                yield keys.part(index)


def write_keys(path: Path, snapshot: LogStateSnapshot) -> None:
    """Write the keys of a log state to a file, and make it durable."""
    with open(path, "wb", opener=private_opener) as file:
        checksum = blake2b(digest_size=_CHECKSUM_BYTES)
        file.write(_MAGIC)
        for part in snapshot.parts():
            checksum.update(part)
            file.write(part)
        file.write(checksum.digest())
        file.flush()
        os.fsync(file.fileno())


def load_log_state(path: Path, partitions: Sequence[SavedPartition]) -> LogState:
    """Return a saved log state, whose keys are in a file."""
    state = LogState([saved.time for saved in partitions], [new_keys(saved.hash_key) for saved in partitions])
    checksum = blake2b(digest_size=_CHECKSUM_BYTES)
    with open(path, "rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise SnapshotDamaged(f"{path.name} holds no keys")
        for saved, keys in zip(partitions, state.keys, strict=True):
            keys.reserve(saved.keys)
            left = saved.keys * _SAVED_KEY_BYTES
            while left:
                part = file.read(min(left, _READ_BYTES))
                checksum.update(part)
                try:
                    keys.restore(part, saved.keys_time)
                except ValueError as problem:
                    raise SnapshotDamaged(f"{path.name} is damaged") from problem
                if not part:
                    raise SnapshotDamaged(f"{path.name} is too short")
                left -= len(part)
        if file.read() != checksum.digest():
            raise SnapshotDamaged(f"{path.name} is damaged")
    return state

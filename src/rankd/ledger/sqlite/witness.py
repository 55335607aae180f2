"""The witness: a small file that records the last synced commit.

SQLite silently ends a damaged log at its first bad page; a ledger that ends before its witness has lost commits, and is
refused.
"""

from __future__ import annotations

import struct
from mmap import ACCESS_READ, mmap
from pathlib import Path
from zlib import crc32

from rankd.errors import LedgerDamaged, LedgerUnavailable
from rankd.folder import private_opener

WITNESS_NAME = "witness"
_FIELDS = struct.Struct("<4sQQ")  # magic, sequence, changes of the registry
_WITNESS = struct.Struct("<4sQQI")  # with their CRC-32
_WITNESS_MAGIC = b"RKW1"
_CHANGES = slice(12, 20)


class Witness:
    """A few bytes, overwritten at each commit without a sync: cheap, and lost only in a power cut.

    The file is memory-mapped, so recording a commit needs no system call.
    """

    def __init__(self, path: Path) -> None:
        """`check` opens the file."""
        self._path = path
        self._bytes: mmap | None = None
        self._sequence = self._changes = 0

    def check(self, sequence: int, changes: int) -> None:
        """Refuse a ledger that lacks acknowledged commits, and begin to record."""
        recorded = self._read()
        if recorded is not None and (recorded[0] > sequence or recorded[1] > changes):
            what = f"the ledger ends at event {sequence}, and event {recorded[0]} was acknowledged"
            if recorded[0] <= sequence:
                what = f"{changes} changes of profiles are there, and {recorded[1]} were acknowledged"
            raise LedgerDamaged(
                f"{what}: its log is damaged; restore a copy of the data folder. If an older copy of the ledger was "
                f"put here on purpose, take {WITNESS_NAME} and snapshots away"
            )
        try:
            self._bytes = self._map(_encode(sequence, changes))
            self._sequence, self._changes = sequence, changes
        except OSError as problem:
            raise LedgerUnavailable(
                f"{WITNESS_NAME} cannot be written ({problem}); make room, then try again"
            ) from problem

    def _map(self, content: bytes) -> mmap:
        # Written before it is mapped: a full disk is an error here, and would be a crash at the mapped page.
        with open(self._path, "r+b", buffering=0, opener=private_opener) as file:
            file.write(content)
            file.truncate(_WITNESS.size)
            return mmap(file.fileno(), _WITNESS.size)

    def _read(self) -> tuple[int, int] | None:
        with open(self._path, "a+b", opener=private_opener) as file:
            file.seek(0)
            written = file.read(_WITNESS.size)
        if len(written) != _WITNESS.size:
            return None
        magic, sequence, changes, stored_crc = _WITNESS.unpack(written)
        if magic != _WITNESS_MAGIC or stored_crc != crc32(written[:-4]):
            return None
        return sequence, changes

    def record(self, sequence: int | None = None, changes: int | None = None) -> None:
        """Record the last commit."""
        if sequence is not None:
            self._sequence = sequence
        if changes is not None:
            self._changes = changes
        if self._bytes is not None:
            self._bytes[:] = _encode(self._sequence, self._changes)

    def close(self) -> None:
        """Close the file."""
        if self._bytes is not None:
            self._bytes.close()
            self._bytes = None


class WitnessedChanges:
    """The number of registry changes in the witness of another process."""

    def __init__(self, path: Path) -> None:
        """The process that writes has created the file, and keeps it in place."""
        with open(path, "rb", opener=private_opener) as file:
            self._bytes = mmap(file.fileno(), _WITNESS.size, access=ACCESS_READ)

    def read(self) -> bytes:
        """Return bytes that differ after a change; they may be read while they are written, so they are no number."""
        return self._bytes[_CHANGES]

    def close(self) -> None:
        """Close the file."""
        self._bytes.close()


def _encode(sequence: int, changes: int) -> bytes:
    fields = _FIELDS.pack(_WITNESS_MAGIC, sequence, changes)
    return fields + crc32(fields).to_bytes(4, "little")

"""The witness: a small file that is told of each commit after it was synced.

SQLite ends a damaged log at the first bad page and says nothing; a ledger that ends before its witness has lost
something, and is refused.
"""

from __future__ import annotations

import struct
from mmap import mmap
from pathlib import Path
from zlib import crc32

from rankd.errors import LedgerDamaged, LedgerUnavailable
from rankd.folder import private_opener

WITNESS_NAME = "witness"
_TOLD = struct.Struct("<4sQQ")  # magic, sequence, changes of the registry
_WITNESS = struct.Struct("<4sQQI")  # and the CRC-32 of them
_WITNESS_MAGIC = b"RKW1"


class Witness:
    """A few bytes, overwritten at each commit: no sync, so it costs little and survives all but a power cut.

    The file is mapped, as SQLite maps its own index of the log: telling it is a copy in memory and no call.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is read before `check`."""
        self._path = path
        self._bytes: mmap | None = None
        self._sequence = self._changes = 0

    def check(self, sequence: int, changes: int) -> None:
        """Refuse a ledger that ends before what was acknowledged, and begin to be told."""
        seen = self._read()
        if seen is not None and (seen[0] > sequence or seen[1] > changes):
            what = f"the ledger ends at event {sequence}, and event {seen[0]} was acknowledged"
            if seen[0] <= sequence:
                what = f"{changes} changes of profiles are there, and {seen[1]} were acknowledged"
            raise LedgerDamaged(
                f"{what}: its log is damaged; restore a copy of the data folder. If an older copy of the ledger was "
                f"put here on purpose, take {WITNESS_NAME} and snapshots away"
            )
        try:
            self._bytes = self._map(_told(sequence, changes))
            self._sequence, self._changes = sequence, changes
        except OSError as problem:
            raise LedgerUnavailable(
                f"{WITNESS_NAME} cannot be written ({problem}); make room, then try again"
            ) from problem

    def _map(self, told: bytes) -> mmap:
        # Written once before it is mapped: a page that has no place on the disk could not be refused later.
        with open(self._path, "r+b", buffering=0, opener=private_opener) as file:
            file.write(told)
            file.truncate(_WITNESS.size)
            return mmap(file.fileno(), _WITNESS.size)

    def _read(self) -> tuple[int, int] | None:
        with open(self._path, "a+b", opener=private_opener) as file:
            file.seek(0)
            written = file.read(_WITNESS.size)
        if len(written) != _WITNESS.size:
            return None
        magic, sequence, changes, told = _WITNESS.unpack(written)
        if magic != _WITNESS_MAGIC or told != crc32(written[:-4]):
            return None
        return sequence, changes

    def tell(self, sequence: int | None = None, changes: int | None = None) -> None:
        """Note what was committed."""
        self._sequence = self._sequence if sequence is None else sequence
        self._changes = self._changes if changes is None else changes
        if self._bytes is not None:
            self._bytes[:] = _told(self._sequence, self._changes)

    def close(self) -> None:
        """Let the file go."""
        if self._bytes is not None:
            self._bytes.close()
            self._bytes = None


def _told(sequence: int, changes: int) -> bytes:
    told = _TOLD.pack(_WITNESS_MAGIC, sequence, changes)
    return told + crc32(told).to_bytes(4, "little")

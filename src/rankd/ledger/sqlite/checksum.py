"""Checksums of rows that no seal covers: those outside the log, or that may be overwritten."""

from __future__ import annotations

from zlib import crc32

import msgspec

from rankd.errors import LedgerDamaged

_BYTES = 4


def checksum(*values: object) -> int:
    """Return the CRC-32 of some values, as MessagePack."""
    return crc32(msgspec.msgpack.encode(values))


def check(what: str, stored: object, *values: object) -> None:
    """Refuse a row whose checksum does not match."""
    if stored != checksum(*values):
        raise LedgerDamaged(f"{what} is damaged; restore a copy of the data folder")


def with_checksum(packed: bytes) -> bytes:
    """Return bytes followed by their checksum."""
    return packed + crc32(packed).to_bytes(_BYTES, "little")


def without_checksum(what: str, stored: bytes) -> bytes:
    """Return the bytes without their checksum, or refuse them."""
    packed = stored[:-_BYTES]
    if stored != with_checksum(packed):
        raise LedgerDamaged(f"{what} is damaged; restore a copy of the data folder")
    return packed

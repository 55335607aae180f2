"""Checksums of rows that no seal covers: what is not a log, or may have to be overwritten."""

from __future__ import annotations

from zlib import crc32

import msgspec

from rankd.errors import LedgerDamaged

_BYTES = 4


def checksum(*values: object) -> int:
    """Return the CRC-32 of some values, as MessagePack."""
    return crc32(msgspec.msgpack.encode(values))


def check(what: str, stored: object, *values: object) -> None:
    """Refuse a row whose checksum does not hold."""
    if stored != checksum(*values):
        raise LedgerDamaged(f"{what} is damaged; restore a copy of the data folder")


def with_checksum(packed: bytes) -> bytes:
    """Return bytes with their checksum behind them."""
    return packed + crc32(packed).to_bytes(_BYTES, "little")


def without_checksum(what: str, stored: bytes) -> bytes:
    """Return what `with_checksum` was given."""
    packed = stored[:-_BYTES]
    if stored != with_checksum(packed):
        raise LedgerDamaged(f"{what} is damaged; restore a copy of the data folder")
    return packed

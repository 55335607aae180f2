"""A segment: what a ledger has that the segments before it lack, as one immutable object.

    magic, version, length and digest of the header ▸ header (JSON) ▸ payload (MessagePack, zlib)

Segments are numbered from 1 without gaps. Each names the digest of the one before, and where both end, so that one
that is missing, swapped or of another ledger is noticed.
"""

from __future__ import annotations

import zlib
from hashlib import blake2b
from struct import Struct

import msgspec

from rankd.backup.columns import TABLES, Columns, PackedColumns, pack, unpack
from rankd.errors import ArchiveDamaged

FORMAT = 1
DIGEST_BYTES = 16
_MAGIC = b"RANKDSEG"
_PREFIX = Struct(f"<8sII{DIGEST_BYTES}s")  # magic, version, bytes of the header, its digest
PREFIX_BYTES = _PREFIX.size
_PAYLOAD_BYTES_MAX = 4 * 1024**3  # uncompressed


class LedgerCursor(msgspec.Struct, frozen=True):
    """How far a ledger is copied."""

    sequence: int = 0  # of the last event
    seal: str = ""  # of the commit that it ended
    players: int = 0  # the highest number
    contexts: int = 0
    changes: int = 0  # of the registry, by its log
    requests_at: int = 0  # older requests are copied, but for answers that came later
    last_player: str = ""  # digest of the id behind that number: no seal covers ids
    last_change: str = ""  # digest of whose profile or list it was: nor the registry


class SegmentHeader(msgspec.Struct, frozen=True):
    """What a segment is, without its rows."""

    number: int  # from 1
    ledger: str  # its identity
    previous: str  # digest of the segment before; "" for the first
    writer: str  # the folder that wrote it
    generation: int  # from 1; each takeover by another folder adds one
    after: LedgerCursor
    upto: LedgerCursor
    is_complete: bool  # whether a folder restored up to here is that of one moment
    at: int  # the ledger's time at the last commit
    read_at: int  # when it was read, by the writer's clock
    every_ms: int  # how often the writer sends
    rows: dict[str, int]
    payload_bytes: int  # uncompressed
    payload_digest: str


class Segment(msgspec.Struct, frozen=True):
    """A segment with its rows."""

    header: SegmentHeader
    tables: dict[str, Columns]
    digest: str  # of the whole object
    prefix: bytes  # its first bytes, by which it is recognised


def digest_of(data: bytes) -> str:
    """Return the digest of an object."""
    return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def encode_payload(tables: dict[str, Columns]) -> tuple[bytes, int]:
    """Return the compressed rows, and how long they are uncompressed."""
    packed = {name: pack(TABLES[name], columns) for name, columns in tables.items() if columns and columns[0]}
    payload = msgspec.msgpack.encode(packed)
    return zlib.compress(payload), len(payload)


def encode_segment(header: SegmentHeader, payload: bytes) -> bytes:
    """Return the object of a segment."""
    encoded = msgspec.json.encode(header)
    digest = blake2b(encoded, digest_size=DIGEST_BYTES).digest()
    return _PREFIX.pack(_MAGIC, FORMAT, len(encoded), digest) + encoded + payload


def decode_segment(data: bytes, name: str) -> Segment:
    """Return the segment in an object; ArchiveDamaged where its bytes are not those that were written."""
    header, start = _decode_header(data, name)
    payload = data[start:]
    if digest_of(payload) != header.payload_digest or not 0 < header.payload_bytes <= _PAYLOAD_BYTES_MAX:
        raise ArchiveDamaged(f"{name} is damaged: its rows are not those that were written")
    try:
        raw = zlib.decompressobj().decompress(payload, header.payload_bytes)
        packed = msgspec.msgpack.decode(raw, type=dict[str, PackedColumns])
        tables = {table: unpack(TABLES[table], columns) for table, columns in packed.items()}
    except (zlib.error, KeyError, ValueError, TypeError, msgspec.MsgspecError) as problem:
        raise ArchiveDamaged(f"{name} is damaged: {problem}") from None
    if {table: len(columns[0]) for table, columns in tables.items()} != header.rows:
        raise ArchiveDamaged(f"{name} is damaged: it has not as many rows as its header says")
    return Segment(header, tables, digest_of(data), data[:PREFIX_BYTES])


def _decode_header(data: bytes, name: str) -> tuple[SegmentHeader, int]:
    """Return the header, and where the rows begin."""
    if len(data) < PREFIX_BYTES:
        raise ArchiveDamaged(f"{name} is damaged: it is too short for a segment")
    magic, version, length, digest = _PREFIX.unpack(data[:PREFIX_BYTES])
    if magic != _MAGIC:
        raise ArchiveDamaged(f"{name} is no segment of a ledger")
    if version != FORMAT:
        raise ArchiveDamaged(f"{name} has version {version}, and this rankd knows version {FORMAT}: upgrade rankd")
    encoded = data[PREFIX_BYTES : PREFIX_BYTES + length]
    if blake2b(encoded, digest_size=DIGEST_BYTES).digest() != digest:
        raise ArchiveDamaged(f"{name} is damaged: its header is not the one that was written")
    try:
        return msgspec.json.decode(encoded, type=SegmentHeader), PREFIX_BYTES + length
    except msgspec.MsgspecError as problem:
        raise ArchiveDamaged(f"{name} is damaged: {problem}") from None

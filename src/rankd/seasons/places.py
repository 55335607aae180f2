"""A file of places: where everybody, or the first of them, stood in one instance at one instant.

    magic, size of the head (4 bytes), head (JSON), its checksum (16), then eight-byte aligned columns:
    hashes of players (firsts, begins, bits), their ranks (bits), scores in standing order (firsts, begins, bits)

It names nobody: a player is found by a hash of the id, keyed by board and instance, in a search of a few steps. Columns
are packed by `engine/columns_places.hpp`. A file is written once, is named by what it holds, and never changes; the
head holds a checksum of the columns, for `check`.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from rankd._columns import pack_places
from rankd.domain.digest import siphash_1_3_64
from rankd.domain.instance import InstanceKey
from rankd.errors import SnapshotDamaged, SnapshotNewer

FORMAT = 1
HASH_BITS = 56  # of an absent player, one in 2^56 / players is taken for another
HASH_BITS_MAX = 64
SUFFIX = ".places"
_MAGIC = b"RANKDPLC"
_BLOCK = 128  # kPlacesBlock
_ALIGNMENT = 8
_CHECKSUM_BYTES = 16
_HEAD_BYTES_MAX = 64 * 1024


class PlacesHead(msgspec.Struct, frozen=True):
    """What a file says of itself."""

    format: int
    board: str
    born: int
    window: str
    at: int
    total: int  # players who stood there
    entries: int  # of them, in standing order, with a score here
    players: int  # of these, who can be found
    falls: bool  # whether scores fall, or rise
    hash_bits: int
    digest: str  # of the instance then, hexadecimal
    columns: tuple[int, ...]  # bytes
    checksum: str  # of the columns, hexadecimal


class FoundPlace(NamedTuple):
    """A place, and the kept score."""

    rank: int
    score: int


class StandingColumns(NamedTuple):
    """The first players of an instance in standing order, at the instant of an event."""

    key: InstanceKey
    born: int
    at: int
    total: int
    digest: int
    hashes: memoryview
    scores: memoryview


def hash_key(board: str, born: int, window: str) -> bytes:
    """Return the key by which the players of an instance are hashed."""
    return blake2b(f"rankd places {board}\0{born}\0{window}".encode(), digest_size=16).digest()


def encode_places(columns: StandingColumns) -> tuple[PlacesHead, list[bytes]]:
    """Return the head and the content of a file, in parts: nobody waits for copies of large ones."""
    for bits in (HASH_BITS, HASH_BITS_MAX):
        packed = pack_places(columns.hashes, columns.scores, bits, bits == HASH_BITS_MAX)
        if packed is not None:
            break
    else:
        raise AssertionError("equal hashes of all bits are left out")
    players, falls, *parts = packed
    body = [piece for part in parts for piece in (part, bytes(-len(part) % _ALIGNMENT))]
    head = PlacesHead(
        format=FORMAT,
        board=columns.key.board,
        born=columns.born,
        window=columns.key.window,
        at=columns.at,
        total=columns.total,
        entries=len(columns.scores),
        players=players,
        falls=falls,
        hash_bits=bits,
        digest=f"{columns.digest:032x}",
        columns=tuple(len(part) for part in parts),
        checksum=_checksum(body).hex(),
    )
    text = msgspec.json.encode(head)
    text += b" " * (-(len(_MAGIC) + 4 + len(text)) % _ALIGNMENT)
    return head, [_MAGIC, len(text).to_bytes(4, "little"), text, _checksum([text]), *body]


class PlacesFile:
    """An open file of places; closed with `close`, or as a context."""

    def __init__(self, path: Path) -> None:
        """Read the head; SnapshotDamaged where it does not verify."""
        self.path = path
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else None
        try:
            self.head, start = self._read_head()
            views = []
            for size in self.head.columns:
                views.append(self._view[start : start + size])
                start += size + -size % _ALIGNMENT
            if start != len(self._view) or len(views) != 7:
                raise SnapshotDamaged(f"{path.name} has {len(self._view)} bytes and should have {start}")
            firsts, begins, self._hash_bits, self._rank_bits, score_firsts, score_begins, self._score_bits = views
            self._firsts, self._begins = firsts.cast("Q"), begins.cast("Q")
            self._score_firsts, self._score_begins = score_firsts.cast("Q"), score_begins.cast("Q")
        except (ValueError, msgspec.DecodeError) as problem:
            raise SnapshotDamaged(f"{path.name} is damaged: {problem}") from None
        self._rank_width = max(self.head.entries - 1, 0).bit_length()

    def _read_head(self) -> tuple[PlacesHead, int]:
        self._view = memoryview(self._bytes or b"")
        start = len(_MAGIC) + 4
        size = int.from_bytes(self._view[len(_MAGIC) : start], "little")
        end = start + size
        if bytes(self._view[: len(_MAGIC)]) != _MAGIC or size > _HEAD_BYTES_MAX:
            raise SnapshotDamaged(f"{self.path.name} is no file of places")
        text = bytes(self._view[start:end])
        if _checksum([text]) != bytes(self._view[end : end + _CHECKSUM_BYTES]):
            raise SnapshotDamaged(f"{self.path.name} is damaged")
        head = msgspec.json.decode(text, type=PlacesHead)
        if head.format > FORMAT:
            raise SnapshotNewer(f"{self.path.name} has version {head.format}: upgrade rankd to read it")
        return head, end + _CHECKSUM_BYTES

    def check(self) -> None:
        """Read everything, and compare it with its checksum."""
        body = self._view[len(self._view) - sum(size + -size % _ALIGNMENT for size in self.head.columns) :]
        if _checksum([body]).hex() != self.head.checksum:
            raise SnapshotDamaged(f"{self.path.name} is damaged")

    def find(self, player_hash: int) -> FoundPlace | None:
        """Return where the player with a hash of 64 bits stood; None for one who is not in the file."""
        wanted = player_hash >> (HASH_BITS_MAX - self.head.hash_bits)
        block = bisect_right(self._firsts, wanted) - 1
        if block < 0:
            return None
        distance = wanted - self._firsts[block]
        low, high = 0, min(_BLOCK, self.head.players - block * _BLOCK)
        while low < high:
            middle = (low + high) // 2
            value = self._distance(self._begins, self._hash_bits, block, middle)
            if value == distance:
                index = block * _BLOCK + middle
                rank = _number(self._rank_bits, 0, index, self._rank_width)
                return FoundPlace(rank + 1, self._score(rank))
            low, high = (middle + 1, high) if value < distance else (low, middle)
        return None

    def _score(self, index: int) -> int:
        block, place = divmod(index, _BLOCK)
        distance = self._distance(self._score_begins, self._score_bits, block, place)
        unsigned = (self._score_firsts[block] + (-distance if self.head.falls else distance)) % 2**64
        return unsigned - 2**64 if unsigned >= 2**63 else unsigned

    @staticmethod
    def _distance(begins: memoryview, bits: memoryview, block: int, place: int) -> int:
        begin = begins[block]
        return _number(bits, begin >> 8, place, begin & 0xFF)

    def close(self) -> None:
        """Close the file."""
        for view in (self._firsts, self._begins, self._score_firsts, self._score_begins):
            view.release()
        for view in (self._hash_bits, self._rank_bits, self._score_bits):
            view.release()

    def __enter__(self) -> PlacesFile:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.close()


def player_hash(key: bytes, player: str) -> int:
    """Return the hash by which a player is found."""
    return siphash_1_3_64(key, player.encode())


def _number(bits: memoryview, begin: int, index: int, width: int) -> int:
    """Return a number of a fixed width behind the byte `begin`."""
    start = index * width
    first = begin + (start >> 3)
    return int.from_bytes(bits[first : first + 9], "little") >> (start & 7) & ((1 << width) - 1)


def _checksum(parts: Iterable[bytes | memoryview]) -> bytes:
    checksum = blake2b(digest_size=_CHECKSUM_BYTES)
    for part in parts:
        checksum.update(part)
    return checksum.digest()

"""One call of rankd_write: its keys, and operations in MessagePack.

functions/write_shard.lua and functions/write_instance.lua say what the arguments mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rankd.projection.redis.changes import Move
from rankd.projection.redis.client import Call
from rankd.projection.redis.forms import Form
from rankd.projection.redis.keys import LAYOUT_VERSION, Kind, ShardKeys

WRITE = "rankd_write"
LIVE, LOADING, BESIDE = 0, 1, 2
ROW_KINDS = (Kind.STANDING, Kind.PREFIXES, Kind.DISTINCT, Kind.DISTINCT_COUNTS, Kind.SCORES, Kind.STEPS)
NOBODY_LEFT = -1  # in place of the index of what describes an instance
SLOTS = (*Kind,)  # the order in which an operation names its keys
CAPTURED_SLOT, METADATA_SLOT = SLOTS.index(Kind.CAPTURED), SLOTS.index(Kind.METADATA)
encode = msgspec.msgpack.Encoder().encode


class Operation(msgspec.Struct, array_like=True):
    """What becomes of one instance; the order of the fields is that of functions/write_instance.lua."""

    name: str
    scale: int
    keys: list[int]
    described: int = 0
    last: bool = True
    unlink: list[int] = []
    rows: list[str] = []
    prefixes: int = 0
    gone: list[str] = []
    places_gone: list[str | int] = []
    metadata: list[str] = []
    metadata_gone: list[str] = []
    captured: list[str | int] = []
    swap: list[int] = []
    tail: list[Any] = []


class Head(msgspec.Struct, frozen=True):
    """What all calls of one write to one shard say of it."""

    epoch: int
    time_ms: int
    moves: Sequence[Move]
    token: str
    mode: int = LIVE

    def encoded(self, generation: int, cut: int, cuts: int, operations: Sequence[int]) -> bytes:
        """Return the first argument of a call, part `cut` of `cuts` of its write; operations are named by index."""
        moves: list[str] = []
        for partition, after, upto in self.moves:
            moves += str(partition), str(after), str(upto)
        return encode(
            (
                str(LAYOUT_VERSION),
                str(generation),
                str(self.epoch),
                str(self.time_ms),
                moves,
                cut,
                cuts,
                self.token,
                operations,
                self.mode,
            )
        )


class ShardCall:
    """One call in the making: keys and arguments are named by their index, from 1."""

    __slots__ = ("_arguments", "_generation", "_indexes", "_keys", "_operations", "_shard", "weight")

    def __init__(self, shard: ShardKeys, generation: int) -> None:
        """Begin without operations."""
        self._shard = shard
        self._generation = generation
        self._keys = [shard.meta, shard.described(generation)]
        self._indexes: dict[bytes, int] = {}
        self._arguments: list[bytes] = [b""]  # the head comes last
        self._operations: list[int] = []
        self.weight = 0

    def key(self, kind: Kind, name: bytes, *, beside: bool = False) -> int:
        """Declare a key of an instance and return its index; `beside`: that which is to take its place."""
        full = self._shard.of(kind, self._generation, name)
        if beside:
            full = full.replace(b":%b:" % kind.encode(), b":%b~:" % kind.encode(), 1)
        index = self._indexes.get(full)
        if index is None:
            self._keys.append(full)
            index = self._indexes[full] = len(self._keys)
        return index

    def blob(self, value: bytes) -> int:
        """Add an argument and return its index."""
        self._arguments.append(value)
        return len(self._arguments)

    def operation(
        self, name: bytes, form: Form, *, dense: bool, tailed: bool = False, beside: bool = False
    ) -> Operation:
        """Return an operation on an instance that names the keys of its rows."""
        kinds = {Kind.STANDING}
        if not form.is_packed:
            kinds.add(Kind.PREFIXES)
        if dense:
            kinds |= {Kind.DISTINCT, Kind.DISTINCT_COUNTS}
        if tailed:
            kinds |= {Kind.SCORES, Kind.STEPS}
        slots = [self.key(kind, name, beside=beside) if kind in kinds else 0 for kind in SLOTS]
        return Operation(name.decode(), 1 << form.tie_bits if form.is_packed else 0, slots)

    def add(self, operation: Operation, weight: int) -> None:
        """Add an operation of so many updates."""
        self._operations.append(self.blob(encode(operation)))
        self.weight += weight

    def made(self, head: Head, cut: int, cuts: int) -> Call:
        """Return the call, part `cut` of `cuts` of its write."""
        self._arguments[0] = head.encoded(self._generation, cut, cuts, self._operations)
        return Call(WRITE, self._keys, self._arguments)

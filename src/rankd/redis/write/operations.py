"""One call of rankd_write: its keys, and operations in MessagePack.

functions/write_shard.lua and functions/write_instance.lua say what the arguments mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rankd.redis.connection.client import FunctionCall
from rankd.redis.forms import Form
from rankd.redis.keys import LAYOUT_VERSION, KeyKind, ShardKeys
from rankd.redis.write.changes import PartitionMove

WRITE = "rankd_write"
LIVE, LOADING, BESIDE = 0, 1, 2
ROW_KINDS = (
    KeyKind.STANDING,
    KeyKind.PREFIXES,
    KeyKind.DISTINCT,
    KeyKind.DISTINCT_COUNTS,
    KeyKind.SCORES,
    KeyKind.STEPS,
)
INSTANCE_EMPTY = -1  # in place of the index of the instance's description
SLOTS = (*KeyKind,)  # the order in which an operation names its keys
CAPTURED_SLOT, METADATA_SLOT = SLOTS.index(KeyKind.CAPTURED), SLOTS.index(KeyKind.METADATA)
encode = msgspec.msgpack.Encoder().encode


class Operation(msgspec.Struct, array_like=True):
    """A write to one instance; functions/write_instance.lua reads the fields in this order."""

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


class WriteHead(msgspec.Struct, frozen=True):
    """The part that all calls of one write share."""

    epoch: int
    time_ms: int
    moves: Sequence[PartitionMove]
    token: str
    mode: int = LIVE

    def encoded(self, generation: int, cut: int, cuts: int, operations: Sequence[int]) -> bytes:
        """Return the first argument of a call, part `cut` of `cuts` of its write; operations are argument indexes."""
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
    """Builds one call; operations refer to keys and arguments by index, from 1."""

    __slots__ = ("_arguments", "_generation", "_indexes", "_keys", "_operations", "_shard", "weight")

    def __init__(self, shard: ShardKeys, generation: int) -> None:
        """Begin without operations."""
        self._shard = shard
        self._generation = generation
        self._keys = [shard.meta, shard.described(generation)]
        self._indexes: dict[bytes, int] = {}
        self._arguments: list[bytes] = [b""]  # `made` sets the head
        self._operations: list[int] = []
        self.weight = 0

    def key(self, kind: KeyKind, name: bytes, *, beside: bool = False) -> int:
        """Declare a key of an instance and return its index; `beside` is the key that will replace it."""
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
        """Return an operation on an instance, with the keys of its rows."""
        kinds = {KeyKind.STANDING}
        if not form.is_packed:
            kinds.add(KeyKind.PREFIXES)
        if dense:
            kinds |= {KeyKind.DISTINCT, KeyKind.DISTINCT_COUNTS}
        if tailed:
            kinds |= {KeyKind.SCORES, KeyKind.STEPS}
        slots = [self.key(kind, name, beside=beside) if kind in kinds else 0 for kind in SLOTS]
        return Operation(name.decode(), 1 << form.tie_bits if form.is_packed else 0, slots)

    def add(self, operation: Operation, weight: int) -> None:
        """Add an operation of so many updates."""
        self._operations.append(self.blob(encode(operation)))
        self.weight += weight

    def made(self, head: WriteHead, cut: int, cuts: int) -> FunctionCall:
        """Return the call, part `cut` of `cuts` of its write."""
        self._arguments[0] = head.encoded(self._generation, cut, cuts, self._operations)
        return FunctionCall(WRITE, self._keys, self._arguments)

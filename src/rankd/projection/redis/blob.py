"""Changes as arguments of rankd_write: operations in MessagePack, cut into calls of a bounded size.

functions/write_shard.lua and functions/write_instance.lua say what the arguments mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

import msgspec

from rankd.domain.instance import InstanceKey
from rankd.projection.redis.changes import InstanceChange, Move
from rankd.projection.redis.client import Call
from rankd.projection.redis.forms import Form, describe, written_described
from rankd.projection.redis.keys import (
    LAYOUT_VERSION,
    Kind,
    ShardKeys,
    bucket_hash,
    buckets_for,
    instance_name,
    player_hash,
)

WRITE = "rankd_write"
LIVE, LOADING, BESIDE = 0, 1, 2
_NO_CAPTURED: list[Any] = []
_FORGET_CAPTURED = [1]
_encode = msgspec.msgpack.Encoder().encode
_ROW_KINDS = (Kind.STANDING, Kind.PREFIXES, Kind.DISTINCT, Kind.DISTINCT_COUNTS)


class Head(msgspec.Struct, frozen=True):
    """What all calls of one write to one shard say of it."""

    epoch: int
    time_ms: int
    moves: Sequence[Move]
    token: str
    mode: int = LIVE


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

    def add(self, operation: list[Any], weight: int) -> None:
        """Add an operation of so many updates."""
        self._operations.append(self.blob(_encode(operation)))
        self.weight += weight

    def made(self, head: Head, cut: int, cuts: int) -> Call:
        """Return the call, part `cut` of `cuts` of its write."""
        moves: list[str] = []
        for partition, after, upto in head.moves:
            moves += str(partition), str(after), str(upto)
        self._arguments[0] = _encode(
            (
                str(LAYOUT_VERSION),
                str(self._generation),
                str(head.epoch),
                str(head.time_ms),
                moves,
                cut,
                cuts,
                head.token,
                self._operations,
                head.mode,
            )
        )
        return Call(WRITE, self._keys, self._arguments)


class ShardCalls:
    """The calls of one write to one shard, filled one after the other up to `updates_max` updates each."""

    def __init__(self, shard: ShardKeys, generation: int, updates_max: int) -> None:
        """Begin with one empty call: it moves an idle shard on."""
        self._shard = shard
        self._generation = generation
        self._updates_max = updates_max
        self._calls = [ShardCall(shard, generation)]

    def made(self, head: Head) -> list[Call]:
        """Return the calls, in order."""
        return [call.made(head, cut, len(self._calls)) for cut, call in enumerate(self._calls, start=1)]

    def add(self, change: InstanceChange, form: Form, *, dense: bool, whole: bool = False) -> None:
        """Add what changed of an instance on this shard. `whole`: rows gather beside those there are, see `swap`."""
        if change.total == 0:
            self._add_end(change.key, form)
            return
        for first, last in self._parts(len(change.players)):
            self._add_rows(change, form, first, last, dense=dense, whole=whole)
        if change.metadata:
            self._add_metadata(change, form, dense=dense)
        if change.captured is not None and change.total:
            self._add_captured(change, form, change.captured, dense=dense)

    def swap(self, key: InstanceKey, form: Form, described: bytes, *, dense: bool) -> None:
        """Let the rows that gathered beside take the place of those there were, in whatever form."""
        call, name = self._call(1), instance_name(key)
        slots = _slots(call, name, form, dense=dense, beside=True)
        operation = _operation(name, form, slots, described=call.blob(described))
        operation[14] = [call.key(kind, name) for kind in _ROW_KINDS]
        call.add(operation, 1)

    def _add_end(self, key: InstanceKey, form: Form) -> None:
        call, name = self._call(1), instance_name(key)
        operation = _operation(name, form, _slots(call, name, form, dense=False, beside=False), described=-1)
        operation[4] = _all_of(call, name)
        call.add(operation, 1)

    def _parts(self, rows: int) -> Iterator[tuple[int, int]]:
        """Cut rows so that each part fits a call; whole instances stay together where they can."""
        if rows <= self._updates_max:
            yield 0, rows
            return
        first = 0
        while first < rows:
            room = self._updates_max - self._calls[-1].weight
            last = min(rows, first + (room if room > 0 else self._updates_max))
            yield first, last
            first = last

    def _call(self, weight: int) -> ShardCall:
        call = self._calls[-1]
        if call.weight and call.weight + weight > self._updates_max:
            call = ShardCall(self._shard, self._generation)
            self._calls.append(call)
        return call

    def _add_rows(self, change: InstanceChange, form: Form, first: int, last: int, *, dense: bool, whole: bool) -> None:
        name = instance_name(change.key)
        players, score, tie, gone = change.players, change.score, change.tie, change.gone
        is_last = last == len(players)
        if first or not is_last:
            players, score, tie, gone = players[first:last], score[first:last], tie[first:last], gone[first:last]
        call = self._call(max(1, len(players)))
        left: list[str] = []
        if 1 in gone:
            left = list(compress(players, gone))
            stays = bytes(1 - one for one in gone)
            players = list(compress(players, stays))
            score, tie = type(score)("q", compress(score, stays)), type(tie)("q", compress(tie, stays))
        slots = _slots(call, name, form, dense=dense, beside=whole)
        if left or (is_last and change.forget_captured) or change.expire_at_ms is not None:
            slots[4] = call.key(Kind.CAPTURED, name)
        if change.expire_at_ms is not None:
            slots[5] = call.key(Kind.METADATA, name)
        operation = _operation(name, form, slots)
        if not whole:
            operation[1] = call.blob(written_described(describe(form, change.digest, change.total, dense=dense)))
            operation[2] = int(is_last)
        if change.cleared and first == 0:
            operation[4] = [call.key(kind, name, beside=True) for kind in _ROW_KINDS] if whole else _all_of(call, name)
        if players:
            flat: list[str] = [""] * (2 * len(players))
            if form.is_packed:
                flat[::2] = form.encode_packed(score, tie)
            else:
                flat[::2], prefixes = form.encode_prefixed(score, tie)
                operation[7] = call.blob(prefixes)
            flat[1::2] = players
            operation[6] = flat
        if left:
            operation[8] = left
            operation[9] = [bucket_hash(player) for player in left]
        if is_last and change.forget_captured:
            operation[12] = _FORGET_CAPTURED
        if change.expire_at_ms is not None:
            operation[13] = str(change.expire_at_ms)
        call.add(operation, max(1, len(players) + len(left)))

    def _add_metadata(self, change: InstanceChange, form: Form, *, dense: bool) -> None:
        name = instance_name(change.key)
        listed = list((change.metadata or {}).items())
        for first in range(0, len(listed), self._updates_max):
            some = listed[first : first + self._updates_max]
            call = self._call(len(some))
            slots = _slots(call, name, form, dense=dense, beside=False)
            slots[5] = call.key(Kind.METADATA, name)
            operation = _operation(name, form, slots)
            for player, event in some:
                if event is None:
                    operation[11].append(player)
                else:
                    operation[10] += player, f"{event[0]}:{event[1]}"
            call.add(operation, len(some))

    def _add_captured(self, change: InstanceChange, form: Form, captured: Mapping[str, int], *, dense: bool) -> None:
        name = instance_name(change.key)
        count = buckets_for(len(captured))
        buckets: dict[int, dict[str, int]] = {}
        for player, place in captured.items():
            buckets.setdefault(bucket_hash(player) % count, {})[player] = place
        listed = list(buckets.items())
        # A bucket costs about as much as a few rows: its players are not looked at one by one.
        step = max(1, self._updates_max // 8)
        for first in range(0, max(1, len(listed)), step):
            some = listed[first : first + step]
            call = self._call(8 * len(some))
            slots = _slots(call, name, form, dense=dense, beside=False)
            slots[4] = call.key(Kind.CAPTURED, name)
            operation = _operation(name, form, slots)
            gathering = call.key(Kind.CAPTURED, name, beside=True)
            is_last = first + step >= len(listed)
            indexes = [call.blob(_encode(places)) for _, places in some]
            operation[12] = [2, str(count), int(first == 0), int(is_last), gathering, indexes[0] if indexes else 0]
            operation[12] += [str(bucket) for bucket, _ in some]
            if change.expire_at_ms is not None:
                operation[13] = str(change.expire_at_ms)
            call.add(operation, 8 * len(some) or 1)


def _operation(name: bytes, form: Form, slots: list[int], described: int = 0) -> list[Any]:
    scale = 1 << form.tie_bits if form.is_packed else 0
    return [name.decode(), described, 1, scale, [], slots, [], 0, [], [], [], [], _NO_CAPTURED, "", []]


def _row_kinds(form: Form, *, dense: bool) -> list[Kind]:
    kinds = [Kind.STANDING]
    if not form.is_packed:
        kinds.append(Kind.PREFIXES)
    if dense:
        kinds += [Kind.DISTINCT, Kind.DISTINCT_COUNTS]
    return kinds


def _slots(call: ShardCall, name: bytes, form: Form, *, dense: bool, beside: bool) -> list[int]:
    kinds = _row_kinds(form, dense=dense)
    return [call.key(kind, name, beside=beside) if kind in kinds else 0 for kind in _ROW_KINDS] + [0, 0]


def _all_of(call: ShardCall, name: bytes) -> list[int]:
    """Name every key an instance may have, so that none stays when it is cleared; its form may have been another."""
    return [call.key(kind, name) for kind in Kind]


def split(change: InstanceChange, shards: int, seen: dict[str, int]) -> list[InstanceChange]:
    """Return what of a change belongs to each shard; `seen` remembers players' shards from one change to the next."""
    if shards == 1:
        return [change]
    rows: list[list[int]] = [[] for _ in range(shards)]
    for row, player in enumerate(change.players):
        rows[_shard(player, shards, seen)].append(row)
    captured: list[dict[str, int]] = [{} for _ in range(shards)]
    for player, place in (change.captured or {}).items():
        captured[_shard(player, shards, seen)][player] = place
    metadata: list[dict[str, tuple[int, int] | None]] = [{} for _ in range(shards)]
    for player, event in (change.metadata or {}).items():
        metadata[_shard(player, shards, seen)][player] = event
    return [
        InstanceChange(
            change.key,
            change.rules,
            change.tie_resolution_ms,
            [change.players[row] for row in rows[shard]],
            type(change.score)("q", [change.score[row] for row in rows[shard]]),
            type(change.tie)("q", [change.tie[row] for row in rows[shard]]),
            bytes(change.gone[row] for row in rows[shard]) if change.gone else b"",
            change.cleared,
            change.digest,
            change.total,
            None if change.captured is None else captured[shard],
            change.forget_captured,
            metadata[shard] if change.metadata else None,
            change.expire_at_ms,
        )
        for shard in range(shards)
    ]


def _shard(player: str, shards: int, seen: dict[str, int]) -> int:
    shard = seen.get(player)
    if shard is None:
        shard = seen[player] = player_hash(player) % shards
    return shard

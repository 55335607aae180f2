"""Changes as calls of rankd_write, each of a bounded size.

InstanceChange → split over shards → ShardCalls.add → operations, in as many calls as needed
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress

from rankd.domain.instance import InstanceKey
from rankd.redis.connection.client import FunctionCall
from rankd.redis.forms import Form, describe, written_described
from rankd.redis.keys import KeyKind, ShardKeys, bucket_hash, buckets_for, instance_name, player_hash
from rankd.redis.read.tail import set_tail
from rankd.redis.write.changes import InstanceChange
from rankd.redis.write.operations import (
    CAPTURED_SLOT,
    INSTANCE_EMPTY,
    METADATA_SLOT,
    ROW_KINDS,
    SLOTS,
    Operation,
    ShardCall,
    WriteHead,
    encode,
)

_BUCKET_WEIGHT = 8  # the cost of a bucket of captured places, in rows


class ShardCalls:
    """The calls of one write to one shard, each of at most `updates_max` updates."""

    def __init__(self, shard: ShardKeys, generation: int, updates_max: int) -> None:
        """Begin with one empty call: it advances the positions of an idle shard."""
        self._shard = shard
        self._generation = generation
        self._updates_max = updates_max
        self._calls = [ShardCall(shard, generation)]

    def made(self, head: WriteHead, before: int = 0) -> list[FunctionCall]:
        """Return the calls, in order, numbered from `before` + 1."""
        last = before + len(self._calls)
        return [call.made(head, cut, last) for cut, call in enumerate(self._calls, start=before + 1)]

    def add(self, change: InstanceChange, form: Form, *, dense: bool) -> None:
        """Add the changes of an instance on this shard."""
        if change.total == 0:
            self._add_end(change.key, form)
            return
        for part, first, last in self._parts(change):
            self._add_part(part, form, dense=dense, first=first, last=last)
        if change.metadata:
            self._add_metadata(change, form, change.metadata, dense=dense)
        if change.captured is not None:
            self._add_captured(change, form, change.captured, dense=dense)

    def add_beside(self, change: InstanceChange, form: Form, *, dense: bool) -> None:
        """Add rows beside the live ones, until `swap`; a cleared change starts over."""
        name = instance_name(change.key)
        for part, first, _ in self._parts(change):
            call = self._call(max(1, len(part.players)))
            operation = call.operation(name, form, dense=dense, tailed=bool(change.exact_top), beside=True)
            if change.cleared and first:
                operation.unlink = [call.key(kind, name, beside=True) for kind in ROW_KINDS]
            _set_rows(call, operation, part, form)
            call.add(operation, max(1, len(part.players)))

    def swap(self, key: InstanceKey, form: Form, described: bytes, *, dense: bool, tailed: bool) -> None:
        """Replace the live rows with those added beside them, which may have another form."""
        call, name = self._call(1), instance_name(key)
        operation = call.operation(name, form, dense=dense, tailed=tailed, beside=True)
        operation.described = call.blob(described)
        operation.swap = [call.key(kind, name) if kind in ROW_KINDS else 0 for kind in SLOTS]
        call.add(operation, 1)

    def _parts(self, change: InstanceChange) -> Iterator[tuple[InstanceChange, bool, bool]]:
        """Cut a change into parts whose rows fit a call; yield part, is first, is last.

        A change that fits a call is not cut, so that the instance changes atomically.
        """
        rows = len(change.players)
        if rows <= self._updates_max:
            yield change, True, True
            return
        first = 0
        while first < rows:
            room = self._updates_max - self._calls[-1].weight
            last = min(rows, first + (room if room > 0 else self._updates_max))
            part = replace(
                change,
                players=change.players[first:last],
                score=change.score[first:last],
                tie=change.tie[first:last],
                gone=change.gone[first:last],
                in_top=change.in_top[first:last],
            )
            yield part, first == 0, last == rows
            first = last

    def _call(self, weight: int) -> ShardCall:
        call = self._calls[-1]
        if call.weight and call.weight + weight > self._updates_max:
            call = ShardCall(self._shard, self._generation)
            self._calls.append(call)
        return call

    def _add_end(self, key: InstanceKey, form: Form) -> None:
        call, name = self._call(1), instance_name(key)
        operation = call.operation(name, form, dense=False)
        operation.described = INSTANCE_EMPTY
        operation.unlink = _all_of(call, name)
        call.add(operation, 1)

    def _add_part(self, change: InstanceChange, form: Form, *, dense: bool, first: bool, last: bool) -> None:
        weight = max(1, len(change.players))
        call, name = self._call(weight), instance_name(change.key)
        operation = call.operation(name, form, dense=dense, tailed=bool(change.exact_top))
        described = describe(form, change.digest, change.total, dense=dense, exact_top=change.exact_top)
        operation.described = call.blob(written_described(described))
        operation.last = last
        if change.cleared and first:
            operation.unlink = _all_of(call, name)
        stays = change
        left: list[str] = []
        if 1 in change.gone:
            operation.gone = left = list(compress(change.players, change.gone))
            stays = without_gone(change)
        _set_rows(call, operation, stays, form, left)
        placeless = [*left, *change.returned] if first else left
        if placeless or change.forget_captured:
            operation.keys[CAPTURED_SLOT] = call.key(KeyKind.CAPTURED, name)
        if placeless:
            operation.places_gone = [part for player in placeless for part in (player, bucket_hash(player))]
        if change.forget_captured:
            operation.captured = [1]
        call.add(operation, weight)

    def _add_metadata(
        self, change: InstanceChange, form: Form, metadata: Mapping[str, tuple[int, int] | None], *, dense: bool
    ) -> None:
        name = instance_name(change.key)
        listed = list(metadata.items())
        for first in range(0, len(listed), self._updates_max):
            some = listed[first : first + self._updates_max]
            call = self._call(len(some))
            operation = call.operation(name, form, dense=dense)
            operation.keys[METADATA_SLOT] = call.key(KeyKind.METADATA, name)
            operation.metadata = [
                part for player, event in some if event for part in (player, f"{event[0]}:{event[1]}")
            ]
            operation.metadata_gone = [player for player, event in some if event is None]
            call.add(operation, len(some))

    def _add_captured(self, change: InstanceChange, form: Form, captured: Mapping[str, int], *, dense: bool) -> None:
        name = instance_name(change.key)
        count = buckets_for(len(captured))
        buckets: dict[int, dict[str, int]] = {}
        for player, place in captured.items():
            buckets.setdefault(bucket_hash(player) % count, {})[player] = place
        listed = list(buckets.items())
        step = max(1, self._updates_max // _BUCKET_WEIGHT)
        for first in range(0, max(1, len(listed)), step):
            some = listed[first : first + step]
            weight = max(1, _BUCKET_WEIGHT * len(some))
            call = self._call(weight)
            operation = call.operation(name, form, dense=dense)
            operation.keys[CAPTURED_SLOT] = call.key(KeyKind.CAPTURED, name)
            gathering = call.key(KeyKind.CAPTURED, name, beside=True)
            indexes = [call.blob(encode(places)) for _, places in some]
            is_last = first + step >= len(listed)
            operation.captured = [2, str(count), int(first == 0), int(is_last), gathering, indexes[0] if indexes else 0]
            operation.captured += [str(bucket) for bucket, _ in some]
            call.add(operation, weight)


def without_gone(change: InstanceChange) -> InstanceChange:
    """Return a change without the rows of removed players."""
    stays = bytes(not flag for flag in change.gone)
    return replace(
        change,
        players=list(compress(change.players, stays)),
        score=type(change.score)("q", compress(change.score, stays)),
        tie=type(change.tie)("q", compress(change.tie, stays)),
        gone=b"",
        in_top=bytes(compress(change.in_top, stays)),
    )


def _set_rows(
    call: ShardCall, operation: Operation, change: InstanceChange, form: Form, left: Sequence[str] = ()
) -> None:
    """Set the rows of present players; a board with exact_top also needs the removed ones, `left`."""
    if change.exact_top:
        set_tail(call, operation, change, form, left)
        operation.gone = [*left, *compress(change.players, (not flag for flag in change.in_top))]
        change = _top_of(change)
    if not change.players:
        return
    rows: list[str] = [""] * (2 * len(change.players))
    if form.is_packed:
        rows[::2] = form.encode_packed(change.score, change.tie)
    else:
        rows[::2], prefixes = form.encode_prefixed(change.score, change.tie)
        operation.prefixes = call.blob(prefixes)
    rows[1::2] = change.players
    operation.rows = rows


def _top_of(change: InstanceChange) -> InstanceChange:
    return replace(
        change,
        players=list(compress(change.players, change.in_top)),
        score=type(change.score)("q", compress(change.score, change.in_top)),
        tie=type(change.tie)("q", compress(change.tie, change.in_top)),
        gone=b"",
        in_top=b"",
    )


def _all_of(call: ShardCall, name: bytes) -> list[int]:
    """Return every key an instance may have: its former form may have used others."""
    return [call.key(kind, name) for kind in KeyKind]


def split(change: InstanceChange, shards: int, cache: dict[str, int]) -> list[InstanceChange]:
    """Split a change by shard; `cache` keeps players' shards from one change to the next."""
    if shards == 1:
        return [change]
    rows: list[list[int]] = [[] for _ in range(shards)]
    for row, player in enumerate(change.players):
        rows[_shard(player, shards, cache)].append(row)
    captured: list[dict[str, int]] = [{} for _ in range(shards)]
    for player, place in (change.captured or {}).items():
        captured[_shard(player, shards, cache)][player] = place
    metadata: list[dict[str, tuple[int, int] | None]] = [{} for _ in range(shards)]
    for player, event in (change.metadata or {}).items():
        metadata[_shard(player, shards, cache)][player] = event
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
            [player for player in change.returned if _shard(player, shards, cache) == shard],
            change.digest,
            change.total,
            None if change.captured is None else captured[shard],
            change.forget_captured,
            metadata[shard] if change.metadata else None,
            change.exact_top,
            bytes(change.in_top[row] for row in rows[shard]) if change.in_top else b"",
            shards,
            change.last_of_top,
        )
        for shard in range(shards)
    ]


def _shard(player: str, shards: int, cache: dict[str, int]) -> int:
    shard = cache.get(player)
    if shard is None:
        shard = cache[player] = player_hash(player) % shards
    return shard

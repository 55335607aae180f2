"""What a board in Redis holds, read key by key and not through rankd's functions; all keys must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, score_key
from rankd.projection.engine import EngineStore
from rankd.projection.port import walk
from rankd.redis.forms import LOW_BITS, PREFIX_BYTES, InstanceForm, read_described
from rankd.redis.keys import KeyKind, ShardKeys, bucket_hash, instance_of, shard_of

Contents = dict[InstanceKey, list[tuple[str, Kept]]]


def generation_of(plain: Any, board: str, shard: int) -> int:
    """The live generation of a shard."""
    return int(plain.hget(ShardKeys(board, shard).meta, "generation"))


def contents(plain: Any, board: str, shards: int = 1) -> Contents:
    """Everybody in every instance, in standing order."""
    standings: dict[InstanceKey, list[tuple[float, bytes, str, Kept]]] = {}
    for shard in range(shards):
        keys, generation = ShardKeys(board, shard), generation_of(plain, board, shard)
        for name, value in plain.hgetall(keys.described(generation)).items():
            described = read_described(value)
            rows = standings.setdefault(instance_of(board, name), [])
            arrived = _standing(plain, keys, generation, name, described)
            rows += arrived
            for _, _, player, _ in arrived:
                assert shard_of(player, shards) == shard
    return {
        key: [(player, kept) for _, _, player, kept in sorted(rows, key=lambda row: row[:2])]
        for key, rows in standings.items()
    }


def _standing(
    plain: Any, keys: ShardKeys, generation: int, name: bytes, described: InstanceForm
) -> list[tuple[float, bytes, str, Kept]]:
    form = described.form
    rows = []
    prefixes = plain.hgetall(keys.of(KeyKind.PREFIXES, generation, name))
    for member, number in plain.zrange(keys.of(KeyKind.STANDING, generation, name), 0, -1, withscores=True):
        player = form.player(member)
        prefix = b"" if form.is_packed else member[:PREFIX_BYTES]
        if not form.is_packed:
            assert prefixes.pop(player.encode()) == prefix, f"{player} stands twice, or elsewhere"
        rows.append((number, member, player, form.decode(number, prefix)))
    assert not prefixes, "a prefix without an entry"
    counts: dict[bytes, int] = {}
    if described.dense:
        for _, _, _, kept in rows:
            key = score_key(form.rules, kept.score)
            text = str(key - form.lowest_key if form.is_packed else key >> LOW_BITS).encode()
            low = b"" if form.is_packed else (key & (1 << LOW_BITS) - 1).to_bytes(2, "big")
            counts[low + text] = counts.get(low + text, 0) + 1
    stored = plain.hgetall(keys.of(KeyKind.DISTINCT_COUNTS, generation, name))
    assert {member: int(count) for member, count in stored.items()} == counts
    assert set(plain.zrange(keys.of(KeyKind.DISTINCT, generation, name), 0, -1)) == set(counts)
    return rows


def engine_contents(engine: EngineStore, board: str) -> Contents:
    """The same of an engine."""
    return {
        key: [(entry.player, Kept(entry.score, entry.tie)) for entry in walk(engine, key)]
        for key in engine.instances()
        if key.board == board
    }


def described_of(plain: Any, key: InstanceKey, shard: int = 0) -> InstanceForm | None:
    """What a shard says of an instance."""
    keys = ShardKeys(key.board, shard)
    value = plain.hget(keys.described(generation_of(plain, key.board, shard)), f"{key.window}@{key.scope}")
    return None if value is None else read_described(value)


def captured_of(plain: Any, key: InstanceKey, shard: int = 0) -> dict[str, int]:
    """The captured places on a shard; each must lie in its bucket."""
    keys, generation = ShardKeys(key.board, shard), generation_of(plain, key.board, shard)
    stored = plain.hgetall(keys.of(KeyKind.CAPTURED, generation, f"{key.window}@{key.scope}".encode()))
    buckets = int(stored.pop(b"n", b"1"))
    places: dict[str, int] = {}
    for bucket, blob in stored.items():
        for player, place in msgspec.msgpack.decode(blob, type=dict[str, int]).items():
            assert bucket_hash(player) % buckets == int(bucket)
            places[player] = place
    return places


def keys_of(plain: Any, boards: Iterable[str] = ("arcade",)) -> Counter[str]:
    """How many keys of each generation and kind there are, such as {"1:z": 5, "meta": 1}."""
    counts: Counter[str] = Counter()
    for board in boards:
        for key in plain.scan_iter(f"rankd:{{{board}#*"):
            rest = key.decode().split("}:", 1)[1]
            counts[":".join(rest.split(":")[:2])] += 1
    return counts

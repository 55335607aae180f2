"""Whatever is written, Redis holds what the engine holds, key by key: rows, distinct scores, captured places."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest
from tests.servers.mirrored import MirroredStore
from tests.servers.redis import RedisServer
from tests.servers.redis_contents import captured_of, contents, described_of, engine_contents

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Order, Rules, Ties
from rankd.projection.port import Op, UpdateBatch
from rankd.redis.connection.client import RedisClient

SEEDS = [seed if seed < 12 else pytest.param(seed, marks=pytest.mark.long) for seed in range(100)]
STEPS = 12
PLAYERS = [f"p{number}" for number in range(10)] + ["ü", "x" * 100]
OPS = [Op.APPLY] * 5 + [Op.PUT] * 2 + [Op.REMOVE]
KEYS = [InstanceKey("arcade"), InstanceKey("arcade", "daily:2026-05-04", "country:BR")]


def random_batch(rng: random.Random, rules: Rules, after: int) -> UpdateBatch:
    count = rng.randrange(15)
    low, high = rules.score_min, rules.score_max
    scores = [rng.choice([low, high, rng.randint(low, min(high, low + 20)), 0]) for _ in range(count)]
    ties = [rng.choice([0, 5, rng.randrange(2**40), rng.randrange(2**48)]) for _ in range(count)]
    ops = [Op.CLEAR if rng.random() < 0.02 else rng.choice(OPS) for _ in range(count)]
    return UpdateBatch(
        [(key, rules) for key in KEYS],
        [rng.choice(PLAYERS) for _ in range(count)],
        score=array("q", scores),
        tie=array("q", ties),
        instance=array("I", [rng.randrange(len(KEYS)) for _ in range(count)]),
        op=bytes(ops),
        after=after,
        upto=after + count,
    )


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_redis_holds_what_the_engine_holds(
    redis_server: RedisServer, redis_client: RedisClient, seed: int, shards: int
) -> None:
    rng = random.Random(seed)
    bounds = rng.choice([(0, 100), (5, 2**20), (0, 2**40), (-(2**63), 2**63 - 1)])
    rules = Rules(rng.choice(list(Keep)), rng.choice(list(Order)), rng.choice(list(Ties)), *bounds)
    store = MirroredStore(redis_client, shards, call_updates_max=rng.choice([1, 3, 5_000]))
    with redis_server.client() as plain:
        for _ in range(STEPS):
            store.apply(random_batch(rng, rules, store.position(0).sequence))
            if rng.random() < 0.3:
                store.capture(KEYS[0])
            if rng.random() < 0.1:
                store.forget_capture(KEYS[0])
            if rng.random() < 0.1:
                store.drop(KEYS[1])
            compare(plain, store, shards, f"seed {seed}: {rules}")
    store.mirror.close()


def compare(plain: Any, store: MirroredStore, shards: int, context: str) -> None:
    if not plain.exists("rankd:{arcade#0}:meta"):
        return  # nothing was written yet
    assert contents(plain, "arcade", shards) == engine_contents(store.engine, "arcade"), context
    for key in KEYS:
        places: dict[str, int] = {}
        for shard in range(shards):
            places |= captured_of(plain, key, shard)
            described = described_of(plain, key, shard)
            assert (0 if described is None else described.total) == store.engine.total(key), context
            assert (0 if described is None else int(described.digest, 16)) == store.engine.digest(key), context
        expected = {player: store.engine.captured(key, player) for player in PLAYERS}
        assert places == {player: place for player, place in expected.items() if place is not None}, context

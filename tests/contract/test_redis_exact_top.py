"""Boards with exact_top: the first are ranked exactly, everybody else within bounds that hold the truth."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from tests.servers.redis import RedisServer
from tests.servers.redis_contents import described_of, engine_contents, generation_of, keys_of

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Kept, Order, Rules, Ties
from rankd.projection.engine import EngineStore
from rankd.projection.port import Op, UpdateBatch, Verdict
from rankd.redis.connection.client import RedisClient
from rankd.redis.keys import KeyKind, ShardKeys, instance_name
from rankd.redis.read.reader import RedisReader
from rankd.redis.write.changes import PartitionMove, changed, whole_instance, with_top
from rankd.redis.write.mirror import Mirror

KEY = InstanceKey("arcade")
NAME = instance_name(KEY)


@pytest.fixture
def plain(redis_server: RedisServer, redis_client: RedisClient) -> Any:
    return redis_server.client()


def top_of(plain: Any, shards: int) -> list[tuple[str, Kept]]:
    """Who stands in the sorted sets, in standing order."""
    rows = []
    for shard in range(shards):
        described = described_of(plain, KEY, shard)
        if described is not None:
            standing = ShardKeys("arcade", shard).of(KeyKind.STANDING, generation_of(plain, "arcade", shard), NAME)
            for member, number in plain.zrange(standing, 0, -1, withscores=True):
                kept = described.form.decode(number, b"" if described.form.is_packed else member[:8])
                rows.append((number, member, described.form.player(member), kept))
    return [(player, kept) for _, _, player, kept in sorted(rows)]


def everybody_in(plain: Any, shards: int) -> tuple[dict[str, Kept], int]:
    """All scores in the packed hash, and how many the steps count."""
    scores_by_player: dict[str, Kept] = {}
    counted = 0
    for shard in range(shards):
        keys, described = ShardKeys("arcade", shard), described_of(plain, KEY, shard)
        if described is None:
            continue
        generation = generation_of(plain, "arcade", shard)
        bytes_a_value = 8 if described.form.is_packed else 16
        for bucket, text in plain.hgetall(keys.of(KeyKind.SCORES, generation, NAME)).items():
            at = 0
            while bucket not in (b"n", b"p") and at < len(text):
                first = at + 1 + text[at]
                value = text[first : first + bytes_a_value]
                number = int.from_bytes(value[:8], "big", signed=True)
                scores_by_player[text[at + 1 : first].decode()] = described.form.decode(number, value[8:])
                at = first + bytes_a_value
        steps = plain.hgetall(keys.of(KeyKind.STEPS, generation, NAME))
        fine = sum(int(count) for step, count in steps.items() if not step.startswith(b"c"))
        assert fine == sum(int(count) for step, count in steps.items() if step.startswith(b"c"))
        counted += fine
    return scores_by_player, counted


@pytest.mark.parametrize("seed", range(24))
def test_the_top_is_that_of_the_engine_whatever_is_written(redis_client: RedisClient, plain: Any, seed: int) -> None:
    rng = random.Random(seed)
    exact_top, shards = rng.choice([1, 3, 10]), rng.choice([1, 3])
    bounds = rng.choice([(0, 1_000), (-(2**53) + 1, 2**53 - 1)])
    rules = Rules(rng.choice(list(Keep)), rng.choice(list(Order)), rng.choice(list(Ties)), *bounds)
    engine = EngineStore()
    mirror = Mirror(
        redis_client,
        whole=lambda key: (
            with_top(engine, page, exact_top, is_whole=True) for page in whole_instance(engine, key, rules)
        ),
        call_updates_max=rng.choice([2, 5_000]),
    )
    for at in range(15):
        players = [f"p{rng.randrange(25)}" for _ in range(rng.randrange(1, 10))]
        score = array("q", [rng.randint(-5 if rng.random() < 0.1 else 0, 40) for _ in players])
        ops = bytes(rng.choice([Op.APPLY, Op.APPLY, Op.PUT, Op.REMOVE]) for _ in players)
        tie = array("q", [rng.randrange(5) for _ in players])
        engine.apply(UpdateBatch([(KEY, rules)], players, score, tie=tie, op=ops, after=at, upto=at + 1))
        removed = [player for player, op in zip(players, ops, strict=True) if op == Op.REMOVE]
        change = changed(engine, KEY, rules, list(dict.fromkeys(players)), returned=removed)
        # What is put may be worse, whatever the keep: those are reported as having come back.
        change.returned = players
        answers = mirror.write(
            "arcade", shards, 0, [PartitionMove(0, at, at + 1)], [with_top(engine, change, exact_top)], time_ms=1
        )
        assert {answer.verdict for answer in answers} == {Verdict.APPLIED}
        everybody = engine_contents(engine, "arcade").get(KEY, [])
        assert top_of(plain, shards) == everybody[:exact_top], f"seed {seed}"
        assert everybody_in(plain, shards) == (dict(everybody), len(everybody)), f"seed {seed}"
    mirror.close()


DISTRIBUTIONS: dict[str, Callable[[random.Random], int]] = {
    "uniform": lambda rng: rng.randrange(1_000_000),
    "normal": lambda rng: int(abs(rng.gauss(500_000, 100_000))),
    "heavy-tailed": lambda rng: min(2**50, int(rng.paretovariate(0.8) * 100)),
}
PLAYERS, EXACT_TOP, SAMPLE = 20_000, 1_000, 200
ERROR_SHARE_MAX = 0.005  # of all players, between the guess and the truth: many share a score, and ids decide


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("scores", list(DISTRIBUTIONS))
def test_bounds_hold_the_truth_and_the_guess_is_near(
    redis_client: RedisClient, plain: Any, scores: str, order: Order
) -> None:
    rng = random.Random(20_261_115)
    rules = Rules(Keep.BEST, order, Ties.PLAYER, 0, 2**52)
    players = [f"player-{number}" for number in range(PLAYERS)]
    engine = EngineStore()
    engine.apply(
        UpdateBatch([(KEY, rules)], players, array("q", [DISTRIBUTIONS[scores](rng) for _ in players]), upto=1)
    )
    loading = Mirror(redis_client).begin("arcade", 2, 0)
    assert loading is not None
    for page in whole_instance(engine, KEY, rules):
        loading.load([with_top(engine, page, EXACT_TOP, is_whole=True)])
    loading.finish([(0, 1)], time_ms=1)
    assert len(top_of(plain, 2)) == EXACT_TOP

    worst = 0.0
    for player in rng.sample(players, SAMPLE):
        truth = engine.rank(KEY, player)
        estimate = RedisReader(redis_client, lambda _: 2).rank(KEY, player)
        assert truth is not None
        if truth.rank <= EXACT_TOP:
            assert estimate == truth
            continue
        assert estimate is not None
        assert estimate.bounds is not None
        assert (estimate.score, estimate.total) == (truth.score, PLAYERS)
        assert estimate.bounds[0] <= truth.rank <= estimate.bounds[1], player
        worst = max(worst, abs(estimate.rank - truth.rank) / PLAYERS)
    assert worst <= ERROR_SHARE_MAX, f"{scores}: {worst:.5f}"


def test_a_player_who_is_not_there_has_no_place(redis_client: RedisClient) -> None:
    rules = Rules()
    engine = EngineStore()
    engine.apply(UpdateBatch([(KEY, rules)], ["ann", "bob"], array("q", [5, 4]), upto=1))
    change = with_top(engine, changed(engine, KEY, rules, ["ann", "bob"]), 1)
    Mirror(redis_client).write("arcade", 1, 0, [PartitionMove(0, 0, 1)], [change], time_ms=1)

    reader = RedisReader(redis_client, lambda _: 1)
    assert reader.rank(KEY, "nobody") is None
    assert reader.around(KEY, "nobody", 1, 1) is None
    assert reader.rank(InstanceKey("arcade", "daily:2026-05-04"), "bob") is None
    standing = reader.rank(KEY, "bob")
    assert standing is not None
    assert (standing.rank, standing.bounds) == (2, (2, 2))


@pytest.mark.parametrize("high", [10**9, 2**62], ids=["packed", "prefixed"])
def test_buckets_stay_small_however_many_players_come(redis_client: RedisClient, plain: Any, high: int) -> None:
    rules = Rules(Keep.BEST, ties=Ties.PLAYER, score_min=0, score_max=high)
    engine, mirror = EngineStore(), Mirror(redis_client)
    players = [f"user_{number}" for number in range(3_000)]
    sent = 0
    for count in (1, 1, 10, 100, 888, 2_000):
        some = players[sent : sent + count]
        engine.apply(
            UpdateBatch([(KEY, rules)], some, array("q", range(sent, sent + count)), after=sent, upto=sent + count)
        )
        change = with_top(engine, changed(engine, KEY, rules, some), 3)
        mirror.write("arcade", 1, 0, [PartitionMove(0, sent, sent + count)], [change], time_ms=1)
        sent += count
        assert everybody_in(plain, 1) == (dict(engine_contents(engine, "arcade")[KEY]), sent)
        scores = plain.hgetall(ShardKeys("arcade", 0).of(KeyKind.SCORES, generation_of(plain, "arcade", 0), NAME))
        assert int(scores[b"p"]) == sent
        buckets = [text.count(b"user_") for bucket, text in scores.items() if bucket not in (b"n", b"p")]
        assert sent / 8 <= int(scores[b"n"]) <= sent / 8 + 1
        assert max(buckets) <= 40, max(buckets)  # of eight, or sixteen where a split is yet to come, by chance
    assert [RedisReader(redis_client, lambda _: 1).score(KEY, player) for player in players] == engine.scores(
        KEY, players
    )
    mirror.close()


def test_all_that_is_kept_takes_far_less_than_an_exact_board(redis_client: RedisClient, plain: Any) -> None:
    rules = Rules(Keep.BEST, ties=Ties.PLAYER, score_min=0, score_max=10**9)
    players = [f"user_{number:08d}" for number in range(PLAYERS)]
    engine = EngineStore()
    engine.apply(UpdateBatch([(KEY, rules)], players, array("q", range(PLAYERS)), upto=1))
    used: dict[int, int] = {}
    for exact_top in (0, PLAYERS // 100):
        mirror = Mirror(redis_client)
        mirror.drop("arcade", 1, 0)
        assert keys_of(plain) == {}
        loading = mirror.begin("arcade", 1, 0)
        assert loading is not None
        for page in whole_instance(engine, KEY, rules):
            loading.load([with_top(engine, page, exact_top, is_whole=True) if exact_top else page])
        loading.finish([(0, 1)], time_ms=1)
        used[exact_top] = sum(plain.memory_usage(key, samples=0) for key in plain.scan_iter("rankd:{arcade#0}*"))

    assert used[PLAYERS // 100] < 0.5 * used[0], used

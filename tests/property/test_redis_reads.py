"""Redis answers every read as the reference does, on one shard and on several, in as many round trips as it says."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.property.redis_comparison import SCORES, Comparison, comparison, random_comparison

from rankd.domain.order import Keep, Kept, Order, Ranking, Rules, Ties
from rankd.projection.engine import EngineStore
from rankd.projection.port import READ_ENTRIES_MAX
from rankd.redis.connection.client import RedisClient
from rankd.redis.forms import choose_form
from rankd.redis.keys import shard_of

ONE_ROUND_TRIP = 1
ROUND_TRIPS_OVER_SHARDS = {
    "total": 1,
    "digest": 1,
    "score": 1,
    "scores": 1,
    "captured": 1,
    "following": 1,
    "rank_of_score": 1,
    "count": 1,
    "rank": 2,
    "ranks": 2,
    "friends": 2,
    "around": 2,
    "range": 2,
    "quantiles": 2,
    "histogram": 2,
}
SIZES = [0, 1, 2, 40, 400]


@pytest.fixture
def rng() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown when the test fails
    return random.Random(seed)


@pytest.mark.parametrize("shards", [1, 3, 8])
@pytest.mark.parametrize("kind", list(SCORES))
def test_every_read_is_that_of_the_reference(
    redis_client: RedisClient, rng: random.Random, kind: str, shards: int
) -> None:
    for size in SIZES:
        board = random_comparison(redis_client, shards, kind, rng, size)
        board.ask_everything(rng, times=3)
        check_round_trips(board)


def test_every_read_is_that_of_the_reference_over_a_cluster(cluster_client: RedisClient, rng: random.Random) -> None:
    for kind in SCORES:
        board = random_comparison(cluster_client, 8, kind, rng, 300)
        board.ask_everything(rng, times=3)
        check_round_trips(board)


def check_round_trips(board: Comparison) -> None:
    for read, most in board.most_round_trips.items():
        allowed = ONE_ROUND_TRIP if board.shards == 1 else ROUND_TRIPS_OVER_SHARDS[read]
        assert most <= allowed, f"{read} took {most} round trips on {board.shards} shards"


# Boards that shards do not share evenly, and pages far from the top


@pytest.fixture(params=["alternating", "best in one shard", "all in one shard"])
def uneven(request: pytest.FixtureRequest, redis_client: RedisClient) -> Comparison:
    """Twelve thousand players whose shards have nothing to do with chance."""
    shards = 3
    names = iter(f"p{n}" for n in range(10**6))
    by_shard: list[list[str]] = [[] for _ in range(shards)]
    while min(map(len, by_shard)) < 12_000:
        name = next(names)
        by_shard[shard_of(name, shards)].append(name)
    orders: dict[str, Callable[[int], int]] = {
        "alternating": lambda n: n % shards,
        "best in one shard": lambda n: min(n // 4_000, shards - 1),
        "all in one shard": lambda _: 1,
    }
    order = orders[request.param]
    rows = [(by_shard[order(n)].pop(), 100_000 - n // 3, 0) for n in range(12_000)]
    return comparison(redis_client, shards, rows, Rules(keep=Keep.LATEST), EngineStore())


@pytest.mark.parametrize("ranking", [Ranking.ORDINAL, Ranking.COMPETITION])
def test_places_far_from_the_top_are_found_whatever_the_shards_hold(
    uneven: Comparison, rng: random.Random, ranking: Ranking
) -> None:
    for first in [1, 3_999, 4_001, 8_000, 11_990, 12_000, 12_001, rng.randrange(1, 12_000)]:
        for count in (1, 50, 4_000, READ_ENTRIES_MAX):
            uneven.same("range", first, first + count - 1, ranking)
    uneven.same("quantiles", [0, 1, 333_333, 333_334, 500_000, 999_999, 1_000_000])
    uneven.same("quantiles", [rng.randint(0, 1_000_000) for _ in range(200)])
    uneven.same("around", uneven.rows[6_000][0], READ_ENTRIES_MAX, READ_ENTRIES_MAX, ranking)
    uneven.same("following", (Kept(97_000, 0), "p"), READ_ENTRIES_MAX, ranking)

    assert uneven.most_round_trips["range"] <= 5
    assert uneven.most_round_trips["quantiles"] <= 5
    assert uneven.most_round_trips["around"] <= 3
    assert uneven.most_round_trips["following"] <= 2


def test_a_deep_page_of_players_spread_by_chance_takes_two_round_trips(
    redis_client: RedisClient, rng: random.Random
) -> None:
    rows = [(f"p{n}", rng.randrange(10**9), 0) for n in range(40_000)]
    board = comparison(redis_client, 8, rows, Rules(keep=Keep.LATEST), EngineStore())
    for first in (16_001, 20_000, 30_001, 39_990):
        board.same("range", first, first + 99)
        board.same("range", first, first + 9_999, Ranking.COMPETITION)
    board.same("range", 1, 100)
    board.same("quantiles", [10_000, 250_000, 500_000, 750_000, 900_000, 990_000])

    assert board.most_round_trips == {"range": 2, "quantiles": 2}


# Crowds: many who differ in their ids only, or in the low bits of their scores


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("high", [1_000, 2**53 - 1, 2**53], ids=["packed", "signed", "prefixed"])
def test_a_crowd_with_one_score_stands_by_their_ids(
    redis_client: RedisClient, rng: random.Random, shards: int, order: Order, high: int
) -> None:
    rows = [(f"p{n * 7_919 % 5_000}é", 500, 0) for n in range(5_000)] + [("first", 501, 0), ("last", 499, 0)]
    rules = Rules(keep=Keep.LATEST, order=order, ties=Ties.PLAYER, score_min=-high, score_max=high)
    board = comparison(redis_client, shards, rows, rules, EngineStore())
    for ranking in board.rankings:
        for player in rng.sample(board.players, 20):
            board.same("rank", player, ranking)
            board.same("around", player, 5, 5, ranking)
            board.same("following", (Kept(500, 0), player), 10, ranking)
        board.same("rank_of_score", 500, 0, ranking)
        board.same("friends", rng.sample(board.players, 500), ranking)
    board.same("histogram", 3)
    board.same("quantiles", [0, 100, 200, 500_000, 999_800, 1_000_000])


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize(("low", "high"), [(-(2**53) + 1, 2**53 - 1), (0, 2**53), (2**60, 2**60 + 2**54 - 1)])
def test_scores_just_beyond_the_bounds_are_not_taken_for_those_within(
    redis_client: RedisClient, shards: int, order: Order, low: int, high: int
) -> None:
    """Where numbers end, so do the integers that a double holds."""
    rules = Rules(keep=Keep.LATEST, order=order, ties=Ties.PLAYER, score_min=low, score_max=high)
    ends = [low, low + 1, high - 1, high]
    board = comparison(redis_client, shards, [(f"p{n}", ends[n % 4], 0) for n in range(12)], rules)
    assert choose_form(rules).is_packed
    for score in (low - 2, low - 1, *ends, high + 1, high + 2):
        for other in (low - 1, low, high, high + 1):
            board.same("count", min(score, other), max(score, other))
        for ranking in board.rankings:
            board.same("rank_of_score", score, 0, ranking)
            board.same("following", (Kept(score, 0), "p5"), 20, ranking)


def test_scores_that_share_a_number_are_distinguished(redis_client: RedisClient, rng: random.Random) -> None:
    rows = [(f"p{n}", 2**40 + n % 2_048, n % 3) for n in range(6_000)]
    rules = Rules(keep=Keep.LATEST, score_min=-(2**60), score_max=2**60)
    for shards in (1, 3):
        board = comparison(redis_client, shards, rows, rules, EngineStore())
        for ranking in board.rankings:
            board.same("ranks", rng.sample(board.players, 200), ranking)
            for _ in range(20):
                board.same("rank_of_score", 2**40 + rng.randrange(-1, 2_049), rng.randrange(4), ranking)
        for _ in range(20):
            low = 2**40 + rng.randrange(-5, 2_048)
            board.same("count", low, low + rng.randrange(100))
        board.same("histogram", 1_000)

"""Boards with exact_top: whatever is said to be exact is true, and bounds hold the truth, on every kind of board."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.batches import batch_of_rows
from tests.property.redis_comparison import ABSENT, BOARD_NUMBERS, SCORES, Counting, random_rows
from tests.servers.mirrored import KeepingReader

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Kept, Order, Ranking, Rules, Ties
from rankd.errors import RankingUnavailable
from rankd.projection.engine import EngineStore
from rankd.projection.port import READ_ENTRIES_MAX, RankedEntry, RankedStanding
from rankd.redis.connection.client import RedisClient
from rankd.redis.estimates import scores_of_step, step_bounds, step_of
from rankd.redis.forms import choose_form
from rankd.redis.write.changes import PartitionMove, changed, with_top
from rankd.redis.write.mirror import Mirror

RANKINGS = [Ranking.ORDINAL, Ranking.COMPETITION]
# By read: on one shard, and over several.
ROUND_TRIPS = {
    "total": (1, 1),
    "scores": (1, 1),
    "kept_of_all": (1, 1),
    "rank": (1, 2),
    "ranks": (1, 2),
    "friends": (1, 2),
    "range": (1, 2),
    "following": (1, 1),
    "around": (2, 2),
    "rank_of_score": (1, 1),
    "count": (1, 1),
    "quantiles": (2, 2),
    "histogram": (2, 2),
    "steps": (1, 1),
}
DISTRIBUTIONS: dict[str, tuple[int, int, Callable[[random.Random], int]]] = {
    **SCORES,
    "uniform": (0, 10**6, lambda rng: rng.randrange(10**6)),
    "normal": (-(10**9), 10**9, lambda rng: int(rng.gauss(0, 10**6))),
    "heavy-tailed": (0, 2**62, lambda rng: min(2**62, int(rng.paretovariate(0.3)))),
    "beyond a double": (2**55, 2**55 + 2**52, lambda rng: 2**55 + rng.randrange(2**52)),
    "around a power of two": (0, 2**63 - 1, lambda rng: 2**61 + rng.randrange(-3_000, 3_000)),
}


@pytest.fixture
def rng() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown when the test fails
    return random.Random(seed)


class Answer(NamedTuple):
    """What a read returned, and whether it says that all of it is exact."""

    result: Any
    exact: bool


class Board:
    """A board with exact_top in Redis, and the truth."""

    def __init__(self, client: RedisClient, rng: random.Random, kind: str, shards: int, players: int) -> None:
        low, high, score_of = DISTRIBUTIONS[kind]
        self.rng, self.score_of = rng, score_of
        self.shards, self.exact_top = shards, rng.choice([1, 3, max(1, players // 3), players, 1_000])
        self.rules = Rules(Keep.LATEST, rng.choice(list(Order)), rng.choice(list(Ties)), low, high)
        self.key = InstanceKey(f"top{next(BOARD_NUMBERS)}")
        self.engine = EngineStore()
        rows = random_rows(rng, score_of, players)
        self.players = [player for player, _, _ in rows]
        self.engine.apply(batch_of_rows((self.key, self.rules), rows, upto=1))
        mirror = Mirror(client, call_updates_max=rng.choice([7, 5_000]))
        change = with_top(self.engine, changed(self.engine, self.key, self.rules, self.players), self.exact_top)
        mirror.write(self.key.board, shards, 0, [PartitionMove(0, 0, 1)], [change], time_ms=1)
        mirror.close()
        self.counting = Counting(client)
        self.reader = KeepingReader(self.counting, lambda _: shards)
        self.top = min(self.exact_top, players)
        self.places: dict[str, int] = {
            entry.player: entry.rank for entry in self.truth("range", 1, READ_ENTRIES_MAX).entries
        }
        self.is_cut = players > self.top

    def truth(self, read: str, *arguments: Any) -> Any:
        return getattr(self.engine, read)(self.key, *arguments)

    def asked(self, read: str, *arguments: Any) -> Answer:
        """Ask Redis, in as many round trips as may be."""
        self.counting.round_trips = 0
        result = getattr(self.reader, read)(self.key, *arguments)
        assert self.counting.round_trips <= ROUND_TRIPS[read][self.shards > 1], (read, self.counting.round_trips)
        return Answer(result, exact=not self.reader.query.is_estimated)

    def is_exact(self, player: str) -> bool:
        return self.places[player] <= self.top

    def only_exact(self, entries: list[RankedEntry]) -> list[RankedEntry]:
        return [entry for entry in entries if self.is_exact(entry.player)]


def check_standing(board: Board, standing: RankedStanding | None, truth: RankedStanding | None) -> None:
    if standing is None or truth is None or board.is_exact(truth.player):
        assert standing == truth
        return
    assert (standing.player, standing.score, standing.tie, standing.total) == (
        truth.player,
        truth.score,
        truth.tie,
        truth.total,
    )
    assert standing.bounds is not None
    least, most = standing.bounds
    assert least <= truth.rank <= most
    assert least <= standing.rank <= most
    assert 0 <= standing.better < standing.total


def check_players(board: Board) -> None:
    rng = board.rng
    ranking = rng.choice(RANKINGS)
    player = rng.choice([*board.players, *ABSENT])
    group = [rng.choice([*board.players, *ABSENT]) for _ in range(rng.choice([0, 1, 30]))]
    assert board.asked("scores", group).result == board.truth("scores", group)
    assert board.asked("kept_of_all", group).result == board.truth("scores", group)

    answer = board.asked("rank", player, ranking)
    check_standing(board, answer.result, board.truth("rank", player, ranking))
    assert answer.exact is (answer.result is None or answer.result.bounds is None)
    listed = board.asked("ranks", group, ranking)
    for standing, truth in zip(listed.result, board.truth("ranks", group, ranking), strict=True):
        check_standing(board, standing, truth)
    assert listed.exact is all(standing is None or standing.bounds is None for standing in listed.result)

    friends, truths = board.asked("friends", group, ranking).result, board.truth("friends", group, ranking)
    assert [(friend.rank, friend.player, friend.score, friend.tie) for friend in friends] == [
        (friend.rank, friend.player, friend.score, friend.tie) for friend in truths
    ]
    for friend, truth in zip(friends, truths, strict=True):
        if board.is_exact(friend.player):
            assert friend == truth
        else:
            assert friend.bounds[0] <= truth.global_rank <= friend.bounds[1]


def check_pages(board: Board) -> None:
    rng = board.rng
    ranking = rng.choice(RANKINGS)
    first, many = rng.randint(1, len(board.players) + 5), rng.choice([1, 2, 20, READ_ENTRIES_MAX])
    after = None
    if board.players and rng.random() < 0.8:
        last = rng.choice(board.players)
        after = board.truth("score", last), last
    for read, *arguments in (
        ("range", first, first + many - 1, ranking),
        ("range", 1, many, ranking),
        ("following", after, many, ranking),
    ):
        seen, truth = board.asked(read, *arguments), board.truth(read, *arguments)
        assert seen.result.entries == board.only_exact(truth.entries), (read, arguments)
        assert seen.result.total == truth.total
        is_cut = len(seen.result.entries) < len(truth.entries)
        if read == "following" and after is not None and not board.is_exact(after[1]):
            is_cut = True  # behind somebody whose place is not known, others may stand or not
        assert (seen.result.is_cut, seen.exact) == (is_cut, not is_cut), (read, arguments)

    player = rng.choice([*board.players, *ABSENT])
    above, below = rng.choice([0, 3, READ_ENTRIES_MAX]), rng.choice([0, 3, 500])
    seen, truth = (
        board.asked("around", player, above, below, ranking),
        board.truth("around", player, above, below, ranking),
    )
    around = seen.result
    if truth is None:
        assert around is None
        return
    check_standing(board, around.player, truth.player)
    if board.is_exact(player):
        assert (around.above, around.below) == (truth.above, board.only_exact(truth.below))
        assert around.is_cut is (len(around.below) < len(truth.below))
    else:
        assert (around.above, around.below, around.is_cut) == ([], [], True)
    assert seen.exact is not (around.is_cut or around.player.bounds is not None)


def check_scores(board: Board) -> None:
    rng = board.rng
    ranking = rng.choice(RANKINGS)
    kept = [board.truth("score", player).score for player in board.players] or [0]
    score, other = (rng.choice([board.score_of(rng), rng.choice(kept)]) for _ in range(2))
    tie = rng.choice([0, 1, 2, 3])
    seen, truth = board.asked("rank_of_score", score, tie, ranking), board.truth("rank_of_score", score, tie, ranking)
    place = seen.result
    assert place.total == truth.total
    if seen.exact:
        assert place == truth
    else:
        assert place.bounds[0] <= truth.rank <= place.bounds[1]
        assert place.bounds[0] <= place.rank <= place.bounds[1]
        assert board.is_cut

    low, high = min(score, other), max(score, other)
    try:
        assert board.asked("count", low, high).result == board.truth("count", low, high)
    except RankingUnavailable:
        assert board.is_cut


def steps_about(score: int) -> tuple[int, int]:
    """Return the ends of the step of a score, and of its neighbours where a double cannot tell which one it is in."""
    low, high = step_bounds(score)
    return (step_bounds(low)[0], step_bounds(high)[1]) if abs(score) >= 2**52 else (low, high)


def check_spread(board: Board) -> None:
    rng = board.rng
    kept = sorted(board.truth("score", player).score for player in board.players)
    ppm = [0, 1_000_000, *(rng.randint(0, 1_000_000) for _ in range(rng.choice([1, 20])))]
    quantiles, truths = board.asked("quantiles", ppm), board.truth("quantiles", ppm)
    buckets = rng.choice([1, 2, 7, 50, 1_000])
    histogram, true_ones = board.asked("histogram", buckets), board.truth("histogram", buckets)
    assert quantiles.exact is histogram.exact is not board.is_cut
    if not board.is_cut:
        assert quantiles.result == truths
        assert histogram.result == true_ones
        return
    for quantile, truth in zip(quantiles.result, truths, strict=True):
        low, high = steps_about(truth)
        assert low <= quantile <= high
    assert sum(bucket.count for bucket in histogram.result) == len(kept)
    assert histogram.result[0].low <= kept[0]
    assert kept[-1] <= histogram.result[-1].high
    below = 0
    for bucket in histogram.result:
        low, high = steps_about(bucket.low)
        assert bisect_left(kept, low) <= below <= bisect_left(kept, high + 1), bucket
        below += bucket.count


def check_steps(board: Board) -> None:
    """Steps are those that a recomputation finds, rounding by rounding."""
    steps, form = board.asked("steps").result
    expected: dict[int, int] = {}
    for player in board.players:
        score, tie = board.truth("score", player)
        step = step_of(form, score, tie)
        low, high = scores_of_step(step)
        assert low <= score <= high
        expected[step] = expected.get(step, 0) + 1
    assert steps == expected
    assert board.reader.entries_of_all(board.key) == {
        player: Kept(*board.truth("score", player)) for player in board.players
    }


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("kind", list(DISTRIBUTIONS))
def test_what_is_exact_is_true_and_bounds_hold_the_truth(
    redis_client: RedisClient, rng: random.Random, kind: str, shards: int
) -> None:
    for size in (1, 2, 40, 600):
        board = Board(redis_client, rng, kind, shards, size)
        assert board.asked("total").result == size
        check_steps(board)
        for _ in range(4):
            check_players(board)
            check_pages(board)
            check_scores(board)
            check_spread(board)


def test_bounds_hold_the_truth_over_a_cluster(cluster_client: RedisClient, rng: random.Random) -> None:
    for kind in ("uniform", "heavy-tailed"):
        board = Board(cluster_client, rng, kind, 8, 300)
        check_steps(board)
        for check in (check_players, check_pages, check_scores, check_spread):
            check(board)


def test_both_forms_are_among_the_boards() -> None:
    bounds = [(low, high) for low, high, _ in DISTRIBUTIONS.values()]
    packed = [choose_form(Rules(ties=Ties.PLAYER, score_min=low, score_max=high)).is_packed for low, high in bounds]
    assert True in packed
    assert False in packed


def test_dense_places_are_refused_in_and_below_the_top(redis_client: RedisClient, rng: random.Random) -> None:
    board = Board(redis_client, rng, "uniform", 1, 50)
    for player in rng.sample(board.players, 20):
        for read in ("rank", "around"):
            arguments = (player, 1, 1) if read == "around" else (player,)
            with pytest.raises(RankingUnavailable):
                board.asked(read, *arguments, Ranking.DENSE)

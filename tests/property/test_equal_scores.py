"""A million players with one score: the id alone decides, and nothing becomes slow or wrong."""

from __future__ import annotations

import random
from array import array

import pytest

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Ranking, Rules, Ties
from rankd.projection.engine import EngineStore
from rankd.projection.port import Op, UpdateBatch

KEY = InstanceKey("everybody")
RULES = Rules(keep=Keep.LATEST, ties=Ties.PLAYER)
PLAYERS, PLAYERS_LONG = 100_000, 1_000_000
ROWS_PER_BATCH = 50_000
SAMPLE = 2_000
SEED = 20261115


def player(number: int) -> str:
    return f"p{number:07d}"


@pytest.mark.parametrize("players", [PLAYERS, pytest.param(PLAYERS_LONG, marks=pytest.mark.long)])
def test_a_crowd_with_one_score_stands_by_their_ids(players: int) -> None:
    rng = random.Random(SEED)
    numbers = list(range(players))
    rng.shuffle(numbers)
    store = EngineStore()
    for start in range(0, players, ROWS_PER_BATCH):
        ids = [player(number) for number in numbers[start : start + ROWS_PER_BATCH]]
        store.apply(UpdateBatch([(KEY, RULES)], ids, array("q", [7]) * len(ids)))

    for number in rng.sample(range(players), SAMPLE):
        standing = store.rank(KEY, player(number))
        assert standing is not None
        assert standing.rank == number + 1, f"seed {SEED}"
        assert standing.better == 0
        assert [store.rank(KEY, player(number), ranking).rank for ranking in list(Ranking)[1:]] == [1, 1]  # type: ignore[union-attr]
    half = players // 2
    page = store.range(KEY, half + 1, half + 100)
    assert [entry.player for entry in page.entries] == [player(number) for number in range(half, half + 100)]

    gone = rng.sample(range(players), SAMPLE)
    ids = [player(number) for number in gone]
    store.apply(UpdateBatch([(KEY, RULES)], ids, array("q", [0]) * SAMPLE, op=array("B", [Op.REMOVE]) * SAMPLE))
    left = set(range(players)).difference(gone)
    last = max(left)
    assert store.rank(KEY, player(last)).rank == len(left)  # type: ignore[union-attr]
    store.check()

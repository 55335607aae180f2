"""A million players with one score: the id alone decides, and nothing becomes slow or wrong."""

from __future__ import annotations

import random
from array import array

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Ranking, Rules, Ties
from rankd.projection.engine import EngineStore
from rankd.projection.port import Batch, Op

KEY = InstanceKey("everybody")
RULES = Rules(keep=Keep.LATEST, ties=Ties.PLAYER)
PLAYERS = 1_000_000
ROWS_PER_BATCH = 100_000
SAMPLE = 2_000
SEED = 20261115


def player(number: int) -> str:
    return f"p{number:07d}"


def test_a_million_players_with_one_score_stand_by_their_ids() -> None:
    rng = random.Random(SEED)
    numbers = list(range(PLAYERS))
    rng.shuffle(numbers)
    store = EngineStore()
    for start in range(0, PLAYERS, ROWS_PER_BATCH):
        ids = [player(number) for number in numbers[start : start + ROWS_PER_BATCH]]
        store.apply(Batch([(KEY, RULES)], ids, array("q", [7]) * len(ids)))

    for number in rng.sample(range(PLAYERS), SAMPLE):
        standing = store.rank(KEY, player(number))
        assert standing is not None
        assert standing.rank == number + 1, f"seed {SEED}"
        assert standing.better == 0
        assert [store.rank(KEY, player(number), ranking).rank for ranking in list(Ranking)[1:]] == [1, 1]  # type: ignore[union-attr]
    page = store.range(KEY, 500_001, 500_100)
    assert [entry.player for entry in page.entries] == [player(number) for number in range(500_000, 500_100)]

    gone = rng.sample(range(PLAYERS), SAMPLE)
    ids = [player(number) for number in gone]
    store.apply(Batch([(KEY, RULES)], ids, array("q", [0]) * SAMPLE, op=array("B", [Op.REMOVE]) * SAMPLE))
    left = set(range(PLAYERS)).difference(gone)
    last = max(left)
    assert store.rank(KEY, player(last)).rank == len(left)  # type: ignore[union-attr]
    store.check()

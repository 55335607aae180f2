"""Every argument of a read has limits; one outside them is refused by name, one on them is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.batches import batch_of_rows

from rankd.domain.instance import InstanceKey
from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE, TIE_FIELD_MAX, Kept, Ranking, Rules
from rankd.errors import InvalidValue
from rankd.projection.port import (
    HISTOGRAM_BUCKETS_MAX,
    QUANTILE_PPM_MAX,
    QUANTILES_MAX,
    READ_ENTRIES_MAX,
    READ_PLACE_MAX,
    READ_PLAYERS_MAX,
    SEQUENCE_MAX,
    RankStore,
)

KEY = InstanceKey("arcade")
NOWHERE = InstanceKey("nowhere")
KEYS = pytest.mark.parametrize("key", [KEY, NOWHERE], ids=["a board", "an empty one"])
Read = Callable[[RankStore, InstanceKey], object]

REFUSED: list[tuple[str, Read]] = [
    ("partition", lambda store, _: store.position(-1)),
    ("partition", lambda store, _: store.position(SEQUENCE_MAX + 1)),
    ("first", lambda store, key: store.range(key, 0, 5)),
    ("first", lambda store, key: store.range(key, -1, -5)),
    ("first", lambda store, key: store.range(key, -(2**70), 5)),
    ("first", lambda store, key: store.range(key, READ_PLACE_MAX + 1, READ_PLACE_MAX + 2)),
    ("first", lambda store, key: store.range(key, 0, READ_ENTRIES_MAX + 5)),
    ("last", lambda store, key: store.range(key, 1, READ_ENTRIES_MAX + 1)),
    ("last", lambda store, key: store.range(key, 7, READ_ENTRIES_MAX + 7)),
    ("last", lambda store, key: store.range(key, 1, 2**70)),
    ("last", lambda store, key: store.range(key, READ_PLACE_MAX, READ_PLACE_MAX + 1)),
    ("limit", lambda store, key: store.following(key, None, 0)),
    ("limit", lambda store, key: store.following(key, None, -1)),
    ("limit", lambda store, key: store.following(key, None, READ_ENTRIES_MAX + 1)),
    ("limit", lambda store, key: store.following(key, (Kept(1, 0), "ann"), 2**70)),
    ("after", lambda store, key: store.following(key, (Kept(SCORE_MAX_POSSIBLE + 1, 0), "ann"), 1)),
    ("after", lambda store, key: store.following(key, (Kept(SCORE_MIN_POSSIBLE - 1, 0), "ann"), 1)),
    ("after", lambda store, key: store.following(key, (Kept(0, -1), "ann"), 1)),
    ("after", lambda store, key: store.following(key, (Kept(0, TIE_FIELD_MAX + 1), "ann"), 1)),
    ("after", lambda store, key: store.following(key, (Kept(0, 0), "\ud800"), 1)),
    ("after", lambda store, key: store.following(key, (Kept(0, -1), "ann"), 0)),
    ("above", lambda store, key: store.around(key, "ann", -1, 0)),
    ("above", lambda store, key: store.around(key, "ann", READ_ENTRIES_MAX + 1, 0)),
    ("above", lambda store, key: store.around(key, "ann", -1, -1)),
    ("above", lambda store, key: store.around(key, "nobody", 2**70, 0)),
    ("below", lambda store, key: store.around(key, "ann", 0, -1)),
    ("below", lambda store, key: store.around(key, "ann", 0, READ_ENTRIES_MAX + 1)),
    ("below", lambda store, key: store.around(key, "nobody", 0, -1)),
    ("players", lambda store, key: store.scores(key, ["ann"] * (READ_PLAYERS_MAX + 1))),
    ("players", lambda store, key: store.ranks(key, ["ann"] * (READ_PLAYERS_MAX + 1))),
    ("players", lambda store, key: store.friends(key, ["ann"] * (READ_PLAYERS_MAX + 1))),
    ("score", lambda store, key: store.rank_of_score(key, SCORE_MAX_POSSIBLE + 1, 0)),
    ("score", lambda store, key: store.rank_of_score(key, SCORE_MIN_POSSIBLE - 1, 0)),
    ("score", lambda store, key: store.rank_of_score(key, 2**70, -1)),
    ("tie", lambda store, key: store.rank_of_score(key, 0, -1)),
    ("tie", lambda store, key: store.rank_of_score(key, 0, TIE_FIELD_MAX + 1)),
    ("low", lambda store, key: store.count(key, SCORE_MIN_POSSIBLE - 1, 0)),
    ("low", lambda store, key: store.count(key, SCORE_MAX_POSSIBLE + 1, 0)),
    ("high", lambda store, key: store.count(key, 0, SCORE_MAX_POSSIBLE + 1)),
    ("high", lambda store, key: store.count(key, 0, SCORE_MIN_POSSIBLE - 1)),
    ("ppm", lambda store, key: store.quantiles(key, [-1])),
    ("ppm", lambda store, key: store.quantiles(key, [0, QUANTILE_PPM_MAX + 1])),
    ("ppm", lambda store, key: store.quantiles(key, [2**70])),
    ("ppm", lambda store, key: store.quantiles(key, [0] * (QUANTILES_MAX + 1))),
    ("buckets", lambda store, key: store.histogram(key, 0)),
    ("buckets", lambda store, key: store.histogram(key, -1)),
    ("buckets", lambda store, key: store.histogram(key, HISTOGRAM_BUCKETS_MAX + 1)),
    ("buckets", lambda store, key: store.histogram(key, 2**70)),
]


@pytest.fixture
def filled(store: RankStore) -> RankStore:
    store.apply(batch_of_rows((KEY, Rules()), [("ann", 5), ("bob", 6)]))
    return store


@KEYS
@pytest.mark.parametrize(("argument", "read"), REFUSED, ids=[f"{name}-{n}" for n, (name, _) in enumerate(REFUSED)])
def test_an_argument_outside_its_limits_is_refused_by_name(
    filled: RankStore, key: InstanceKey, argument: str, read: Read
) -> None:
    with pytest.raises(InvalidValue) as refused:
        read(filled, key)

    assert refused.value.field == argument
    assert str(refused.value).startswith(f"{argument}: ")


@KEYS
@pytest.mark.parametrize("player", [None, 5, b"ann", ["ann"]])
def test_a_player_that_is_no_text_is_a_type_error(filled: RankStore, key: InstanceKey, player: str) -> None:
    for read in (
        lambda: filled.score(key, player),
        lambda: filled.rank(key, player),
        lambda: filled.around(key, player, 1, 1),
        lambda: filled.around(key, player, -1, 1),
        lambda: filled.following(key, (Kept(0, 0), player), 1),
        lambda: filled.scores(key, ["ann", player]),
        lambda: filled.ranks(key, ["ann", player]),
        lambda: filled.friends(key, ["ann", player]),
    ):
        with pytest.raises(TypeError):
            read()


@pytest.mark.parametrize("ranking", list(Ranking))
def test_an_argument_on_its_limit_is_served(filled: RankStore, ranking: Ranking) -> None:
    many = ["ann", "bob"] * (READ_PLAYERS_MAX // 2)

    assert len(filled.scores(KEY, many)) == READ_PLAYERS_MAX
    assert len(filled.ranks(KEY, many, ranking)) == READ_PLAYERS_MAX
    assert len(filled.friends(KEY, many, ranking)) == 2
    assert len(filled.range(KEY, 1, READ_ENTRIES_MAX, ranking).entries) == 2
    assert len(filled.range(KEY, 2, READ_ENTRIES_MAX + 1, ranking).entries) == 1
    assert filled.range(KEY, READ_PLACE_MAX, READ_PLACE_MAX, ranking).entries == []
    assert len(filled.following(KEY, None, READ_ENTRIES_MAX, ranking).entries) == 2
    assert filled.around(KEY, "ann", READ_ENTRIES_MAX, READ_ENTRIES_MAX, ranking) is not None
    assert filled.rank_of_score(KEY, SCORE_MIN_POSSIBLE, TIE_FIELD_MAX, ranking).total == 2
    assert filled.rank_of_score(KEY, SCORE_MAX_POSSIBLE, 0, ranking).rank == 1
    assert filled.count(KEY, SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE) == 2
    assert filled.quantiles(KEY, [0, QUANTILE_PPM_MAX] * (QUANTILES_MAX // 2)) == [5, 6] * (QUANTILES_MAX // 2)
    assert len(filled.histogram(KEY, HISTOGRAM_BUCKETS_MAX)) == 2
    assert filled.position(SEQUENCE_MAX).sequence == 0


def test_a_whole_page_may_have_as_many_entries_as_the_limit(store: RankStore) -> None:
    store.apply(batch_of_rows((KEY, Rules()), [(f"p{n}", n) for n in range(READ_ENTRIES_MAX + 5)]))

    assert len(store.range(KEY, 3, READ_ENTRIES_MAX + 2).entries) == READ_ENTRIES_MAX
    assert len(store.following(KEY, None, READ_ENTRIES_MAX).entries) == READ_ENTRIES_MAX
    around = store.around(KEY, "p5000", READ_ENTRIES_MAX, READ_ENTRIES_MAX)
    assert around is not None
    assert (len(around.above), len(around.below)) == (5_004, 5_000)

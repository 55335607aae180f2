"""What each read answers, in every ranking, in the middle of a board and at its ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rankd.domain.instance import InstanceKey
from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE, TIE_FIELD_MAX, Kept, Order, Ranking, Ties
from rankd.projection.port import (
    Op,
    RankedAround,
    RankedEntry,
    RankedFriend,
    RankedPage,
    RankedPlace,
    RankedStanding,
    RankStore,
    walk,
)

if TYPE_CHECKING:
    from tests.contract.conftest import Board, MakeBoard

NOWHERE = InstanceKey("nowhere")
NOBODY = ["nobody", "", "x" * 129, "é" * 65, "\ud800", "a\udfff"]  # the others can never be in a store

# ordinal, competition, dense, player, score, tie
STANDING_ORDER: list[tuple[int, int, int, str, int, int]] = [
    (1, 1, 1, "ann", 50, 1),
    (2, 1, 1, "bob", 50, 2),
    (3, 3, 2, "cid", 40, 1),
    (4, 4, 3, "dan", 30, 5),
    (5, 4, 3, "eve", 30, 5),
    (6, 4, 3, "fay", 30, 6),
    (7, 7, 4, "gus", -7, 0),
]
BETTER = {"ann": 0, "bob": 0, "cid": 2, "dan": 3, "eve": 3, "fay": 3, "gus": 6}


def entries(ranking: Ranking) -> list[RankedEntry]:
    answer = []
    for ordinal, competition, dense, player, score, tie in STANDING_ORDER:
        rank = {Ranking.ORDINAL: ordinal, Ranking.COMPETITION: competition, Ranking.DENSE: dense}[ranking]
        answer.append(RankedEntry(rank, player, score, tie))
    return answer


def standing(player: str, ranking: Ranking) -> RankedStanding:
    (entry,) = (entry for entry in entries(ranking) if entry.player == player)
    return RankedStanding(entry.rank, player, entry.score, entry.tie, BETTER[player], len(STANDING_ORDER))


@pytest.fixture
def seven(board: Board) -> Board:
    """Seven players, some level, written in no order."""
    board.apply(*((player, score, tie) for _, _, _, player, score, tie in STANDING_ORDER[::2] + STANDING_ORDER[1::2]))
    return board


# An instance nobody stands in


@pytest.mark.parametrize("ranking", list(Ranking))
def test_an_instance_nobody_wrote_to_is_empty_in_every_read(store: RankStore, ranking: Ranking) -> None:
    assert store.total(NOWHERE) == 0
    assert store.score(NOWHERE, "ann") is None
    assert store.scores(NOWHERE, ["ann", "bob"]) == [None, None]
    assert store.rank(NOWHERE, "ann", ranking) is None
    assert store.ranks(NOWHERE, ["ann", "bob"], ranking) == [None, None]
    assert store.range(NOWHERE, 1, 10, ranking) == RankedPage([], 0)
    assert store.following(NOWHERE, None, 10, ranking) == RankedPage([], 0)
    assert store.following(NOWHERE, (Kept(5, 0), "ann"), 10, ranking) == RankedPage([], 0)
    assert store.around(NOWHERE, "ann", 1, 1, ranking) is None
    assert store.friends(NOWHERE, ["ann", "bob"], ranking) == []
    assert store.rank_of_score(NOWHERE, 5, 0, ranking) == RankedPlace(rank=1, total=0)
    assert store.count(NOWHERE, SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE) == 0
    assert store.quantiles(NOWHERE, [0, 500_000]) is None
    assert store.quantiles(NOWHERE, []) is None
    assert store.histogram(NOWHERE, 10) == []
    assert store.digest(NOWHERE) == 0
    assert store.drop(NOWHERE) is False
    assert list(walk(store, NOWHERE)) == []
    assert list(store.instances()) == []


# score, scores


def test_a_kept_score_comes_with_its_tie_field(seven: Board) -> None:
    kept = seven.store.score(seven.key, "dan")

    assert kept == Kept(score=30, tie=5)
    assert isinstance(kept, Kept)


@pytest.mark.parametrize("player", NOBODY)
def test_a_player_who_is_not_there_has_no_score_and_no_rank(seven: Board, player: str) -> None:
    store, key = seven.store, seven.key

    assert store.score(key, player) is None
    assert store.rank(key, player) is None
    assert store.around(key, player, 3, 3) is None
    assert store.scores(key, [player, "ann"]) == [None, Kept(50, 1)]
    assert store.ranks(key, [player, "ann"]) == [None, standing("ann", Ranking.ORDINAL)]
    assert [friend.player for friend in store.friends(key, [player, "ann"])] == ["ann"]


def test_many_scores_come_in_request_order_as_often_as_asked(seven: Board) -> None:
    assert seven.store.scores(seven.key, ["gus", "nobody", "ann", "gus"]) == [
        Kept(-7, 0),
        None,
        Kept(50, 1),
        Kept(-7, 0),
    ]
    assert seven.store.scores(seven.key, []) == []


def test_players_may_be_any_sequence(seven: Board) -> None:
    assert seven.store.scores(seven.key, ("ann",)) == [Kept(50, 1)]
    assert [friend.player for friend in seven.store.friends(seven.key, ("bob", "ann"))] == ["ann", "bob"]
    assert [place and place.rank for place in seven.store.ranks(seven.key, ("bob", "ann"))] == [2, 1]


# rank, ranks


@pytest.mark.parametrize("ranking", list(Ranking))
@pytest.mark.parametrize("player", list(BETTER))
def test_a_player_has_the_rank_of_the_ranking_asked_for(seven: Board, player: str, ranking: Ranking) -> None:
    assert seven.store.rank(seven.key, player, ranking) == standing(player, ranking)


def test_ranks_are_ordinal_unless_said_otherwise(seven: Board) -> None:
    store, key = seven.store, seven.key

    assert store.rank(key, "eve") == standing("eve", Ranking.ORDINAL)
    assert store.ranks(key, ["eve"]) == [standing("eve", Ranking.ORDINAL)]
    assert store.range(key, 1, 10).entries == entries(Ranking.ORDINAL)
    assert store.following(key, None, 10).entries == entries(Ranking.ORDINAL)
    around = store.around(key, "eve", 1, 1)
    assert around is not None
    assert around.player == standing("eve", Ranking.ORDINAL)
    assert [friend.rank for friend in store.friends(key, ["dan", "eve"])] == [1, 2]
    assert store.rank_of_score(key, 30, 5).rank == 6


@pytest.mark.parametrize("ranking", list(Ranking))
def test_many_ranks_come_in_request_order_as_often_as_asked(seven: Board, ranking: Ranking) -> None:
    asked = ["gus", "nobody", "ann", "eve", "gus", "bob"]

    assert seven.store.ranks(seven.key, asked, ranking) == [
        None if player == "nobody" else standing(player, ranking) for player in asked
    ]
    assert seven.store.ranks(seven.key, [], ranking) == []


@pytest.mark.parametrize("ranking", list(Ranking))
def test_the_only_player_is_first(make_board: MakeBoard, ranking: Ranking) -> None:
    board = make_board(("ann", 0))

    assert board.store.rank(board.key, "ann", ranking) == RankedStanding(1, "ann", 0, 0, better=0, total=1)


@pytest.mark.parametrize(("ranking", "rank"), [(Ranking.ORDINAL, 3), (Ranking.COMPETITION, 1), (Ranking.DENSE, 1)])
def test_where_all_are_level_nobody_is_better(make_board: MakeBoard, ranking: Ranking, rank: int) -> None:
    board = make_board(*((player, 5) for player in "edcba"))

    assert board.store.rank(board.key, "c", ranking) == RankedStanding(rank, "c", 5, 0, better=0, total=5)


# range


@pytest.mark.parametrize("ranking", list(Ranking))
def test_every_range_is_that_cut_of_the_standing_order(seven: Board, ranking: Ranking) -> None:
    everybody = entries(ranking)
    for first in range(1, 10):
        for last in range(first - 2, 12):
            assert seven.store.range(seven.key, first, last, ranking) == RankedPage(
                everybody[first - 1 : max(last, 0)], 7
            )


@pytest.mark.parametrize(
    ("first", "last"), [(1, 0), (5, 4), (5, 1), (1, -5), (3, -(2**70)), (8, 20), (2**63 - 1, 2**63 - 1)]
)
def test_a_range_of_no_places_is_an_empty_page_with_the_total(seven: Board, first: int, last: int) -> None:
    assert seven.store.range(seven.key, first, last) == RankedPage([], 7)


# following


@pytest.mark.parametrize("ranking", list(Ranking))
def test_pages_go_on_behind_each_entry(seven: Board, ranking: Ranking) -> None:
    everybody = entries(ranking)
    assert seven.store.following(seven.key, None, 3, ranking) == RankedPage(everybody[:3], 7)
    for place, entry in enumerate(everybody, start=1):
        for limit in (1, 2, 10):
            page = seven.store.following(seven.key, (Kept(entry.score, entry.tie), entry.player), limit, ranking)
            assert page == RankedPage(everybody[place : place + limit], 7)


@pytest.mark.parametrize(
    ("score", "tie", "player", "first"),
    [
        (60, 0, "zoe", "ann"),
        (50, 0, "zoe", "ann"),
        (50, 1, "", "ann"),
        (50, 1, "ann\0", "bob"),
        (50, 1, "x" * 500, "bob"),
        (50, 1, "\U0010ffff", "bob"),
        (45, 9, "ann", "cid"),
        (30, 5, "da", "dan"),
        (30, 5, "dan", "eve"),
        (30, 5, "dao", "eve"),
        (30, 5, "zoe", "fay"),
        (30, TIE_FIELD_MAX, "", "gus"),
        (SCORE_MAX_POSSIBLE, 0, "", "ann"),
        (SCORE_MIN_POSSIBLE, TIE_FIELD_MAX, "\U0010ffff", None),
        (-7, 0, "gus", None),
    ],
)
def test_going_on_from_somebody_who_is_not_there(
    seven: Board, score: int, tie: int, player: str, first: str | None
) -> None:
    page = seven.store.following(seven.key, (Kept(score, tie), player), 1)

    assert [entry.player for entry in page.entries] == ([] if first is None else [first])


@pytest.mark.parametrize(
    ("ties", "order", "expected"),
    [
        (Ties.EARLIEST, Order.DESC, ["c", "d"]),
        (Ties.LATEST, Order.DESC, ["a", "d"]),
        (Ties.VALUE, Order.ASC, ["a", "z"]),
        (Ties.PLAYER, Order.ASC, ["c", "z"]),
    ],
)
def test_going_on_follows_the_ties_of_the_board(
    make_board: MakeBoard, ties: Ties, order: Order, expected: list[str]
) -> None:
    board = make_board(("a", 5, 1), ("b", 5, 2), ("c", 5, 3), ("d", 4, 0), ("z", 6, 0), ties=ties, order=order)

    assert [entry.player for entry in board.store.following(board.key, (Kept(5, 2), "b"), 2).entries] == expected


def test_a_walk_sees_everybody_once_in_standing_order_whatever_its_chunk(seven: Board) -> None:
    for chunk in (1, 2, 3, 7, 8, 1_000):
        for ranking in Ranking:
            assert list(walk(seven.store, seven.key, chunk, ranking)) == entries(ranking)


def test_a_walk_goes_on_where_the_last_entry_stood_though_that_player_has_moved(seven: Board) -> None:
    seen = []
    for entry in walk(seven.store, seven.key, chunk=1):
        seen.append(entry.player)
        seven.remove(entry.player)
        seven.apply((f"late {entry.player}", 1_000))  # stands before, where the walk has been

    assert seen == list(BETTER)


# around


@pytest.mark.parametrize("ranking", list(Ranking))
def test_neighbours_are_those_just_above_and_below_cut_at_the_ends(seven: Board, ranking: Ranking) -> None:
    everybody = entries(ranking)
    for place, entry in enumerate(everybody):
        for above in (0, 1, 2, 6, 7, 10_000):
            for below in (0, 1, 3, 6, 7, 10_000):
                assert seven.store.around(seven.key, entry.player, above, below, ranking) == RankedAround(
                    above=everybody[max(0, place - above) : place],
                    player=standing(entry.player, ranking),
                    below=everybody[place + 1 : place + 1 + below],
                )


# friends


@pytest.mark.parametrize(
    ("ranking", "expected"),
    [
        (Ranking.ORDINAL, [(1, 2), (2, 4), (3, 6), (4, 7)]),
        (Ranking.COMPETITION, [(1, 1), (2, 4), (2, 4), (4, 7)]),
        (Ranking.DENSE, [(1, 1), (2, 3), (2, 3), (3, 4)]),
    ],
)
def test_friends_are_ranked_among_themselves_and_in_the_instance(
    seven: Board, ranking: Ranking, expected: list[tuple[int, int]]
) -> None:
    friends = seven.store.friends(seven.key, ["gus", "fay", "nobody", "bob", "dan"], ranking)

    assert friends == [
        RankedFriend(rank, player, score, tie, global_rank)
        for (rank, global_rank), (player, score, tie) in zip(
            expected, [("bob", 50, 2), ("dan", 30, 5), ("fay", 30, 6), ("gus", -7, 0)], strict=True
        )
    ]


def test_a_friend_asked_for_twice_stands_once(seven: Board) -> None:
    friends = seven.store.friends(seven.key, ["eve", "ann", "eve", "ann", "eve"])

    assert [(friend.player, friend.rank) for friend in friends] == [("ann", 1), ("eve", 2)]


def test_nobody_has_no_friends(seven: Board) -> None:
    assert seven.store.friends(seven.key, []) == []
    assert seven.store.friends(seven.key, NOBODY) == []


# rank_of_score


@pytest.mark.parametrize(
    ("score", "tie", "ranks"),
    [
        (SCORE_MAX_POSSIBLE, 0, [1, 1, 1]),
        (51, 0, [1, 1, 1]),
        (50, 0, [1, 1, 1]),
        (50, 1, [2, 1, 1]),
        (50, 2, [3, 1, 1]),
        (50, TIE_FIELD_MAX, [3, 1, 1]),
        (45, 0, [3, 3, 2]),
        (40, 0, [3, 3, 2]),
        (40, 1, [4, 3, 2]),
        (30, 4, [4, 4, 3]),
        (30, 5, [6, 4, 3]),
        (30, 6, [7, 4, 3]),
        (0, 0, [7, 7, 4]),
        (-7, 0, [8, 7, 4]),
        (-8, 0, [8, 8, 5]),
        (SCORE_MIN_POSSIBLE, TIE_FIELD_MAX, [8, 8, 5]),
    ],
)
def test_a_score_would_stand_last_of_those_level_with_it(seven: Board, score: int, tie: int, ranks: list[int]) -> None:
    places = [seven.store.rank_of_score(seven.key, score, tie, ranking) for ranking in Ranking]

    assert places == [RankedPlace(rank, 7) for rank in ranks]


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("ties", list(Ties))
def test_who_then_sends_the_score_stands_where_it_was_said(make_board: MakeBoard, ties: Ties, order: Order) -> None:
    board = make_board(*((f"p{n}", n % 4, n % 3) for n in range(40)), ties=ties, order=order)
    last = "\U0010ffff"
    for score in range(-1, 6):
        for tie in range(4):
            places = [board.store.rank_of_score(board.key, score, tie, ranking) for ranking in Ranking]
            board.apply((last, score, tie))
            stood = [board.store.rank(board.key, last, ranking) for ranking in Ranking]
            board.remove(last)
            assert places == [
                RankedPlace(ranked_standing.rank, ranked_standing.total - 1)
                for ranked_standing in stood
                if ranked_standing is not None
            ]


# Both orders, and boards too large for one block


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("players", [1, 2, 31, 32, 33, 255, 256, 257, 1_000, 2_500])
def test_a_board_of_any_size_reads_the_same(make_board: MakeBoard, players: int, order: Order) -> None:
    sent = [(f"p{n}", n * 7919 % players // 3, n % 5) for n in range(players)]
    board = make_board(*sent, order=order)
    store, key = board.store, board.key
    sign = -1 if order is Order.DESC else 1
    expected = sorted(sent, key=lambda row: (sign * row[1], row[2], row[0].encode()))

    assert [(entry.player, entry.score, entry.tie) for entry in walk(store, key, chunk=97)] == expected
    assert [entry.rank for entry in walk(store, key, chunk=97)] == list(range(1, players + 1))
    distinct = sorted({row[1] for row in sent}, key=lambda score: sign * score)
    for place in sorted({0, players // 3, players // 2, players - 1}):
        player, score, tie = expected[place]
        better = sum(sign * row[1] < sign * score for row in sent)
        assert store.rank(key, player) == RankedStanding(place + 1, player, score, tie, better, players)
        competition, dense = store.rank(key, player, Ranking.COMPETITION), store.rank(key, player, Ranking.DENSE)
        assert competition is not None
        assert dense is not None
        assert (competition.rank, dense.rank) == (better + 1, distinct.index(score) + 1)
        page = store.range(key, place + 1, place + 50)
        assert [entry.player for entry in page.entries] == [row[0] for row in expected[place : place + 50]]
        around = store.around(key, player, 20, 20)
        assert around is not None
        assert [entry.player for entry in around.above] == [row[0] for row in expected[max(0, place - 20) : place]]
        assert [entry.player for entry in around.below] == [row[0] for row in expected[place + 1 : place + 21]]


def test_a_board_that_grew_and_shrank_reads_as_one_that_never_did(make_board: MakeBoard) -> None:
    board, fresh = make_board(name="grown"), make_board(name="fresh")
    rows = [(f"p{n}", n * 31 % 1_009, n % 7) for n in range(4_000)]
    board.apply(*rows)
    board.mixed(*((Op.REMOVE, player, 0) for player, _, _ in rows[40:]))
    fresh.apply(*rows[:40])

    assert list(walk(board.store, board.key)) == list(walk(fresh.store, fresh.key))
    assert board.store.digest(board.key) == fresh.store.digest(fresh.key)
    board.remove(*(player for player, _, _ in rows[:40]))
    assert list(board.store.instances()) == [fresh.key]

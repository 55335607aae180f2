"""Who stands before whom: scores, ties and ids, at every end of their ranges."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE, TIE_FIELD_MAX, Keep, Kept, Order, Ranking, Ties

if TYPE_CHECKING:
    from tests.contract.conftest import Board, MakeBoard

ENDS = [SCORE_MIN_POSSIBLE, SCORE_MIN_POSSIBLE + 1, -1, 0, 1, SCORE_MAX_POSSIBLE - 1, SCORE_MAX_POSSIBLE]


def test_more_is_better(make_board: MakeBoard) -> None:
    assert make_board(("ann", 1), ("bob", 3), ("cid", 2), order=Order.DESC).order() == ["bob", "cid", "ann"]


def test_less_is_better_where_the_order_says_so(make_board: MakeBoard) -> None:
    assert make_board(("ann", 1), ("bob", 3), ("cid", 2), order=Order.ASC).order() == ["ann", "cid", "bob"]


@pytest.mark.parametrize("order", list(Order))
def test_scores_of_64_bits_are_ordered_to_their_ends(make_board: MakeBoard, order: Order) -> None:
    board = make_board(*((f"p{score}", score) for score in ENDS[::2] + ENDS[1::2]), order=order)
    expected = sorted(ENDS, reverse=order is Order.DESC)

    assert [kept.score for kept in board.kept().values()] == expected
    standings = board.store.ranks(board.key, [f"p{score}" for score in expected])
    assert [standing and (standing.rank, standing.better) for standing in standings] == [
        (place + 1, place) for place in range(len(expected))
    ]
    for low, high in ((SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE), (SCORE_MIN_POSSIBLE, SCORE_MIN_POSSIBLE), (0, 0)):
        assert board.store.count(board.key, low, high) == sum(low <= score <= high for score in ENDS)


@pytest.mark.parametrize("order", list(Order))
def test_the_best_of_both_ends_of_64_bits_stays(make_board: MakeBoard, order: Order) -> None:
    low, high = ("ann", SCORE_MIN_POSSIBLE), ("ann", SCORE_MAX_POSSIBLE)
    best = SCORE_MAX_POSSIBLE if order is Order.DESC else SCORE_MIN_POSSIBLE

    assert make_board(low, high, name="up", order=order).kept() == {"ann": Kept(best, 0)}
    assert make_board(high, low, name="down", order=order).kept() == {"ann": Kept(best, 0)}


@pytest.mark.parametrize(
    ("ties", "expected"),
    [
        (Ties.EARLIEST, ["b", "d", "a", "c"]),
        (Ties.LATEST, ["c", "a", "b", "d"]),
        (Ties.VALUE, ["c", "a", "b", "d"]),
        (Ties.PLAYER, ["a", "b", "c", "d"]),
    ],
)
@pytest.mark.parametrize("order", list(Order))
def test_ties_stand_as_the_rules_say_whatever_the_order(
    make_board: MakeBoard, order: Order, ties: Ties, expected: list[str]
) -> None:
    board = make_board(("d", 5, 0), ("a", 5, 7), ("b", 5, 0), ("c", 5, TIE_FIELD_MAX), order=order, ties=ties)

    assert board.order() == expected


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("ties", list(Ties))
def test_the_score_comes_before_the_tie_and_the_tie_before_the_id(
    make_board: MakeBoard, ties: Ties, order: Order
) -> None:
    better, worse = (2, 1) if order is Order.DESC else (1, 2)
    first, second = (0, TIE_FIELD_MAX) if ties is Ties.EARLIEST else (TIE_FIELD_MAX, 0)
    board = make_board(
        ("z", better, second), ("y", worse, first), ("b", worse, second), ("a", worse, second), order=order, ties=ties
    )

    assert board.order() == (["z", "a", "b", "y"] if ties is Ties.PLAYER else ["z", "y", "a", "b"])


def test_who_betters_a_score_gets_the_new_time(board: Board) -> None:
    board.apply(("ann", 5, 10), ("bob", 5, 11))
    board.apply(("ann", 6, 12), ("bob", 6, 13))
    assert board.order() == ["ann", "bob"]
    board.apply(("cid", 7, 14), ("ann", 7, 15))
    assert board.order() == ["cid", "ann", "bob"]


def test_a_better_tiebreak_moves_a_player_up(make_board: MakeBoard) -> None:
    board = make_board(("ann", 5, 1), ("bob", 5, 2), ties=Ties.VALUE, order=Order.ASC)
    assert board.order() == ["bob", "ann"]
    board.apply(("ann", 5, 3))
    assert board.order() == ["ann", "bob"]


# Ids

LONGEST = ["x" * 128, "é" * 64, "😀" * 32]
IDS = [
    "\0",
    "\0\0",
    " ",
    "!",
    "A",
    "AB",
    "Z",
    "a",
    "a\0",
    "a\0b",
    "aa",
    "ab",
    "abcdefg",
    "abcdefgh",
    "abcdefghi",
    "abcdefghijklmnop",
    "abcdefghijklmnopq",
    "b",
    "x" * 127,
    "x" * 128,
    "x" * 127 + "y",
    "\x7f",
    "\x80",
    "é",
    "é" * 64,
    "\u07ff",
    "\u0800",
    "日本",
    "日本語",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U00010000",
    "😀",
    "😀" * 32,
    "\U0010ffff",
]


@pytest.mark.parametrize("ties", list(Ties))
@pytest.mark.parametrize("order", list(Order))
def test_players_with_equal_scores_stand_by_the_bytes_of_their_ids(
    make_board: MakeBoard, order: Order, ties: Ties
) -> None:
    board = make_board(*((player, 5, 3) for player in sorted(IDS, key=hash)), order=order, ties=ties)

    assert board.order() == sorted(IDS, key=str.encode)
    assert [
        standing and standing.rank for standing in board.store.ranks(board.key, sorted(IDS, key=str.encode))
    ] == list(range(1, len(IDS) + 1))


def test_the_bytes_of_an_id_are_those_of_utf_8(board: Board) -> None:
    # In UTF-16, as some languages compare, the second of these would stand first.
    board.apply(("\U00010000", 1), ("\uffff", 1))

    assert board.order() == ["\uffff", "\U00010000"]


def test_an_id_stands_before_those_it_is_the_beginning_of(board: Board) -> None:
    board.apply(*(("x" * length, 1) for length in range(128, 0, -1)))

    assert board.order() == ["x" * length for length in range(1, 129)]


@pytest.mark.parametrize("player", LONGEST, ids=["ascii", "two bytes", "four bytes"])
def test_an_id_may_have_128_bytes(board: Board, player: str) -> None:
    board.apply((player, 5), (player[:-1], 6))

    assert board.store.score(board.key, player) == Kept(5, 0)
    assert board.order() == [player[:-1], player]


def test_ids_are_never_normalised(board: Board) -> None:
    composed, decomposed, upper = "\u00e9", "e\u0301", "\u00c9"
    board.apply((composed, 1), (decomposed, 2), (upper, 3))

    assert board.kept() == {upper: Kept(3, 0), decomposed: Kept(2, 0), composed: Kept(1, 0)}


def test_every_way_to_place_players_agrees(make_board: MakeBoard) -> None:
    for number, (keep, order, ties) in enumerate((k, o, t) for k in Keep for o in Order for t in Ties):
        rows = [(f"p{n % 83}", n * 7 % 11 - 5, n * 5 % 3) for n in range(200)]
        board = make_board(*rows, name=f"board{number}", keep=keep, order=order, ties=ties)
        store, key = board.store, board.key
        players = board.order()

        assert len(players) == store.total(key) == 83
        page = store.range(key, 1, 83).entries
        assert [entry.player for entry in page] == players
        assert [entry.player for entry in store.following(key, None, 100).entries] == players
        assert [friend.player for friend in store.friends(key, sorted(players))] == players
        for above, below in pairwise(page):
            assert (above.score >= below.score) if order is Order.DESC else (above.score <= below.score)
        for place, player in enumerate(players, start=1):
            for ranking in Ranking:
                standing = store.rank(key, player, ranking)
                assert standing is not None
                assert standing.rank == store.range(key, place, place, ranking).entries[0].rank

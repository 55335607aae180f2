"""Counts, quantiles, histograms and digests are exact, over the whole range of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rankd.domain.digest import DIGEST_MODULUS, digest, entry_digest
from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE, Keep, Order, Ties
from rankd.projection.port import HISTOGRAM_BUCKETS_MAX, RankedBucket, walk

if TYPE_CHECKING:
    from tests.contract.conftest import Board, MakeBoard

ORDERS = pytest.mark.parametrize("order", list(Order))
LOW, HIGH = SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE
COUNTED = 10  # ranges of a histogram that are counted again one by one


def scored(make_board: MakeBoard, scores: list[int], order: Order = Order.DESC) -> Board:
    return make_board(*((f"p{n}", score) for n, score in enumerate(scores)), order=order)


# count


@ORDERS
def test_both_ends_of_a_score_range_count(make_board: MakeBoard, order: Order) -> None:
    scores = [1, 3, 3, 5, 5, 5, 9]
    board = scored(make_board, scores, order)

    for low in range(11):
        for high in range(11):
            assert board.store.count(board.key, low, high) == sum(low <= score <= high for score in scores)


@ORDERS
def test_counting_reaches_both_ends_of_64_bits(make_board: MakeBoard, order: Order) -> None:
    board = scored(make_board, [LOW, LOW, LOW + 1, 0, HIGH - 1, HIGH], order)

    ranges = [(LOW, LOW), (HIGH, HIGH), (LOW, HIGH), (LOW + 1, HIGH - 1), (LOW, -1), (1, HIGH), (HIGH, LOW), (0, 0)]
    assert [board.store.count(board.key, low, high) for low, high in ranges] == [2, 1, 6, 3, 3, 2, 0, 1]


# quantiles


@ORDERS
def test_quantiles_are_scores_players_have_smallest_first_whatever_the_order(
    make_board: MakeBoard, order: Order
) -> None:
    board = scored(make_board, [10, 20, 30, 40], order)

    asked = [0, 1, 249_999, 250_000, 250_001, 500_000, 500_001, 750_000, 750_001, 999_999, 1_000_000]
    assert board.store.quantiles(board.key, asked) == [10, 10, 10, 10, 20, 20, 30, 30, 40, 40, 40]


@ORDERS
def test_quantiles_count_players_and_not_scores(make_board: MakeBoard, order: Order) -> None:
    board = scored(make_board, [7] * 9 + [1_000], order)

    assert board.store.quantiles(board.key, [900_000, 900_001, 0]) == [7, 1_000, 7]


@ORDERS
@pytest.mark.parametrize("players", [1, 2, 3, 7, 64, 999, 3_000])
def test_quantiles_keep_to_their_definition(make_board: MakeBoard, players: int, order: Order) -> None:
    scores = [n * 7919 % 101 - 50 for n in range(players)]
    board = scored(make_board, scores, order)

    asked = [*range(0, 1_000_001, 31_250), 333_333, 333_334, 666_666, 666_667, 999_999]
    expected = []
    for q in asked:
        wanted = max(1, -(-q * players // 1_000_000))
        expected.append(min(s for s in set(scores) if sum(score <= s for score in scores) >= wanted))
    assert board.store.quantiles(board.key, asked) == expected


@ORDERS
def test_quantiles_reach_both_ends_of_64_bits(make_board: MakeBoard, order: Order) -> None:
    board = scored(make_board, [LOW, HIGH, 0], order)

    assert board.store.quantiles(board.key, [0, 333_333, 333_334, 666_667, 1_000_000]) == [LOW, LOW, 0, HIGH, HIGH]


def test_no_quantiles_asked_none_answered(make_board: MakeBoard) -> None:
    board = scored(make_board, [1])

    assert board.store.quantiles(board.key, []) == []
    assert board.store.quantiles(board.key, (500_000,)) == [1]


# histogram


@ORDERS
def test_a_histogram_cuts_the_scores_into_equal_ranges(make_board: MakeBoard, order: Order) -> None:
    board = scored(make_board, [0, 1, 2, 3, 9, 9], order)

    assert board.store.histogram(board.key, 2) == [RankedBucket(0, 4, 4), RankedBucket(5, 9, 2)]
    assert board.store.histogram(board.key, 3) == [RankedBucket(0, 3, 4), RankedBucket(4, 7, 0), RankedBucket(8, 9, 2)]


def test_a_histogram_leaves_out_ranges_above_the_highest_score(make_board: MakeBoard) -> None:
    board = scored(make_board, [0, 10])

    # ceil(11 / 8) is 2, so six ranges reach the end and two would start above it.
    assert board.store.histogram(board.key, 8) == [
        RankedBucket(0, 1, 1),
        RankedBucket(2, 3, 0),
        RankedBucket(4, 5, 0),
        RankedBucket(6, 7, 0),
        RankedBucket(8, 9, 0),
        RankedBucket(10, 10, 1),
    ]


@ORDERS
def test_where_all_have_the_same_score_there_is_one_range(make_board: MakeBoard, order: Order) -> None:
    for name, score in (("low", LOW), ("zero", 0), ("high", HIGH)):
        board = make_board(("ann", score), ("bob", score), name=name, order=order)
        for buckets in (1, 2, HISTOGRAM_BUCKETS_MAX):
            assert board.store.histogram(board.key, buckets) == [RankedBucket(score, score, 2)]


@ORDERS
def test_a_histogram_spans_all_64_bits(make_board: MakeBoard, order: Order) -> None:
    board = scored(make_board, [LOW, LOW + 1, -1, 0, HIGH], order)

    assert board.store.histogram(board.key, 1) == [RankedBucket(LOW, HIGH, 5)]
    assert board.store.histogram(board.key, 2) == [RankedBucket(LOW, -1, 3), RankedBucket(0, HIGH, 2)]
    width = -(-(2**64) // 3)
    assert board.store.histogram(board.key, 3) == [
        RankedBucket(LOW, LOW + width - 1, 2),
        RankedBucket(LOW + width, LOW + 2 * width - 1, 2),
        RankedBucket(LOW + 2 * width, HIGH, 1),
    ]


@ORDERS
@pytest.mark.parametrize("scores", [[LOW, HIGH], [LOW + 1, HIGH], [LOW, HIGH - 1], [-3, HIGH], [LOW, 999], [0, 999]])
@pytest.mark.parametrize("buckets", [1, 2, 3, 7, 999, 1_000])
def test_the_ranges_of_a_histogram_join_and_count_everybody(
    make_board: MakeBoard, scores: list[int], buckets: int, order: Order
) -> None:
    board = scored(make_board, [*scores, *range(1, 50)], order)
    answer = board.store.histogram(board.key, buckets)
    lowest, highest = min(scores), max(scores)
    width = -(-(highest - lowest + 1) // buckets)

    assert [bucket.low for bucket in answer] == list(range(lowest, highest + 1, width))
    assert [bucket.high for bucket in answer] == [bucket.low - 1 for bucket in answer[1:]] + [highest]
    assert sum(bucket.count for bucket in answer) == 51
    for bucket in [*answer[:: max(1, len(answer) // COUNTED)], answer[-1]]:
        assert bucket.count == board.store.count(board.key, bucket.low, bucket.high)


# digest


@pytest.mark.parametrize("ties", list(Ties))
@pytest.mark.parametrize("keep", list(Keep))
@ORDERS
def test_the_digest_is_that_of_the_walk(make_board: MakeBoard, keep: Keep, order: Order, ties: Ties) -> None:
    board = make_board(
        *((f"p{n % 30}é😀"[: 1 + n % 7], n * 31 % 17 - 8, n % 5) for n in range(80)), keep=keep, order=order, ties=ties
    )
    board.apply(("low", LOW, 2**48 - 1), ("high", HIGH), ("x" * 128, -1, 1))
    board.remove("p1", "nobody")
    board.put(("p2", 2**62, 7))

    assert board.store.digest(board.key) == digest((e.player, e.score, e.tie) for e in walk(board.store, board.key))


def test_the_digest_of_one_entry_is_known(make_board: MakeBoard) -> None:
    board = make_board(("ann", 976, 5))

    assert board.store.digest(board.key) == entry_digest("ann", 976, 5)


def test_the_digest_does_not_depend_on_how_the_board_came_about(make_board: MakeBoard) -> None:
    rows = [(f"p{n}", n * 7 % 100, n % 3) for n in range(600)]
    straight, winding = make_board(*rows, name="straight"), make_board(name="winding")
    winding.apply(*((f"gone{n}", n) for n in range(100)))
    for row in reversed(rows):
        winding.put((row[0], 0), row)
    winding.remove(*(f"gone{n}" for n in range(100)))

    assert straight.store.digest(straight.key) == winding.store.digest(winding.key)


def test_digests_of_parts_add_up_to_that_of_the_whole(make_board: MakeBoard) -> None:
    rows = [(f"p{n}", n, n) for n in range(20)]
    even, odd, whole = (
        make_board(*part, name=name) for name, part in (("even", rows[::2]), ("odd", rows[1::2]), ("whole", rows))
    )
    store = whole.store

    assert (store.digest(even.key) + store.digest(odd.key)) % DIGEST_MODULUS == store.digest(whole.key)


def test_the_digest_of_a_board_that_was_emptied_is_that_of_an_empty_one(make_board: MakeBoard) -> None:
    board = make_board(("ann", 1), ("bob", 2))
    board.remove("ann", "bob")
    assert board.store.digest(board.key) == 0
    board.apply(("ann", 1))
    board.clear()
    assert board.store.digest(board.key) == 0
    board.apply(("ann", 1))
    board.store.drop(board.key)
    assert board.store.digest(board.key) == 0


def test_the_digest_sees_score_tie_and_player(make_board: MakeBoard) -> None:
    boards = [
        make_board(row, name=f"board{n}") for n, row in enumerate([("a", 1, 1), ("a", 2, 1), ("a", 1, 2), ("b", 1, 1)])
    ]

    assert len({board.store.digest(board.key) for board in boards}) == 4

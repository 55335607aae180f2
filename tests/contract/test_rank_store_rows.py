"""What one row does to its player: the keep rules, PUT, REMOVE, CLEAR and the bounds."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest
from tests.batches import batch_of_rows

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Kept, Order, Ranking, Rules, Ties
from rankd.projection.port import Op, RankStore, RowChange, RowFlag, UpdateBatch

if TYPE_CHECKING:
    from tests.contract.conftest import Board, MakeBoard

PRESENT_SET = RowFlag.WAS_PRESENT | RowFlag.IS_PRESENT | RowFlag.SET
NOTHING = RowFlag(0)


def change(
    old: int | None, new: int | None, *, changed: bool = True, before: int | None = None, after: int | None = None
) -> RowChange:
    return RowChange(changed, old, new, before, after)


# One row


def test_a_first_score_is_set_and_there_was_none_before(board: Board) -> None:
    assert board.apply(("ann", 10)) == [change(None, 10)]


def test_a_better_score_is_set(board: Board) -> None:
    board.apply(("ann", 10))

    assert board.apply(("ann", 11)) == [change(10, 11)]


def test_a_worse_score_changes_nothing_and_the_kept_one_is_answered(board: Board) -> None:
    board.apply(("ann", 10))

    assert board.apply(("ann", 9)) == [change(10, 10, changed=False)]


def test_the_flags_say_who_was_there_who_is_there_and_what_was_set(board: Board) -> None:
    answer = board.batch(
        (Op.APPLY, "ann", 10),
        (Op.APPLY, "ann", 9),
        (Op.APPLY, "ann", 12),
        (Op.REMOVE, "ann", 0),
        (Op.REMOVE, "ann", 0),
        (Op.CLEAR,),
        (Op.PUT, "ann", 1),
        (Op.PUT, "ann", 1),
        (Op.CLEAR,),
    )

    assert [RowFlag(flags) for flags in answer.flags] == [
        RowFlag.IS_PRESENT | RowFlag.SET,
        RowFlag.WAS_PRESENT | RowFlag.IS_PRESENT,
        PRESENT_SET,
        RowFlag.WAS_PRESENT | RowFlag.SET,
        NOTHING,
        NOTHING,
        RowFlag.IS_PRESENT | RowFlag.SET,
        RowFlag.WAS_PRESENT | RowFlag.IS_PRESENT,
        RowFlag.SET,
    ]


def test_the_columns_of_an_answer_have_their_item_types(board: Board) -> None:
    answer = board.batch((Op.APPLY, "ann", 10), ranks=Ranking.ORDINAL)

    assert (answer.flags.format, answer.flags.itemsize) == ("B", 1)
    for column in (answer.old_score, answer.new_score, answer.rank_before, answer.rank_after):
        assert column is not None
        assert (column.format in "ql", column.itemsize, len(column)) == (True, 8, 1)


def test_an_answer_outlives_later_batches(board: Board) -> None:
    first = board.batch((Op.APPLY, "ann", 10), (Op.APPLY, "bob", 20), ranks=Ranking.ORDINAL)
    for score in range(100):
        board.apply(("ann", score), ("cid", score), ranks=Ranking.ORDINAL)

    assert [first.row(0), first.row(1)] == [change(None, 10, after=2), change(None, 20, after=1)]


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (Keep.BEST, Kept(30, 2)),
        (Keep.LATEST, Kept(20, 3)),
        (Keep.SUM, Kept(60, 3)),
        (Keep.FIRST, Kept(10, 1)),
    ],
)
def test_the_keep_rule_decides_what_stays_of_three_scores(make_board: MakeBoard, keep: Keep, kept: Kept) -> None:
    board = make_board(("ann", 10, 1), ("ann", 30, 2), ("ann", 20, 3), keep=keep)

    assert board.kept() == {"ann": kept}


def test_the_best_score_is_the_smallest_where_less_is_better(make_board: MakeBoard) -> None:
    board = make_board(("ann", 10, 1), ("ann", 30, 2), ("ann", 5, 3), ("ann", 6, 4), order=Order.ASC)

    assert board.kept() == {"ann": Kept(5, 3)}


@pytest.mark.parametrize("ties", [Ties.EARLIEST, Ties.LATEST])
@pytest.mark.parametrize("keep", [Keep.BEST, Keep.LATEST, Keep.FIRST])
def test_an_equal_score_does_not_move_the_time(make_board: MakeBoard, keep: Keep, ties: Ties) -> None:
    board = make_board(("ann", 10, 5), keep=keep, ties=ties)

    assert board.apply(("ann", 10, 9)) == [change(10, 10, changed=False)]
    assert board.kept() == {"ann": Kept(10, 5)}


def test_adding_nothing_does_not_move_the_time(make_board: MakeBoard) -> None:
    board = make_board(("ann", 10, 5), keep=Keep.SUM)

    assert board.apply(("ann", 0, 9)) == [change(10, 10, changed=False)]
    assert board.kept() == {"ann": Kept(10, 5)}


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (Keep.BEST, [Kept(10, 5), Kept(10, 7), Kept(10, 7)]),
        (Keep.LATEST, [Kept(10, 5), Kept(10, 7), Kept(10, 3)]),
        (Keep.FIRST, [Kept(10, 5), Kept(10, 5), Kept(10, 5)]),
    ],
)
def test_a_sent_tiebreak_moves_by_the_keep_rule(make_board: MakeBoard, keep: Keep, kept: list[Kept]) -> None:
    board = make_board(keep=keep, ties=Ties.VALUE)
    for tie, expected in zip((5, 7, 3), kept, strict=True):
        board.apply(("ann", 10, tie))
        assert board.kept() == {"ann": expected}


def test_a_sum_of_nothing_moves_a_sent_tiebreak(make_board: MakeBoard) -> None:
    board = make_board(("ann", 10, 5), keep=Keep.SUM, ties=Ties.VALUE)

    assert board.apply(("ann", 0, 3)) == [change(10, 10)]
    assert board.kept() == {"ann": Kept(10, 3)}


@pytest.mark.parametrize("keep", list(Keep))
def test_no_tie_field_is_kept_where_ties_are_by_player(make_board: MakeBoard, keep: Keep) -> None:
    board = make_board(("ann", 10, 5), ("ann", 20, 6), keep=keep, ties=Ties.PLAYER)
    board.put(("bob", 10, 5))

    assert [kept.tie for kept in board.kept().values()] == [0, 0]


# PUT, REMOVE and CLEAR


@pytest.mark.parametrize("keep", list(Keep))
def test_put_sets_the_score_whatever_the_rule_and_the_bounds(make_board: MakeBoard, keep: Keep) -> None:
    board = make_board(("ann", 10, 5), keep=keep, score_min=0, score_max=100)

    assert board.put(("ann", -7, 3), ("bob", 1_000, 1)) == [change(10, -7), change(None, 1_000)]
    assert board.kept() == {"bob": Kept(1_000, 1), "ann": Kept(-7, 3)}


def test_put_may_move_the_time_alone(board: Board) -> None:
    board.apply(("ann", 10, 5), ("bob", 10, 4))

    assert board.put(("ann", 10, 3)) == [change(10, 10)]
    assert board.order() == ["ann", "bob"]


def test_put_of_what_is_kept_changes_nothing(board: Board) -> None:
    board.apply(("ann", 10, 5))

    assert board.put(("ann", 10, 5)) == [change(10, 10, changed=False)]


def test_a_removed_player_is_gone(board: Board) -> None:
    board.apply(("ann", 10), ("bob", 20))

    assert board.remove("bob") == [change(20, None)]
    assert board.order() == ["ann"]
    assert board.store.score(board.key, "bob") is None


def test_removing_somebody_absent_changes_nothing(board: Board) -> None:
    board.apply(("ann", 10))

    assert board.remove("bob") == [change(None, None, changed=False)]
    assert board.order() == ["ann"]


@pytest.mark.parametrize("keep", list(Keep))
def test_after_a_removal_a_player_starts_anew(make_board: MakeBoard, keep: Keep) -> None:
    board = make_board(("ann", 100, 1), keep=keep)
    board.remove("ann")

    assert board.apply(("ann", 7, 2)) == [change(None, 7)]
    assert board.kept() == {"ann": Kept(7, 2)}


def test_removal_and_a_new_score_in_one_batch_start_anew(make_board: MakeBoard) -> None:
    board = make_board(("ann", 100, 1), keep=Keep.FIRST)

    assert board.mixed((Op.REMOVE, "ann", 0), (Op.APPLY, "ann", 7, 2), (Op.APPLY, "ann", 9, 3)) == [
        change(100, None),
        change(None, 7),
        change(7, 7, changed=False),
    ]


def test_clear_takes_everybody_out(board: Board) -> None:
    board.apply(("ann", 10), ("bob", 20))

    assert board.clear() == [change(None, None)]
    assert board.store.total(board.key) == 0
    assert board.order() == []


def test_clearing_an_empty_instance_changes_nothing(board: Board) -> None:
    assert board.clear() == [change(None, None, changed=False)]


def test_clear_stands_between_the_rows_before_and_after_it(make_board: MakeBoard) -> None:
    board = make_board(("ann", 1), ("old", 50), keep=Keep.SUM)

    assert board.mixed(
        (Op.APPLY, "ann", 10),
        (Op.APPLY, "bob", 20),
        (Op.CLEAR,),
        (Op.APPLY, "ann", 5),
        (Op.APPLY, "ann", 6),
        (Op.REMOVE, "bob", 0),
    ) == [
        change(1, 11),
        change(None, 20),
        change(None, None),
        change(None, 5),
        change(5, 11),
        change(None, None, changed=False),
    ]
    assert board.kept() == {"ann": Kept(11, 0)}


def test_clear_comes_again_and_again_in_one_batch(board: Board) -> None:
    assert [
        row.changed for row in board.mixed((Op.CLEAR,), (Op.APPLY, "ann", 1), (Op.CLEAR,), (Op.CLEAR,), (Op.CLEAR,))
    ] == [False, True, True, False, False]
    assert list(board.store.instances()) == []


def test_clear_leaves_other_instances_alone(make_board: MakeBoard) -> None:
    arcade, puzzle = make_board(("ann", 1), name="arcade"), make_board(("ann", 2), name="puzzle")
    arcade.clear()

    assert (arcade.order(), puzzle.order()) == ([], ["ann"])


# Bounds


def test_a_sum_stops_at_the_bounds(make_board: MakeBoard) -> None:
    board = make_board(keep=Keep.SUM, score_min=-10, score_max=100)

    assert [row.new_score for row in board.apply(("ann", 90), ("ann", 20), ("ann", -115), ("bob", 500))] == [
        90,
        100,
        -10,
        100,
    ]


def test_a_sum_at_its_bound_is_not_set_again(make_board: MakeBoard) -> None:
    board = make_board(("ann", 100, 1), keep=Keep.SUM, score_max=100)

    assert board.apply(("ann", 5, 2)) == [change(100, 100, changed=False)]
    assert board.kept() == {"ann": Kept(100, 1)}


@pytest.mark.parametrize("order", list(Order))
def test_a_sum_stops_at_the_ends_of_64_bits(make_board: MakeBoard, order: Order) -> None:
    low, high = -(2**63), 2**63 - 1
    board = make_board(keep=Keep.SUM, order=order, score_min=low, score_max=high)

    assert [
        row.new_score
        for row in board.apply(
            ("ann", high),
            ("ann", 1),
            ("ann", high),
            ("ann", low),
            ("ann", low),
            ("ann", low),
            ("ann", -1),
            ("ann", high),
        )
    ] == [high, high, high, -1, low, low, low, -1]


@pytest.mark.parametrize("keep", [Keep.BEST, Keep.LATEST, Keep.FIRST])
def test_a_single_score_is_taken_as_it_is(make_board: MakeBoard, keep: Keep) -> None:
    board = make_board(("ann", 5_000), ("bob", -5_000), keep=keep, score_min=0, score_max=10)

    assert board.kept() == {"ann": Kept(5_000, 0), "bob": Kept(-5_000, 0)}


def test_bounds_are_those_each_row_came_with(store: RankStore) -> None:
    key = InstanceKey("arcade")
    narrow, wide = Rules(keep=Keep.SUM, score_max=10), Rules(keep=Keep.SUM, score_max=100)
    store.apply(batch_of_rows((key, narrow), [("ann", 50)]))
    answer = store.apply(
        UpdateBatch(
            instances=[(key, wide), (key, narrow)],
            players=["ann", "bob"],
            instance=array("I", [0, 1, 0, 0]),
            player=array("I", [0, 1, 1, 0]),
            score=array("q", [50, 50, 50, 50]),
        )
    )

    assert [answer.row(row).new_score for row in range(4)] == [60, 10, 60, 100]

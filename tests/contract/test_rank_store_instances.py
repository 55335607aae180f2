"""Instances come with their first player and go with their last."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest
from tests.batches import batch_of_rows

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Kept, Order, Rules
from rankd.projection.port import Op, RankStore, UpdateBatch

if TYPE_CHECKING:
    from tests.contract.conftest import Board, MakeBoard


def test_an_instance_is_in_the_store_while_somebody_stands_in_it(board: Board) -> None:
    assert list(board.store.instances()) == []
    board.apply(("ann", 1), ("bob", 2))
    assert list(board.store.instances()) == [board.key]
    board.remove("ann")
    assert list(board.store.instances()) == [board.key]
    board.remove("bob")
    assert list(board.store.instances()) == []


@pytest.mark.parametrize("op", [Op.REMOVE, Op.CLEAR])
def test_taking_out_of_an_instance_that_is_not_there_does_not_make_it(board: Board, op: Op) -> None:
    board.apply(("ann", 1), op=op)

    assert list(board.store.instances()) == []
    assert board.store.drop(board.key) is False


def test_an_instance_that_became_empty_may_come_back_by_other_rules(make_board: MakeBoard) -> None:
    make_board(("ann", 1), ("bob", 2)).remove("ann", "bob")

    assert make_board(("ann", 1), ("bob", 2), order=Order.ASC, keep=Keep.SUM).order() == ["ann", "bob"]


def test_dropping_takes_the_whole_instance_out(make_board: MakeBoard) -> None:
    arcade, puzzle = make_board(("ann", 1), name="arcade"), make_board(("ann", 2), name="puzzle")

    assert arcade.store.drop(arcade.key) is True
    assert arcade.store.drop(arcade.key) is False
    assert arcade.store.total(arcade.key) == 0
    assert arcade.store.score(arcade.key, "ann") is None
    assert list(arcade.store.instances()) == [puzzle.key]
    assert puzzle.order() == ["ann"]


def test_a_dropped_instance_starts_anew_by_any_rules(make_board: MakeBoard) -> None:
    board = make_board(("ann", 100), keep=Keep.SUM)
    board.store.drop(board.key)

    assert make_board(("ann", 7), keep=Keep.BEST, order=Order.ASC).kept() == {"ann": Kept(7, 0)}


def test_going_through_the_instances_may_be_mixed_with_writing(make_board: MakeBoard) -> None:
    boards = [make_board(("ann", n), name=f"board{n}") for n in range(50)]
    store = boards[0].store

    for key in store.instances():
        store.drop(key)

    assert list(store.instances()) == []


def test_an_instance_that_stays_is_seen_once_while_others_come_and_go(store: RankStore) -> None:
    boards = [(InstanceKey(f"board{n}"), Rules()) for n in range(2_500)]
    everywhere = array("I", range(2_500))
    store.apply(
        UpdateBatch(
            boards, ["ann"], score=array("q", everywhere), instance=everywhere, player=array("I", bytes(10_000))
        )
    )

    seen = []
    for number, key in enumerate(store.instances()):
        seen.append(key)
        if number < 2_000:
            store.apply(batch_of_rows((InstanceKey(f"new{number}"), Rules()), [("ann", 1)]))
        if number % 3 == 0:
            store.drop(key)

    old = [key for key in seen if key.board.startswith("board")]
    assert sorted(key.text for key in old) == sorted(key.text for key, _ in boards)
    assert len(seen) == len(set(seen))


def test_thousands_of_instances_keep_apart(store: RankStore) -> None:
    boards = [(InstanceKey("arcade", f"daily:{n}"), Rules()) for n in range(3_000)]
    store.apply(
        UpdateBatch(
            instances=boards,
            players=["ann", "bob"],
            instance=array("I", [n for n in range(3_000) for _ in range(2)]),
            player=array("I", [0, 1] * 3_000),
            score=array("q", range(6_000)),
        )
    )

    assert sorted(key.text for key in store.instances()) == sorted(key.text for key, _ in boards)
    for n in (0, 1, 1_499, 2_999):
        assert store.scores(boards[n][0], ["ann", "bob"]) == [Kept(2 * n, 0), Kept(2 * n + 1, 0)]

"""Captured places: those of an instant, until the next capture or until the player leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Order, Ties
from rankd.projection.port import Op, RankStore

if TYPE_CHECKING:
    from tests.contract.conftest import Board, MakeBoard


def captured(board: Board, *players: str) -> list[int | None]:
    return [board.store.captured(board.key, player) for player in players]


def test_places_are_those_of_the_instant(make_board: MakeBoard) -> None:
    board = make_board(("ann", 3), ("bob", 2), ("eve", 1))
    assert captured(board, "ann", "bob", "eve") == [None, None, None]
    board.store.capture(board.key)
    board.apply(("eve", 9), ("tom", 5))

    assert captured(board, "ann", "bob", "eve", "tom") == [1, 2, 3, None]
    assert board.order() == ["eve", "tom", "ann", "bob"]


def test_places_are_ordinal_and_follow_the_standing_order(make_board: MakeBoard) -> None:
    board = make_board(("b", 7, 1), ("a", 7, 1), ("c", 7, 4), ("d", 8), order=Order.ASC, ties=Ties.VALUE)
    board.store.capture(board.key)

    assert captured(board, "c", "a", "b", "d") == [1, 2, 3, 4]


def test_a_capture_takes_the_place_of_the_one_before(make_board: MakeBoard) -> None:
    board = make_board(("ann", 3), ("bob", 2), keep=Keep.LATEST)
    board.store.capture(board.key)
    board.apply(("bob", 9), ("tom", 1))
    board.store.capture(board.key)

    assert captured(board, "bob", "ann", "tom") == [1, 2, 3]


def test_what_sets_a_score_leaves_the_place(make_board: MakeBoard) -> None:
    board = make_board(("ann", 3), ("bob", 2), keep=Keep.SUM)
    board.store.capture(board.key)
    board.apply(("bob", 5), ("ann", -9))
    board.put(("ann", 100))

    assert captured(board, "ann", "bob") == [1, 2]


def test_who_is_taken_out_has_no_place_even_when_they_come_back(make_board: MakeBoard) -> None:
    board = make_board(("ann", 3), ("bob", 2), ("eve", 1))
    board.store.capture(board.key)
    board.remove("bob")
    assert captured(board, "ann", "bob", "eve") == [1, None, 3]
    board.apply(("bob", 2))

    assert captured(board, "ann", "bob", "eve") == [1, None, 3]


def test_who_is_taken_out_and_put_back_in_one_batch_has_no_place(make_board: MakeBoard) -> None:
    board = make_board(("ann", 3), ("bob", 2))
    board.store.capture(board.key)
    board.mixed((Op.REMOVE, "bob", 0), (Op.PUT, "bob", 2), (Op.PUT, "ann", 9))

    assert captured(board, "ann", "bob") == [1, None]


def test_clearing_ends_all_places(make_board: MakeBoard) -> None:
    board = make_board(("ann", 3), ("bob", 2))
    board.store.capture(board.key)
    board.mixed((Op.CLEAR,), (Op.PUT, "ann", 3), (Op.PUT, "bob", 2))

    assert captured(board, "ann", "bob") == [None, None]


@pytest.mark.parametrize("refill", [[("ann", 3), ("bob", 2)], [("ann", 1)]])
def test_dropping_ends_all_places(make_board: MakeBoard, refill: list[tuple[str, int]]) -> None:
    board = make_board(("ann", 3), ("bob", 2))
    board.store.capture(board.key)
    board.store.drop(board.key)
    board.apply(*refill)

    assert captured(board, "ann", "bob") == [None, None]


def test_an_instance_that_became_empty_comes_back_without_places(make_board: MakeBoard) -> None:
    board = make_board(("ann", 3), ("bob", 2))
    board.store.capture(board.key)
    board.remove("ann", "bob")
    board.apply(("ann", 3), ("bob", 2))

    assert captured(board, "ann", "bob") == [None, None]


def test_a_forgotten_capture_answers_nothing(make_board: MakeBoard) -> None:
    board = make_board(("ann", 3))
    board.store.forget_capture(board.key)
    board.store.capture(board.key)
    board.store.forget_capture(board.key)
    board.store.forget_capture(board.key)

    assert captured(board, "ann") == [None]


def test_an_instance_nobody_stands_in_has_no_places(board: Board) -> None:
    board.store.capture(board.key)
    board.apply(("ann", 1))

    assert captured(board, "ann") == [None]
    assert list(board.store.instances()) == [board.key]


def test_instances_are_captured_apart(make_board: MakeBoard) -> None:
    arcade = make_board(("ann", 3), ("bob", 2), name="arcade")
    puzzle = make_board(("ann", 1), ("bob", 2), name="puzzle")
    arcade.store.capture(arcade.key)
    assert captured(puzzle, "ann", "bob") == [None, None]
    puzzle.store.capture(puzzle.key)
    arcade.store.forget_capture(arcade.key)

    assert captured(arcade, "ann", "bob") == [None, None]
    assert captured(puzzle, "ann", "bob") == [2, 1]


def test_capturing_moves_no_position_and_changes_no_rank(make_board: MakeBoard) -> None:
    board = make_board(("ann", 3), ("bob", 2))
    position, digest = board.store.position(0), board.store.digest(board.key)
    board.store.capture(board.key)

    assert (board.store.position(0), board.store.digest(board.key)) == (position, digest)
    assert board.order() == ["ann", "bob"]


@pytest.mark.parametrize("size", [127, 128, 129, 600])
def test_boards_of_every_form_keep_their_places(make_board: MakeBoard, size: int) -> None:
    board = make_board(*((f"p{n}", size - n) for n in range(size)))
    board.store.capture(board.key)
    board.put(*((f"p{n}", n) for n in range(size)))
    board.remove(*(f"p{n}" for n in range(0, size, 2)))

    players = [f"p{n}" for n in range(size)]
    assert captured(board, *players) == [None if n % 2 == 0 else n + 1 for n in range(size)]


@pytest.mark.parametrize("player", ["nobody", "", "x" * 129, "\ud800"])
def test_an_id_nobody_has_is_nowhere(make_board: MakeBoard, player: str) -> None:
    board = make_board(("ann", 1))
    board.store.capture(board.key)

    assert captured(board, player) == [None]


def test_a_player_that_is_not_text_is_a_type_error(store: RankStore) -> None:
    with pytest.raises(TypeError):
        store.captured(InstanceKey("arcade"), 5)  # type: ignore[arg-type]

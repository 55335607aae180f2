"""What the rows of a batch do together, and the ranks around it."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest
from tests.batches import batch_of_rows

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Kept, Order, Ranking, Rules, Ties
from rankd.projection.port import RANK_ABSENT, Op, RankStore, RowChange, UpdateBatch, walk

if TYPE_CHECKING:
    from tests.contract.conftest import Board, MakeBoard


def change(
    old: int | None, new: int | None, *, changed: bool = True, before: int | None = None, after: int | None = None
) -> RowChange:
    return RowChange(changed, old, new, before, after)


# Many rows


def test_a_player_may_come_several_times_in_one_batch(make_board: MakeBoard) -> None:
    board = make_board(keep=Keep.SUM)

    assert board.apply(("ann", 1), ("ann", 2), ("bob", 5), ("ann", 3)) == [
        change(None, 1),
        change(1, 3),
        change(None, 5),
        change(3, 6),
    ]


def test_rows_are_applied_one_after_the_other(make_board: MakeBoard) -> None:
    board = make_board(keep=Keep.LATEST)

    assert [row.new_score for row in board.apply(*(("ann", score) for score in (5, 1, 9, 3, 3)))] == [5, 1, 9, 3, 3]
    assert board.kept() == {"ann": Kept(3, 0)}


def test_all_ops_mix_in_one_batch(board: Board) -> None:
    assert board.mixed(
        (Op.APPLY, "ann", 10, 1),
        (Op.PUT, "ann", 3, 2),
        (Op.APPLY, "ann", 4, 3),
        (Op.REMOVE, "ann", 0),
        (Op.PUT, "ann", 1, 4),
    ) == [change(None, 10), change(10, 3), change(3, 4), change(4, None), change(None, 1)]


def test_one_batch_touches_many_instances_each_by_its_own_rules(store: RankStore) -> None:
    boards = [
        (InstanceKey("arcade", window, scope), Rules(keep=keep, order=order, ties=ties))
        for window in ("all_time", "daily:2026-05-04")
        for scope in ("global", "country:BR")
        for keep in Keep
        for order in Order
        for ties in Ties
    ]
    boards = [(InstanceKey(f"board{n}", key.window, key.scope), rules) for n, (key, rules) in enumerate(boards)]
    sent = [("ann", 5, 1), ("bob", 7, 2), ("ann", 3, 3), ("cid", 7, 1), ("bob", 7, 9)]
    players = ["ann", "bob", "cid"]
    rows = [(at, *row) for row in sent for at in range(len(boards))]

    store.apply(
        UpdateBatch(
            instances=boards,
            players=players,
            instance=array("I", [at for at, _, _, _ in rows]),
            player=array("I", [players.index(player) for _, player, _, _ in rows]),
            score=array("q", [score for _, _, score, _ in rows]),
            tie=array("q", [tie for _, _, _, tie in rows]),
        )
    )

    # Each instance must look as if it had been written to alone.
    for key, rules in boards:
        alone = InstanceKey("alone")
        store.apply(batch_of_rows((alone, rules), sent))
        assert list(walk(store, key)) == list(walk(store, alone)), rules
        store.drop(alone)
    assert set(store.instances()) == {key for key, _ in boards}


def test_an_instance_and_a_player_may_be_listed_twice(store: RankStore) -> None:
    key, rules = InstanceKey("arcade"), Rules(keep=Keep.SUM)
    answer = store.apply(
        UpdateBatch(
            instances=[(key, rules), (InstanceKey("arcade"), rules)],
            players=["ann", "bob", "ann"],
            instance=array("I", [0, 1, 0, 1]),
            player=array("I", [0, 2, 1, 0]),
            score=array("q", [1, 10, 5, 100]),
        )
    )

    assert [answer.row(row).new_score for row in range(4)] == [1, 11, 5, 111]
    assert list(store.instances()) == [key]


def test_columns_left_out_mean_the_first_instance_each_players_row_no_tie_and_apply(store: RankStore) -> None:
    key = InstanceKey("arcade")
    store.apply(
        UpdateBatch(
            instances=[(key, Rules()), (InstanceKey("other"), Rules())],
            players=["ann", "bob"],
            score=array("q", [1, 2]),
        )
    )

    assert store.scores(key, ["ann", "bob"]) == [Kept(1, 0), Kept(2, 0)]
    assert list(store.instances()) == [key]


def test_instances_and_players_no_row_uses_leave_no_trace(store: RankStore) -> None:
    store.apply(
        UpdateBatch(
            instances=[(InstanceKey("arcade"), Rules()), (InstanceKey("unused"), Rules())],
            players=["ann", "unused"],
            score=array("q", [1]),
        )
    )

    assert list(store.instances()) == [InstanceKey("arcade")]
    assert store.score(InstanceKey("arcade"), "unused") is None


def test_clear_needs_no_player_and_looks_at_no_score(store: RankStore) -> None:
    key = InstanceKey("arcade")
    store.apply(batch_of_rows((key, Rules()), [("ann", 1)]))
    store.apply(
        UpdateBatch(
            instances=[(key, Rules())],
            players=[],
            score=array("q", [-1]),
            tie=array("q", [-1]),
            player=array("I", [2**32 - 1]),
            op=bytes([Op.CLEAR]),
        )
    )

    assert store.total(key) == 0


def test_removing_looks_at_no_score_and_no_tie(store: RankStore) -> None:
    key = InstanceKey("arcade")
    store.apply(batch_of_rows((key, Rules()), [("ann", 1)]))
    store.apply(
        UpdateBatch(
            instances=[(key, Rules())],
            players=["ann"],
            score=array("q", [-(2**63)]),
            tie=array("q", [-1]),
            op=bytes([Op.REMOVE]),
        )
    )

    assert store.total(key) == 0


def test_a_large_batch_is_the_same_as_its_rows_one_by_one(make_board: MakeBoard) -> None:
    whole, single = make_board(name="whole", keep=Keep.LATEST), make_board(name="single", keep=Keep.LATEST)
    rows = [(f"p{n * 7919 % 300}", n * 104_729 % 101, n) for n in range(1_000)]

    in_one = whole.apply(*rows)
    one_by_one = [single.apply(row)[0] for row in rows]

    assert in_one == one_by_one
    assert whole.kept() == single.kept()
    assert whole.order() == single.order()


# Ranks around the batch


def test_ranks_are_answered_only_when_asked_for(board: Board) -> None:
    answer = board.batch((Op.APPLY, "ann", 10))

    assert answer.rank_before is None
    assert answer.rank_after is None
    assert answer.row(0).rank_after is None


def test_ranks_are_those_before_and_after_the_whole_batch(board: Board) -> None:
    board.apply(("ann", 30), ("bob", 20), ("cid", 10))

    assert board.apply(("cid", 40), ("dan", 35), ("cid", 50), ("bob", 1), ranks=Ranking.ORDINAL) == [
        change(10, 40, before=3, after=1),
        change(None, 35, before=None, after=2),
        change(40, 50, before=3, after=1),
        change(20, 20, changed=False, before=2, after=4),
    ]


@pytest.mark.parametrize(
    ("ranking", "before", "after"),
    [
        (Ranking.ORDINAL, [2, 4, 5], [2, 3, 4]),
        (Ranking.COMPETITION, [1, 3, 5], [1, 3, 3]),
        (Ranking.DENSE, [1, 2, 3], [1, 2, 2]),
    ],
)
def test_ranks_are_counted_as_the_batch_asks(
    board: Board, ranking: Ranking, before: list[int], after: list[int]
) -> None:
    board.apply(("a", 9, 1), ("b", 9, 2), ("c", 5, 1), ("d", 5, 2), ("e", 1, 1))
    answer = board.mixed(
        (Op.APPLY, "b", 0), (Op.APPLY, "d", 0), (Op.APPLY, "e", 5, 3), (Op.REMOVE, "c", 0), ranks=ranking
    )

    assert [row.rank_before for row in answer] == [*before, {"ordinal": 3, "competition": 3, "dense": 2}[ranking]]
    assert [row.rank_after for row in answer] == [*after, None]


def test_a_player_who_leaves_has_no_rank_after_and_a_newcomer_none_before(board: Board) -> None:
    board.apply(("ann", 30))
    answer = board.batch((Op.REMOVE, "ann", 0), (Op.APPLY, "bob", 1), ranks=Ranking.COMPETITION)

    assert answer.rank_before is not None
    assert answer.rank_after is not None
    assert list(answer.rank_before) == [1, RANK_ABSENT]
    assert list(answer.rank_after) == [RANK_ABSENT, 1]


def test_clear_has_no_ranks_and_those_around_it_have(board: Board) -> None:
    board.apply(("ann", 30), ("bob", 20), ("nobody", 5))

    assert board.mixed((Op.APPLY, "bob", 25), (Op.CLEAR,), (Op.APPLY, "cid", 1), ranks=Ranking.ORDINAL) == [
        change(20, 25, before=2, after=None),
        change(None, None, before=None, after=None),
        change(None, 1, before=None, after=1),
    ]


def test_ranks_are_answered_for_each_instance_of_a_batch(store: RankStore) -> None:
    more, less = (InstanceKey("more"), Rules()), (InstanceKey("less"), Rules(order=Order.ASC))
    store.apply(batch_of_rows(more, [("ann", 1), ("bob", 2)]))
    store.apply(batch_of_rows(less, [("ann", 1), ("bob", 2)]))
    answer = store.apply(
        UpdateBatch(
            instances=[more, less],
            players=["bob", "bob"],
            instance=array("I", [0, 1]),
            score=array("q", [0, 0]),
            ranks=Ranking.ORDINAL,
        )
    )

    assert [answer.row(0), answer.row(1)] == [
        change(2, 2, changed=False, before=1, after=1),
        change(2, 0, before=2, after=1),
    ]


def test_an_empty_batch_that_asks_for_ranks_answers_empty_columns(store: RankStore) -> None:
    answer = store.apply(UpdateBatch(instances=[], players=[], ranks=Ranking.DENSE))

    assert answer.rank_before is not None
    assert answer.rank_after is not None
    assert len(answer) == len(answer.rank_before) == len(answer.rank_after) == 0

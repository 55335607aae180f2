"""What a batch does, row by row, and what it answers."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Kept, Order, Ranking, Rules, Ties
from rankd.projection.port import RANK_ABSENT, Batch, Change, Op, RankStore, RowFlag, batch_of_rows, walk

if TYPE_CHECKING:
    from tests.contract.conftest import Board, MakeBoard

PRESENT_SET = RowFlag.WAS_PRESENT | RowFlag.IS_PRESENT | RowFlag.SET
NOTHING = RowFlag(0)


def change(
    old: int | None, new: int | None, *, changed: bool = True, before: int | None = None, after: int | None = None
) -> Change:
    return Change(changed, old, new, before, after)


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
        Batch(
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
        Batch(
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
        Batch(
            instances=[(key, Rules()), (InstanceKey("other"), Rules())],
            players=["ann", "bob"],
            score=array("q", [1, 2]),
        )
    )

    assert store.scores(key, ["ann", "bob"]) == [Kept(1, 0), Kept(2, 0)]
    assert list(store.instances()) == [key]


def test_instances_and_players_no_row_uses_leave_no_trace(store: RankStore) -> None:
    store.apply(
        Batch(
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
        Batch(
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
        Batch(
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
        Batch(
            instances=[(key, wide), (key, narrow)],
            players=["ann", "bob"],
            instance=array("I", [0, 1, 0, 0]),
            player=array("I", [0, 1, 1, 0]),
            score=array("q", [50, 50, 50, 50]),
        )
    )

    assert [answer.row(row).new_score for row in range(4)] == [60, 10, 60, 100]


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
        Batch(
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
    answer = store.apply(Batch(instances=[], players=[], ranks=Ranking.DENSE))

    assert answer.rank_before is not None
    assert answer.rank_after is not None
    assert len(answer) == len(answer.rank_before) == len(answer.rank_after) == 0


# Instances come and go


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
        Batch(boards, ["ann"], score=array("q", everywhere), instance=everywhere, player=array("I", bytes(10_000)))
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
        Batch(
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

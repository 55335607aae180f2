"""A malformed batch names its first bad row, and nothing of it is applied."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.batches import batch_of_rows

from rankd.domain.instance import InstanceKey
from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE, TIE_FIELD_MAX, Keep, Kept, Order, Rules, Ties
from rankd.errors import MalformedBatch
from rankd.projection.port import (
    BATCH_ROWS_MAX,
    INSTANCE_BYTES_MAX,
    SEQUENCE_MAX,
    Op,
    Position,
    RankStore,
    UpdateBatch,
    Verdict,
)

if TYPE_CHECKING:
    from tests.contract.conftest import MakeBoard

KEY, OTHER = InstanceKey("arcade"), InstanceKey("puzzle")
RULES = Rules(keep=Keep.SUM)
BEFORE_THE_SCOPE = "board@daily@"


def good(**fields: Any) -> UpdateBatch:
    """Four rows that would be applied, with the given fields in place of theirs."""
    batch = UpdateBatch(
        instances=[(KEY, RULES), (OTHER, RULES)],
        players=["ann", "bob", "new"],
        score=array("q", [1, 2, 3, 4]),
        tie=array("q", [0, 1, 2, 3]),
        instance=array("I", [0, 1, 0, 0]),
        player=array("I", [0, 1, 2, 0]),
        op=array("B", [Op.APPLY, Op.APPLY, Op.PUT, Op.REMOVE]),
        epoch=1,
        after=10,
        upto=14,
    )
    return replace(batch, **fields)


@pytest.fixture
def written(store: RankStore) -> RankStore:
    """A store that stands at 10, with ann in one instance and nobody in the other."""
    store.apply(batch_of_rows((KEY, RULES), [("ann", 5)], epoch=1, upto=10))
    return store


def refusal(store: RankStore, batch: UpdateBatch) -> MalformedBatch:
    """Return what the batch is refused with, having seen that it left no trace."""
    digest, position = store.digest(KEY), store.position(0)
    with pytest.raises(MalformedBatch) as refused:
        store.apply(batch)
    assert store.position(0) == position
    assert list(store.instances()) == [KEY]
    assert store.digest(KEY) == digest
    assert store.score(KEY, "ann") == Kept(5, 0)
    assert store.total(OTHER) == 0
    return refused.value


def test_the_batch_these_tests_spoil_is_good(written: RankStore) -> None:
    answer = written.apply(good())

    assert (answer.verdict, answer.position) == (Verdict.APPLIED, Position(1, 14))
    assert [answer.row(row).new_score for row in range(4)] == [6, 2, 3, None]


# The batch as a whole


@pytest.mark.parametrize("value", [-1, SEQUENCE_MAX + 1, 2**70, -(2**70), 1.0, "1", None])
@pytest.mark.parametrize("field", ["partition", "epoch", "after", "upto"])
def test_partition_epoch_after_and_upto_are_whole_numbers_of_63_bits(
    written: RankStore, field: str, value: object
) -> None:
    refused = refusal(written, good(**{field: value}))

    assert refused.row is None
    assert field in str(refused)


def test_a_batch_does_not_end_before_it_begins(written: RankStore) -> None:
    assert refusal(written, good(after=10, upto=9)).row is None


@pytest.mark.parametrize("rows", [0, 3, 5])
@pytest.mark.parametrize(("column", "letter"), [("tie", "q"), ("instance", "I"), ("player", "I"), ("op", "B")])
def test_every_column_has_as_many_rows_as_the_scores(written: RankStore, column: str, letter: str, rows: int) -> None:
    refused = refusal(written, good(**{column: array(letter, [0] * rows)}))

    assert refused.row is None
    assert column in str(refused)


def test_too_few_scores_are_too_many_rows_of_other_columns(written: RankStore) -> None:
    assert refusal(written, good(score=array("q", [1, 2, 3]))).row is None
    assert refusal(written, good(score=array("q"))).row is None


def test_there_are_only_so_many_rows(written: RankStore) -> None:
    score = array("q", bytes(8 * (BATCH_ROWS_MAX + 1)))
    batch = UpdateBatch(
        instances=[(KEY, RULES)], players=["ann"], player=array("I", score), score=score, epoch=1, after=10, upto=11
    )

    assert refusal(written, batch).row is None


def test_there_are_only_so_many_players_and_instances(written: RankStore) -> None:
    assert refusal(written, good(players=["ann"] * (BATCH_ROWS_MAX + 1))).row is None
    assert refusal(written, good(instances=[(KEY, RULES)] * (BATCH_ROWS_MAX + 1))).row is None


@pytest.mark.parametrize(
    "bounds",
    [
        {"score_min": 1, "score_max": 0},
        {"score_min": SCORE_MIN_POSSIBLE - 1},
        {"score_max": SCORE_MAX_POSSIBLE + 1},
        {"score_max": 1.5},
        {"score_min": None},
    ],
)
def test_bounds_are_64_bit_integers_in_order(written: RankStore, bounds: dict[str, Any]) -> None:
    assert refusal(written, good(instances=[(KEY, RULES), (OTHER, replace(RULES, **bounds))])).row is None


@pytest.mark.parametrize("pair", [KEY, (KEY,), ("arcade", RULES), (KEY, None), (KEY, RULES, 1), None])
def test_an_instance_is_a_key_with_its_rules(written: RankStore, pair: object) -> None:
    assert refusal(written, good(instances=[(OTHER, RULES), pair])).row is None


@pytest.mark.parametrize(
    "scope", ["x" * (INSTANCE_BYTES_MAX - len(BEFORE_THE_SCOPE) + 1), "é" * (INSTANCE_BYTES_MAX // 2), "\ud800"]
)
def test_a_key_is_utf_8_and_not_too_long(written: RankStore, scope: str) -> None:
    assert refusal(written, good(instances=[(KEY, RULES), (InstanceKey("board", "daily", scope), RULES)])).row is None


def test_a_key_may_be_as_long_as_the_limit(store: RankStore) -> None:
    key = InstanceKey("board", "daily", "x" * (INSTANCE_BYTES_MAX - len(BEFORE_THE_SCOPE)))
    store.apply(batch_of_rows((key, RULES), [("ann", 5)]))

    assert len(key.text) == INSTANCE_BYTES_MAX
    assert list(store.instances()) == [key]
    assert store.score(key, "ann") == Kept(5, 0)
    assert store.total(InstanceKey("board", "daily", key.scope + "x")) == 0


UNLIKE = [{"order": Order.ASC}, {"ties": Ties.LATEST}]


@pytest.mark.parametrize("unlike", UNLIKE, ids=["order", "ties"])
def test_the_rows_of_a_batch_order_an_instance_in_one_way(written: RankStore, unlike: dict[str, Any]) -> None:
    assert refusal(written, good(instances=[(OTHER, RULES), (OTHER, replace(RULES, **unlike))])).row is None


@pytest.mark.parametrize("unlike", UNLIKE, ids=["order", "ties"])
def test_an_instance_somebody_stands_in_keeps_its_order(written: RankStore, unlike: dict[str, Any]) -> None:
    refused = refusal(written, good(instances=[(KEY, replace(RULES, **unlike)), (OTHER, RULES)]))

    assert refused.row is None
    assert KEY.text in str(refused)


def test_rules_no_row_points_to_are_not_looked_at(written: RankStore) -> None:
    unused = (KEY, replace(RULES, order=Order.ASC))
    batch = good(instances=[(OTHER, RULES), unused], instance=array("I", [0, 0, 0, 0]))

    assert written.apply(batch).verdict is Verdict.APPLIED


def test_unlike_rules_are_refused_though_the_batch_would_clear_the_instance_first(written: RankStore) -> None:
    unlike = (KEY, replace(RULES, order=Order.ASC))
    batch = good(instances=[unlike, (OTHER, RULES)], op=array("B", [Op.CLEAR, Op.APPLY, Op.APPLY, Op.APPLY]))

    assert refusal(written, batch).row is None


def test_keep_and_bounds_are_those_each_row_came_with(written: RankStore) -> None:
    narrow, best = replace(RULES, score_max=7), replace(RULES, keep=Keep.BEST)
    answer = written.apply(
        good(
            instances=[(KEY, narrow), (KEY, best), (KEY, RULES)],
            instance=array("I", [0, 1, 1, 2]),
            player=array("I", [0, 0, 0, 0]),
            score=array("q", [9, 8, 6, 1]),
            op=None,
        )
    )

    assert [answer.row(row).new_score for row in range(4)] == [7, 8, 8, 9]


@pytest.mark.parametrize(
    ("position", "verdict"),
    [
        ({"after": 0}, Verdict.DUP),
        ({"after": 11}, Verdict.GAP),
        ({"epoch": 0}, Verdict.FENCED),
    ],
)
def test_a_batch_that_would_not_be_applied_is_not_compared_with_the_store(
    written: RankStore, position: dict[str, int], verdict: Verdict
) -> None:
    unlike = (KEY, replace(RULES, order=Order.ASC))

    assert written.apply(good(instances=[unlike, (OTHER, RULES)], **position)).verdict is verdict


# Rows


@pytest.mark.parametrize("value", [2, 3, 2**31, 2**32 - 1])
@pytest.mark.parametrize("row", range(4))
def test_a_row_names_an_instance_of_the_table(written: RankStore, row: int, value: int) -> None:
    instance = array("I", [0, 1, 0, 0])
    instance[row] = value

    assert refusal(written, good(instance=instance)).row == row


@pytest.mark.parametrize("value", [3, 2**31, 2**32 - 1])
@pytest.mark.parametrize("row", range(4))
def test_a_row_names_a_player_of_the_table(written: RankStore, row: int, value: int) -> None:
    player = array("I", [0, 1, 2, 0])
    player[row] = value

    assert refusal(written, good(player=player)).row == row


def test_without_a_player_column_there_is_a_player_for_each_row(written: RankStore) -> None:
    assert refusal(written, good(player=None, players=["ann", "bob"])).row == 2


def test_without_an_instance_column_there_is_an_instance(written: RankStore) -> None:
    assert refusal(written, good(instance=None, instances=[])).row == 0
    assert refusal(written, good(instances=[])).row == 0


@pytest.mark.parametrize("value", [4, 5, 127, 128, 255])
@pytest.mark.parametrize("row", range(4))
def test_a_row_has_a_known_op(written: RankStore, row: int, value: int) -> None:
    op = array("B", [0, 0, 1, 2])
    op[row] = value

    assert refusal(written, good(op=op)).row == row


@pytest.mark.parametrize("value", [-1, TIE_FIELD_MAX + 1, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("row", range(3))
def test_a_tie_field_has_48_bits(written: RankStore, row: int, value: int) -> None:
    tie = array("q", [0, 1, 2, 3])
    tie[row] = value

    assert refusal(written, good(tie=tie)).row == row


def test_a_tie_field_has_48_bits_where_ties_are_by_player_too(written: RankStore) -> None:
    rules = replace(RULES, ties=Ties.PLAYER)
    batch = batch_of_rows((OTHER, rules), [("ann", 1, 0), ("bob", 1, -1)], epoch=1, after=10, upto=12)

    assert refusal(written, batch).row == 1


BAD_IDS = [5, None, b"ann", "", "x" * 129, "é" * 64 + "x", "😀" * 33, "\ud800", "ann\udfff"]


@pytest.mark.parametrize("player", BAD_IDS)
def test_an_id_is_text_of_1_to_128_bytes(written: RankStore, player: object) -> None:
    assert refusal(written, good(players=["ann", "bob", player])).row == 2
    assert refusal(written, good(players=["ann", player, "bob"])).row == 1
    assert refusal(written, good(players=[player, "ann", "bob"])).row == 0


@pytest.mark.parametrize("player", BAD_IDS)
def test_an_id_no_row_looks_at_is_refused_with_the_batch(written: RankStore, player: object) -> None:
    refused = refusal(written, good(players=["ann", "bob", "new", player]))

    assert refused.row is None
    assert "players[3]" in str(refused)


def test_a_bad_id_that_only_a_clear_ignores_is_refused_with_the_batch(written: RankStore) -> None:
    batch = good(players=["ann", "bob", ""], op=array("B", [Op.APPLY, Op.APPLY, Op.CLEAR, Op.REMOVE]))

    assert refusal(written, batch).row is None


def test_a_bad_id_is_bad_in_a_removal(written: RankStore) -> None:
    assert refusal(written, good(players=["ann", "bob", "", "new"], player=array("I", [0, 1, 3, 2]))).row == 3


@pytest.mark.parametrize(
    ("fields", "row"),
    [
        ({"op": array("B", [0, 9, 0, 0]), "tie": array("q", [0, 0, -1, 0])}, 1),
        ({"op": array("B", [0, 0, 0, 9]), "tie": array("q", [0, 0, -1, 0])}, 2),
        ({"instance": array("I", [0, 0, 9, 0]), "player": array("I", [0, 9, 0, 0])}, 1),
        ({"players": ["ann", "bob", ""], "tie": array("q", [0, -1, 0, 0])}, 1),
        ({"players": ["ann", "bob", ""], "op": array("B", [0, 0, 0, 9])}, 2),
        ({"players": ["ann", "bob", "new", ""], "op": array("B", [0, 0, 0, 9])}, 3),
        ({"op": array("B", [0, 9, 0, 0]), "upto": 9}, None),
        ({"op": array("B", [0, 9, 0, 0]), "tie": array("q")}, None),
        ({"op": array("B", [0, 9, 0, 0]), "instances": [(KEY, RULES), None]}, None),
    ],
)
def test_the_first_bad_row_is_named_after_what_is_wrong_as_a_whole(
    written: RankStore, fields: dict[str, Any], row: int | None
) -> None:
    assert refusal(written, good(**fields)).row == row


@pytest.mark.parametrize("row", [0, 1, 4_999, 9_998, 9_999])
def test_the_bad_row_of_a_large_batch_is_found(written: RankStore, row: int) -> None:
    tie = array("q", bytes(80_000))
    tie[row] = -1
    tie[9_999] = -1
    batch = UpdateBatch(
        instances=[(KEY, RULES)],
        players=[f"p{n}" for n in range(10_000)],
        score=array("q", range(10_000)),
        tie=tie,
        epoch=1,
        after=10,
        upto=11,
    )

    assert refusal(written, batch).row == row


@pytest.mark.parametrize("position", [{"after": 0}, {"after": 11}, {"epoch": 0}], ids=["dup", "gap", "fenced"])
def test_a_malformed_batch_is_refused_whatever_its_position(written: RankStore, position: dict[str, int]) -> None:
    assert refusal(written, good(tie=array("q", [0, -1, 0, 0]), **position)).row == 1


def test_a_repaired_batch_is_applied(written: RankStore) -> None:
    refusal(written, good(op=array("B", [0, 0, 1, 77])))

    assert written.apply(good()).verdict is Verdict.APPLIED


def test_players_of_a_refused_batch_are_not_known_afterwards(make_board: MakeBoard) -> None:
    board = make_board(("ann", 5))
    batch = batch_of_rows((board.key, board.rules), [("bob", 1), ("", 2)], after=1, upto=3)
    with pytest.raises(MalformedBatch):
        board.store.apply(batch)

    assert board.store.scores(board.key, ["ann", "bob", ""]) == [Kept(5, 0), None, None]
    assert board.apply(("bob", 7))[0].old_score is None

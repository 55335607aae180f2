"""A batch applies whole and once: what positions, epochs and partitions decide."""

from __future__ import annotations

import pytest
from tests.batches import batch_of_rows

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Kept, Ranking, Rules
from rankd.projection.port import SEQUENCE_MAX, START, Position, RankStore, UpdateBatch, Verdict

KEY = InstanceKey("arcade")
BOARD = (KEY, Rules(keep=Keep.SUM))


def test_a_new_store_stands_at_the_start_of_every_partition(store: RankStore) -> None:
    assert store.position(0) == START == Position(epoch=0, sequence=0)
    assert store.position(7) == START
    assert store.position(SEQUENCE_MAX) == START


def test_a_batch_that_begins_where_the_store_stands_is_applied_and_moves_it(store: RankStore) -> None:
    answer = store.apply(batch_of_rows(BOARD, [("ann", 5)], after=0, upto=3))

    assert answer.verdict is Verdict.APPLIED
    assert answer.position == store.position(0) == Position(0, 3)
    assert store.score(KEY, "ann") == Kept(5, 0)


def test_the_same_batch_again_is_a_duplicate_and_counts_once(store: RankStore) -> None:
    batch = batch_of_rows(BOARD, [("ann", 5)], after=0, upto=1)
    store.apply(batch)

    answer = store.apply(batch)

    assert answer.verdict is Verdict.DUP
    assert answer.position == store.position(0) == Position(0, 1)
    assert store.score(KEY, "ann") == Kept(5, 0)


def test_a_batch_that_overlaps_what_is_applied_is_a_duplicate_as_a_whole(store: RankStore) -> None:
    store.apply(batch_of_rows(BOARD, [("ann", 5)], upto=10))

    answer = store.apply(batch_of_rows(BOARD, [("ann", 5)], after=9, upto=20))

    assert (answer.verdict, answer.position) == (Verdict.DUP, Position(0, 10))
    assert store.score(KEY, "ann") == Kept(5, 0)


def test_a_batch_that_begins_too_late_leaves_a_gap_and_is_refused(store: RankStore) -> None:
    store.apply(batch_of_rows(BOARD, [("ann", 5)], upto=10))

    answer = store.apply(batch_of_rows(BOARD, [("ann", 5)], after=11, upto=12))

    assert (answer.verdict, answer.position) == (Verdict.GAP, Position(0, 10))
    assert store.score(KEY, "ann") == Kept(5, 0)


def test_the_first_batch_of_a_partition_may_leave_a_gap_too(store: RankStore) -> None:
    answer = store.apply(batch_of_rows(BOARD, [("ann", 5)], after=1, upto=2))

    assert (answer.verdict, answer.position) == (Verdict.GAP, START)
    assert list(store.instances()) == []


def test_a_batch_of_an_older_epoch_is_fenced(store: RankStore) -> None:
    store.apply(batch_of_rows(BOARD, [("ann", 5)], epoch=2, upto=1))

    answer = store.apply(batch_of_rows(BOARD, [("ann", 5)], epoch=1, after=1, upto=2))

    assert (answer.verdict, answer.position) == (Verdict.FENCED, Position(2, 1))
    assert store.score(KEY, "ann") == Kept(5, 0)


@pytest.mark.parametrize("after", [0, 5, 9])
def test_an_old_epoch_is_fenced_wherever_its_batch_begins(store: RankStore, after: int) -> None:
    store.apply(batch_of_rows(BOARD, [], epoch=2, upto=5))

    assert store.apply(batch_of_rows(BOARD, [], epoch=1, after=after, upto=10)).verdict is Verdict.FENCED


def test_a_higher_epoch_takes_over_and_the_old_writer_is_fenced_from_then_on(store: RankStore) -> None:
    store.apply(batch_of_rows(BOARD, [("ann", 5)], epoch=1, upto=1))

    assert store.apply(batch_of_rows(BOARD, [("ann", 5)], epoch=9, after=1, upto=2)).position == Position(9, 2)
    assert store.apply(batch_of_rows(BOARD, [("ann", 5)], epoch=1, after=2, upto=3)).verdict is Verdict.FENCED
    assert store.apply(batch_of_rows(BOARD, [("ann", 5)], epoch=9, after=2, upto=3)).verdict is Verdict.APPLIED
    assert store.score(KEY, "ann") == Kept(15, 0)


@pytest.mark.parametrize(("after", "verdict"), [(4, Verdict.DUP), (6, Verdict.GAP)])
def test_a_refused_batch_does_not_claim_its_epoch(store: RankStore, after: int, verdict: Verdict) -> None:
    store.apply(batch_of_rows(BOARD, [], upto=5))

    answer = store.apply(batch_of_rows(BOARD, [], epoch=3, after=after, upto=10))

    assert (answer.verdict, answer.position) == (verdict, Position(0, 5))
    assert store.position(0) == Position(0, 5)


def test_an_empty_batch_of_no_events_only_claims_the_epoch(store: RankStore) -> None:
    store.apply(batch_of_rows(BOARD, [("ann", 5)], upto=4))

    answer = store.apply(UpdateBatch(instances=[], players=[], epoch=3, after=4, upto=4))

    assert (answer.verdict, answer.position) == (Verdict.APPLIED, Position(3, 4))
    assert store.position(0) == Position(3, 4)


def test_an_empty_batch_of_some_events_moves_an_idle_store_on(store: RankStore) -> None:
    answer = store.apply(UpdateBatch(instances=[], players=[], after=0, upto=1_000))

    assert (answer.verdict, answer.position, len(answer)) == (Verdict.APPLIED, Position(0, 1_000), 0)
    assert store.position(0) == Position(0, 1_000)


def test_partitions_move_on_their_own(store: RankStore) -> None:
    store.apply(batch_of_rows(BOARD, [("ann", 1)], partition=0, epoch=1, upto=5))
    store.apply(batch_of_rows(BOARD, [("bob", 2)], partition=1, epoch=7, upto=2))
    store.apply(batch_of_rows(BOARD, [("cid", 3)], partition=SEQUENCE_MAX, upto=1))

    assert store.apply(batch_of_rows(BOARD, [("bob", 2)], partition=1, epoch=7, upto=2)).verdict is Verdict.DUP
    assert store.apply(batch_of_rows(BOARD, [("ann", 1)], partition=0, epoch=1, after=6, upto=7)).verdict is Verdict.GAP
    assert [store.position(partition) for partition in (0, 1, 2, SEQUENCE_MAX)] == [
        Position(1, 5),
        Position(7, 2),
        START,
        Position(0, 1),
    ]
    assert store.total(KEY) == 3


def test_several_partitions_write_to_one_instance(store: RankStore) -> None:
    for partition in range(4):
        store.apply(batch_of_rows(BOARD, [("ann", 10)], partition=partition, upto=1))

    assert store.score(KEY, "ann") == Kept(40, 0)


def test_epochs_and_sequences_reach_the_end_of_their_range(store: RankStore) -> None:
    store.apply(batch_of_rows(BOARD, [], epoch=SEQUENCE_MAX, upto=SEQUENCE_MAX - 1))
    answer = store.apply(
        batch_of_rows(BOARD, [("ann", 5)], epoch=SEQUENCE_MAX, after=SEQUENCE_MAX - 1, upto=SEQUENCE_MAX)
    )

    assert (answer.verdict, answer.position) == (Verdict.APPLIED, Position(SEQUENCE_MAX, SEQUENCE_MAX))


@pytest.mark.parametrize(
    ("batch", "verdict"),
    [
        (batch_of_rows(BOARD, [("bob", 1)], epoch=1, after=0, upto=1, ranks=Ranking.DENSE), Verdict.DUP),
        (batch_of_rows(BOARD, [("bob", 1)], epoch=1, after=9, upto=10, ranks=Ranking.DENSE), Verdict.GAP),
        (batch_of_rows(BOARD, [("bob", 1)], epoch=0, after=5, upto=6, ranks=Ranking.DENSE), Verdict.FENCED),
    ],
)
def test_a_batch_that_is_not_applied_answers_no_rows(store: RankStore, batch: UpdateBatch, verdict: Verdict) -> None:
    store.apply(batch_of_rows(BOARD, [("ann", 1)], epoch=1, upto=5))

    answer = store.apply(batch)

    assert answer.verdict is verdict
    assert len(answer) == len(answer.old_score) == len(answer.new_score) == 0
    assert answer.rank_before is None
    assert answer.rank_after is None
    assert store.total(KEY) == 1


def test_rows_without_events_are_applied_each_time_they_are_sent(store: RankStore) -> None:
    store.apply(batch_of_rows(BOARD, [("ann", 5)]))
    store.apply(batch_of_rows(BOARD, [("ann", 5)]))

    assert store.score(KEY, "ann") == Kept(10, 0)
    assert store.position(0) == START


def test_dropping_an_instance_moves_no_position(store: RankStore) -> None:
    store.apply(batch_of_rows(BOARD, [("ann", 5)], upto=4))
    store.drop(KEY)

    assert store.position(0) == Position(0, 4)
    assert store.apply(batch_of_rows(BOARD, [("ann", 5)], upto=4)).verdict is Verdict.DUP
    assert store.total(KEY) == 0

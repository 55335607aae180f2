"""One event with a row in each of several instances: the shortest way in, and the same as the batch of its rows."""

from __future__ import annotations

import random
from array import array

import pytest
from tests.batches import batch_of_rows

from rankd.domain.instance import InstanceKey
from rankd.domain.order import TIE_FIELD_MAX, Keep, Order, Ranking, Rules, Ties
from rankd.errors import InvalidValue, MalformedBatch
from rankd.projection.port import START, Position, RankStore, RowChange, UpdateBatch, Verdict
from rankd.projection.reference import ReferenceStore

ARCADE, WEEKLY = InstanceKey("arcade"), InstanceKey("arcade", "weekly:2026-W19")
TABLE = ((ARCADE, Rules()), (WEEKLY, Rules(keep=Keep.LATEST)))
ORDINAL = Ranking.ORDINAL


def one(store: RankStore, player: str, score: int, at: int, ties: list[int] | None = None) -> RowChange | Verdict:
    return store.apply_one(TABLE, player, score, ties or [0, 0], at=at, ranks=ORDINAL, partition=0)


def test_the_answer_is_what_the_first_row_did(store: RankStore) -> None:
    assert one(store, "ann", 10, 1) == RowChange(True, None, 10, None, 1)
    assert one(store, "bob", 20, 2) == RowChange(True, None, 20, None, 1)
    assert one(store, "ann", 30, 3) == RowChange(True, 10, 30, 2, 1)
    assert one(store, "ann", 5, 4) == RowChange(False, 30, 30, 1, 1)


def test_every_instance_gets_its_row_by_its_own_rules(store: RankStore) -> None:
    one(store, "ann", 10, 1, [7, 8])
    one(store, "ann", 5, 2, [9, 9])

    assert store.score(ARCADE, "ann") == (10, 7)
    assert store.score(WEEKLY, "ann") == (5, 9)


def test_the_position_moves_by_one_event(store: RankStore) -> None:
    assert store.position(0) == START
    one(store, "ann", 10, 1)

    assert store.position(0) == Position(0, 1)


@pytest.mark.parametrize(("at", "verdict"), [(1, Verdict.DUP), (3, Verdict.GAP)])
def test_an_event_out_of_turn_changes_nothing(store: RankStore, at: int, verdict: Verdict) -> None:
    one(store, "ann", 10, 1)

    assert one(store, "ann", 99, at) is verdict
    assert store.score(ARCADE, "ann") == (10, 0)
    assert store.position(0) == Position(0, 1)


def test_an_older_writer_is_fenced(store: RankStore) -> None:
    store.apply(UpdateBatch(instances=[], players=[], epoch=3, after=0, upto=1))

    assert one(store, "ann", 10, 2) is Verdict.FENCED


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("player", "score", "ties", "at"),
    [
        ("", 1, [0, 0], 2),
        ("x" * 129, 1, [0, 0], 2),
        ("\ud800", 1, [0, 0], 2),
        (7, 1, [0, 0], 2),
        ("ann", 2**63, [0, 0], 2),
        ("ann", 1.5, [0, 0], 2),
        ("ann", 1, [0], 2),
        ("ann", 1, [0, -1], 2),
        ("ann", 1, [0, TIE_FIELD_MAX + 1], 2),
        ("ann", 1, [0, "0"], 2),
        ("ann", 1, [0, 0], 0),
    ],
)
def test_what_a_batch_could_not_hold_is_refused(
    store: RankStore, player: str, score: int, ties: list[int], *, at: int, known: bool
) -> None:
    if known:
        one(store, "ann", 10, 1)

    with pytest.raises((MalformedBatch, InvalidValue)):
        one(store, player, score, at, ties)
    assert store.position(0) == Position(0, int(known))


def test_an_event_without_rows_is_refused(store: RankStore) -> None:
    with pytest.raises(MalformedBatch):
        store.apply_one((), "ann", 1, [], at=1, ranks=ORDINAL, partition=0)


def test_an_instance_that_stands_in_another_order_is_refused(store: RankStore) -> None:
    store.apply(batch_of_rows((ARCADE, Rules(order=Order.ASC)), [("ann", 1)], upto=1))

    with pytest.raises(MalformedBatch):
        one(store, "ann", 10, 2)


@pytest.mark.parametrize("ranking", Ranking)
def test_it_is_the_batch_of_its_rows(store: RankStore, ranking: Ranking) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown when the test fails
    rng = random.Random(seed)
    by_batches = ReferenceStore()
    tables = [
        tuple(
            (InstanceKey("b", f"w{index}"), Rules(keep=keep, ties=Ties.VALUE))
            for index, keep in enumerate(rng.sample(list(Keep), rng.randint(1, len(Keep))))
        )
        for _ in range(3)
    ]
    for at in range(1, 400):
        table, player = rng.choice(tables), f"p{rng.randrange(30)}"
        score, ties = rng.randrange(20), [rng.randrange(3) for _ in table]
        batch = UpdateBatch(
            instances=table,
            players=[player],
            score=array("q", [score]) * len(table),
            tie=array("q", ties),
            instance=array("I", range(len(table))),
            player=array("I", [0]) * len(table),
            after=at - 1,
            upto=at,
            ranks=ranking,
        )
        change = store.apply_one(table, player, score, ties, at=at, ranks=ranking, partition=0)
        assert change == by_batches.apply(batch).row(0)
    for instance in by_batches.instances():
        assert store.digest(instance) == by_batches.digest(instance)

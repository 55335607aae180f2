"""A column is any contiguous buffer of its item type; every other one is refused clearly."""

from __future__ import annotations

import ctypes
from array import array
from collections import UserList
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Rules
from rankd.errors import MalformedBatch
from rankd.projection.port import Op, RankStore, UpdateBatch, Verdict

KEY, OTHER = InstanceKey("arcade"), InstanceKey("puzzle")
COLUMNS = {"score": "int64", "tie": "int64", "instance": "uint32", "player": "uint32", "op": "uint8"}
LETTERS = {"int64": "q", "uint32": "I", "uint8": "B"}
CTYPES: dict[str, Any] = {"int64": ctypes.c_int64, "uint32": ctypes.c_uint32, "uint8": ctypes.c_uint8}
SIGNED, UNSIGNED = ["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32", "uint64"]
ITEMS = [*SIGNED, *UNSIGNED, "float32", "float64", "bool", ">i8", ">u4"]
VALUES = {
    "score": [5, -(2**63), 7],
    "tie": [1, 2**48 - 1, 0],
    "instance": [0, 1, 0],
    "player": [1, 0, 0],
    "op": [0, 1, 0],
}


def cast(buffer: bytes, letter: Any) -> memoryview:
    return memoryview(buffer).cast(letter)


def frozen(values: list[int], item: str) -> object:
    column = np.array(values, dtype=item)
    column.flags.writeable = False
    return column


KINDS: dict[str, Callable[[list[int], str], Any]] = {
    "array": lambda values, item: array(LETTERS[item], values),
    "memoryview": lambda values, item: memoryview(array(LETTERS[item], values)),
    "a slice of a memoryview": lambda values, item: memoryview(array(LETTERS[item], [9, *values, 9]))[1:-1],
    "a cast of bytes": lambda values, item: cast(array(LETTERS[item], values).tobytes(), LETTERS[item]),
    "numpy": lambda values, item: np.array(values, dtype=item),
    "a contiguous slice of numpy": lambda values, item: np.array([9, *values, 9], dtype=item)[1:-1],
    "numpy read-only": frozen,
    "ctypes": lambda values, item: (CTYPES[item] * len(values))(*values),
}


def batch_of(kind: Callable[[list[int], str], Any]) -> UpdateBatch:
    columns = {name: kind(VALUES[name], item) for name, item in COLUMNS.items()}
    return UpdateBatch(instances=[(KEY, Rules()), (OTHER, Rules())], players=["ann", "bob"], upto=3, **columns)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_a_column_may_be_any_buffer_of_its_item_type(store: RankStore, kind: Callable[[list[int], str], Any]) -> None:
    answer = store.apply(batch_of(kind))

    assert answer.verdict is Verdict.APPLIED
    assert store.scores(KEY, ["ann", "bob"]) == [Kept(7, 0), Kept(5, 1)]
    assert store.scores(OTHER, ["ann", "bob"]) == [Kept(-(2**63), 2**48 - 1), None]


def test_ops_may_be_bytes(store: RankStore) -> None:
    batch = replace(batch_of(KINDS["array"]), op=bytes([Op.APPLY, Op.CLEAR, Op.APPLY]))
    store.apply(batch)

    assert list(store.instances()) == [KEY]
    assert (
        store.apply(replace(batch, op=bytearray([Op.REMOVE, Op.CLEAR, Op.CLEAR]), after=3)).verdict is Verdict.APPLIED
    )
    assert list(store.instances()) == []


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_an_empty_column_may_be_any_buffer_of_its_item_type(
    store: RankStore, kind: Callable[[list[int], str], Any]
) -> None:
    columns = {name: kind([], item) for name, item in COLUMNS.items()}
    answer = store.apply(UpdateBatch(instances=[(KEY, Rules())], players=["ann"], upto=3, **columns))

    assert (answer.verdict, len(answer), store.total(KEY)) == (Verdict.APPLIED, 0, 0)


@pytest.mark.parametrize(
    ("column", "item"), [(column, item) for column, right in COLUMNS.items() for item in ITEMS if item != right]
)
def test_a_column_of_another_item_type_is_refused(store: RankStore, column: str, item: str) -> None:
    spoilt: Any = np.zeros(3, dtype=item)
    batch = replace(batch_of(KINDS["numpy"]), **{column: spoilt})
    with pytest.raises(MalformedBatch) as refused:
        store.apply(batch)

    assert refused.value.row is None
    assert column in str(refused.value)
    assert list(store.instances()) == []


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda values, item: np.repeat(np.array(values, dtype=item), 2)[::2],
        lambda values, item: np.array(values, dtype=item)[::-1],
        lambda values, item: memoryview(array(LETTERS[item], [*values, *values]))[::2],
        lambda values, item: np.array([values], dtype=item),
        lambda values, item: np.array([[value] for value in values], dtype=item),
        lambda values, _: values,
        lambda values, _: tuple(values),
        lambda values, _: np.array(values, dtype=object),
        lambda values, _: np.array(values, dtype="datetime64[s]"),
        lambda *_: "abc",
        lambda *_: 5,
    ],
    ids=[
        "strided",
        "reversed",
        "strided view",
        "one row",
        "one column",
        "list",
        "tuple",
        "objects",
        "dates",
        "str",
        "int",
    ],
)
def test_a_column_that_is_no_contiguous_row_of_numbers_is_refused(
    store: RankStore, column: str, spoil: Callable[[list[int], str], Any]
) -> None:
    batch = replace(batch_of(KINDS["numpy"]), **{column: spoil(VALUES[column], COLUMNS[column])})
    with pytest.raises(MalformedBatch) as refused:
        store.apply(batch)

    assert refused.value.row is None
    assert column in str(refused.value)
    assert list(store.instances()) == []


def test_the_tables_may_be_any_sequence(store: RankStore) -> None:
    score = array("q", [1, 2])
    store.apply(UpdateBatch(instances=((KEY, Rules()),), players=("ann", "bob"), score=score))
    store.apply(UpdateBatch(instances=UserList([(KEY, Rules())]), players=UserList(["cid", "dan"]), score=score))

    assert store.scores(KEY, UserList(["dan", "ann"])) == [Kept(2, 0), Kept(1, 0)]


def test_a_columns_buffer_is_let_go_after_the_batch(store: RankStore) -> None:
    batch = batch_of(KINDS["array"])
    store.apply(batch)

    # An array whose buffer is still held refuses to grow.
    for name in COLUMNS:
        getattr(batch, name).append(1)

"""The native pieces that turn columns of events into columns of rows."""

from __future__ import annotations

import json
import random
import time
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd._columns import (
    MetadataIndex,
    TeamTotals,
    distinct,
    distinct_mappings,
    distinct_rows,
    divided,
    expand,
    plain_json,
    record_metadata_events,
    take,
)
from rankd.domain.score import METADATA_BYTES_MAX

KEY = bytes(range(16))
ENTRY_BYTES_MAX = 40  # of an event in a large index


def numbers(index: bytes) -> list[int]:
    return memoryview(index).cast("I").tolist()


def test_objects_differ_by_identity() -> None:
    first_list, second_list = ["a"], ["a"]
    values, index = distinct([first_list, first_list, second_list, None, first_list])

    assert values[0] is first_list
    assert values[1] is second_list
    assert (values[2:], numbers(index)) == ([None], [0, 0, 1, 2, 0])
    assert take(["x", "y", "z"], index) == ["x", "x", "y", "z", "x"]


@pytest.mark.parametrize("index", [array("I", [0, 2]), array("I", [2**32 - 1])])
def test_an_index_outside_a_list_is_refused(index: array[int]) -> None:
    with pytest.raises(IndexError):
        take(["x", "y"], index)


def test_mappings_differ_by_what_they_hold_and_its_types() -> None:
    sent: list[Any] = [{"a": "1"}, {"a": 1}, {"a": True}, {"a": "1"}, None, {"a": 1}, {"a": [1]}, {"a": [1]}, {}, "x"]
    values, index = distinct_mappings(sent)

    assert take(values, index) == sent
    assert numbers(index) == [0, 1, 2, 0, 3, 1, 4, 5, 6, 7]


def test_rows_of_columns_differ_likewise() -> None:
    rows, index = distinct_rows([["a", "a", "b", "a", "a"], [1, True, 1, 1, None]])

    assert numbers(index) == [0, 1, 2, 0, 3]
    assert rows == [["a", 1], ["a", True], ["b", 1], ["a", None]]


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from(["x", "y", 1, 2, None])), max_size=200))
def test_however_many_there_are_each_is_found_again(sent: list[dict[str, object]]) -> None:
    values, index = distinct_mappings(sent)

    assert take(values, index) == sent
    assert len({tuple(mapping.items()) for mapping in sent}) == len(values)


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), _PLAIN, max_size=5))
def test_plain_metadata_is_encoded_as_python_does(metadata: dict[str, object]) -> None:
    (encoded,), others = plain_json([metadata], METADATA_BYTES_MAX)

    if encoded is None:
        assert others == [0]
    else:
        assert encoded == json.dumps(metadata, ensure_ascii=False, separators=(",", ":"))


def test_what_is_unusual_in_metadata_is_left_to_python() -> None:
    unusual: list[Any] = [{"a": 1.5}, {1: "a"}, {"a": "\ud800"}, {"a": "x" * 2_000}, {"a": 2**70}, ["a"], {"a": (1,)}]

    assert plain_json([*unusual, None, {"a": "ü\n\x01"}], METADATA_BYTES_MAX) == (
        [None] * len(unusual) + [None, '{"a":"ü\\n\\u0001"}'],
        list(range(len(unusual))),
    )


def test_rows_are_left_out_where_a_score_is_out_of_bounds() -> None:
    instance, event, score, tie, is_used = expand(
        array("I", [0, 1, 0]),
        array("I", [0, 2, 3]),
        array("I", [0, 1, 1]),
        array("I", [7, 8, 9]),
        array("q", [5, 50, 50]),
        [array("q", [5, 50, 50]), array("q", [-5, -50, -50])],
        [array("q", [1, 2, 3]), array("q", [4, 5, 6])],
        array("q", [0, 0]),
        array("q", [100, 10]),
    )

    assert list(zip(numbers(instance), numbers(event), array("q", score), array("q", tie), strict=True)) == [
        (7, 0, 5, 1),
        (8, 0, -5, 4),
        (7, 2, 50, 3),
    ]
    assert is_used == b"\1\1\0"


@pytest.mark.parametrize(
    ("group", "offsets", "boards"),
    [([2], [0, 1, 1], [0]), ([0], [0, 2], [0]), ([0], [0, 1], [1]), ([0], [], [0])],
)
def test_a_group_or_a_board_that_is_not_there_is_refused(
    group: list[int], offsets: list[int], boards: list[int]
) -> None:
    column = array("q", [1])
    with pytest.raises(ValueError, match="not there"):
        expand(
            array("I", group),
            array("I", offsets),
            array("I", boards),
            array("I", [0]),
            column,
            [column],
            [column],
            column,
            column,
        )


def test_a_metadata_index_has_the_events_of_a_dictionary() -> None:
    rng = random.Random(20_261_116)
    noted, expected = MetadataIndex(KEY), dict[str, int]()
    for _ in range(20_000):
        player = f"p{rng.randrange(3_000)}"
        if rng.random() < 0.6:
            expected[player] = rng.randrange(1, 2**63)
            noted.put(player, expected[player])
        else:
            expected.pop(player, None)
            noted.remove(player)
    loaded = MetadataIndex.load(noted.dump())
    for table in (noted, loaded):
        assert len(table) == len(expected)
        assert all(table.get(f"p{number}") == expected.get(f"p{number}", 0) for number in range(3_000))
    assert loaded.key == KEY


def test_tables_are_equal_that_hold_the_same_events_under_whatever_key() -> None:
    first_index, second_index = MetadataIndex(KEY), MetadataIndex(bytes(16))
    for table in (first_index, second_index):
        table.put("ann", 3)
        table.put("bob", 4)
    assert first_index == second_index

    second_index.put("bob", 5)

    assert first_index != second_index
    assert first_index != {"ann": 3, "bob": 4}


def test_a_large_table_is_loaded_about_as_fast_as_it_was_made() -> None:
    noted = MetadataIndex(KEY)
    began = time.process_time()
    for number in range(1, 200_001):
        noted.put(f"p{number}", number)
    made = time.process_time()
    loaded = MetadataIndex.load(noted.dump())
    took = time.process_time() - made

    assert loaded == noted
    assert took < 5 * (made - began)  # a hundred times, where hashes in order crowd at the beginning of a table
    assert loaded.memory_bytes() <= ENTRY_BYTES_MAX * len(loaded)


def test_a_noted_event_takes_few_bytes_whatever_the_size_of_the_table() -> None:
    noted = MetadataIndex(KEY)
    for number in range(1, 100_001):
        noted.put(f"p{number}", number)
        if number > 1_000 and number % 97 == 0:
            assert noted.memory_bytes() <= ENTRY_BYTES_MAX * number


def test_what_is_no_dump_is_refused() -> None:
    for dumped in (b"", KEY + b"x"):
        with pytest.raises(ValueError, match="no dump"):
            MetadataIndex.load(dumped)


def test_rows_that_change_something_note_their_events_or_forget_them() -> None:
    noted = [MetadataIndex(KEY), None, MetadataIndex(bytes(16))]
    for table in noted:
        if table is not None:
            table.put("ann", 1)
            table.put("bob", 2)
    instance, event = array("I", [0, 1, 2, 0, 2]), array("I", [0, 0, 0, 1, 1])
    record_metadata_events(noted, instance, event, event, bytes([4, 4, 0, 4, 4]), b"\1\0", ["ann", "bob"], 70)

    assert [[table.get("ann"), table.get("bob")] for table in noted if table is not None] == [[70, 0], [1, 0]]


def test_a_teams_total_follows_its_players() -> None:
    totals, other = TeamTotals(KEY), TeamTotals(bytes(16))
    assert totals.average("reds") is None
    for before, after in [(None, 3), (None, -10), (3, 2**63 - 1), (None, 2**63 - 1), (-10, None)]:
        totals.replace("reds", before, after)
        other.replace("reds", before, after)
    assert totals.average("reds") == 2**63 - 1
    assert (len(totals), totals) == (1, other)
    assert TeamTotals.load(totals.dump()).average("reds") == 2**63 - 1
    for _ in range(2):
        totals.replace("reds", 2**63 - 1, None)
    assert (len(totals), totals.average("reds")) == (0, None)
    assert totals != other
    with pytest.raises(ValueError, match="a team without players has no score to replace"):
        totals.replace("reds", 1, 2)


def test_a_column_is_divided_and_rounded_down() -> None:
    column = [0, 7, -7, 8, -8, 2**63 - 1, -(2**63)]
    assert list(array("q", divided(array("q", column), 8))) == [number // 8 for number in column]
    with pytest.raises(ValueError, match="at least 1"):
        divided(array("q", [1]), 0)

"""A score is an integer within bounds; what comes with it is checked as strictly."""

from __future__ import annotations

from decimal import Decimal
from enum import IntEnum
from fractions import Fraction

import numpy as np
import pytest

from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE
from rankd.domain.score import TIEBREAK_MAX, check_score, check_tiebreak, clamped, encode_metadata
from rankd.errors import InvalidValue


class Level(IntEnum):
    BOSS = 7


NOT_INTEGERS = [
    True,
    False,
    976.0,
    1e3,
    "976",
    b"976",
    None,
    Decimal(976),
    Fraction(976),
    np.int64(976),
    Level.BOSS,
    [1],
]


@pytest.mark.parametrize("value", NOT_INTEGERS)
def test_a_score_that_is_not_plainly_an_integer_is_refused(value: object) -> None:
    with pytest.raises(InvalidValue, match="score: must be an integer"):
        check_score(value, -1000, 1000)


def test_bounds_belong_to_the_range() -> None:
    assert check_score(-5, -5, 5) == -5
    assert check_score(5, -5, 5) == 5
    assert check_score(SCORE_MIN_POSSIBLE, SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE) == SCORE_MIN_POSSIBLE


@pytest.mark.parametrize("value", [-6, 6, 2**63, -(2**63) - 1])
def test_a_score_out_of_bounds_is_refused_and_never_clamped(value: int) -> None:
    with pytest.raises(InvalidValue, match="must be from -5 to 5"):
        check_score(value, -5, 5)


def test_an_integer_too_long_to_print_is_refused_in_a_short_sentence() -> None:
    with pytest.raises(InvalidValue, match="got an integer of 99658 bits"):
        check_score(10**30_000, -5, 5)


@pytest.mark.parametrize("value", [0, 1, TIEBREAK_MAX])
def test_a_tiebreak_goes_from_0_to_2_to_the_40_minus_1(value: int) -> None:
    assert check_tiebreak(value) == value


@pytest.mark.parametrize("value", [-1, TIEBREAK_MAX + 1, *NOT_INTEGERS])
def test_any_other_tiebreak_is_refused(value: object) -> None:
    with pytest.raises(InvalidValue, match="tiebreak: must be"):
        check_tiebreak(value)


def test_metadata_is_stored_as_compact_json() -> None:
    assert (
        encode_metadata({"car": "röd", "laps": [1, 2.5, None, True]})
        == '{"car":"röd","laps":[1,2.5,null,true]}'.encode()
    )


def test_metadata_may_be_exactly_one_kibibyte() -> None:
    assert len(encode_metadata({"a": "x" * (1024 - 8)})) == 1024
    with pytest.raises(InvalidValue, match="at most 1024 bytes as compact JSON; got 1025"):
        encode_metadata({"a": "x" * (1024 - 7)})


def test_metadata_is_measured_in_bytes_not_characters() -> None:
    with pytest.raises(InvalidValue, match="at most 1024 bytes"):
        encode_metadata({"a": "é" * 600})


@pytest.mark.parametrize("value", [None, [], "x", 7, {1: 2}])
def test_metadata_that_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(InvalidValue, match="metadata: must be a JSON object"):
        encode_metadata(value)


def _nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "value", [{"a": float("nan")}, {"a": float("inf")}, {"a": b"x"}, {"a": {1, 2}}, {"a": "\ud800"}, _nested(100_000)]
)
def test_metadata_that_is_no_json_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="metadata: must be"):
        encode_metadata(value)


def test_a_wide_sum_is_clamped_only_when_it_is_read() -> None:
    wide = 80 + 70
    assert clamped(wide, 0, 100) == 100
    assert clamped(wide - 70, 0, 100) == 80
    assert clamped(-(2**70), SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE) == SCORE_MIN_POSSIBLE

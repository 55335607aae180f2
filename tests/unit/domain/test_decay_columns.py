"""Keys of whole columns are made in fixed point, and are the integers that the decimals come to."""

from __future__ import annotations

import random
from array import array
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd.domain.decay import Decay
from rankd.domain.instant import AT_MS_END
from rankd.domain.order import SCORE_MAX_POSSIBLE

DAY_MS = 86_400_000
DECAYS = [
    Decay(0.9, DAY_MS),
    Decay(0.5, DAY_MS),
    Decay(0.5, 1_000),
    Decay(0.999, 3_600_000),
    Decay(0.99, 365 * DAY_MS),
    Decay(1e-9, 30 * DAY_MS),
    Decay(0.999999999, 36_500 * DAY_MS),  # 56 bits below the point, the most there are
]
NEAREST_OF = 3_000


def keys_one_by_one(decay: Decay, scores: array[int], instants: array[int]) -> list[int]:
    return [decay.key(score, at) for score, at in zip(scores, instants, strict=True)]


@given(st.sampled_from(DECAYS), st.lists(st.tuples(st.integers(1, SCORE_MAX_POSSIBLE), st.integers(0, AT_MS_END - 1))))
def test_keys_of_a_column_are_those_of_its_scores(decay: Decay, sent: list[tuple[int, int]]) -> None:
    scores, instants = array("q", [score for score, _ in sent]), array("q", [at for _, at in sent])
    assert list(decay.keys(scores, instants)) == keys_one_by_one(decay, scores, instants)


@pytest.mark.parametrize("decay", DECAYS, ids=repr)
def test_so_are_those_of_whole_powers_and_their_neighbours_at_whole_periods(decay: Decay) -> None:
    powers = [2**power + step for power in range(63) for step in (-1, 0, 1) if 2**power + step >= 1]
    periods = [0, 1, decay.every_ms, 17 * decay.every_ms % AT_MS_END, AT_MS_END - 1]
    scores = array("q", [score for score in powers for _ in periods])
    instants = array("q", periods * len(powers))
    assert list(decay.keys(scores, instants)) == keys_one_by_one(decay, scores, instants)


@pytest.mark.parametrize("decay", DECAYS, ids=repr)
def test_so_are_those_that_nearly_round_to_another_integer(decay: Decay) -> None:
    """Of thousands of scores, the ones whose keys lie nearest to a whole number before it is cut off."""
    rng = random.Random(20_261_116)
    sent = [(rng.randint(1, 10**9), rng.randrange(AT_MS_END)) for _ in range(NEAREST_OF)]
    with localcontext() as context:
        context.prec = 60
        rate = -Decimal(repr(decay.factor)).ln() / Decimal(2).ln() / decay.every_ms

        def distance(score: int, at: int) -> Decimal:
            steps = (Decimal(score).ln() / Decimal(2).ln() + rate * at) * (1 << decay.fraction_bits)
            return abs(steps - round(steps))

        nearest = sorted(sent, key=lambda pair: distance(*pair))[:100]
    scores, instants = array("q", [score for score, _ in nearest]), array("q", [at for _, at in nearest])
    assert list(decay.keys(scores, instants)) == keys_one_by_one(decay, scores, instants)


def test_what_the_errors_leave_in_doubt_is_left_to_the_decimals() -> None:
    decay = DECAYS[1]
    scores, instants = array("q", [1, 2, 1_000, 4]), array("q", [0, DAY_MS, 12_345, 3 * DAY_MS])
    made, doubtful = decay._fixed.keys(scores, instants)

    assert doubtful == [0, 1, 3]  # their logarithms are whole, and so are their periods
    assert array("q", made)[2] == decay.key(1_000, 12_345)
    assert list(decay.keys(scores, instants)) == keys_one_by_one(decay, scores, instants)


def test_a_score_that_has_no_key_does_not_disturb_the_others() -> None:
    decay = DECAYS[0]
    keys = decay.keys(array("q", [-5, 0, 7]), array("q", [5, 5, 5]))

    assert keys[2] == decay.key(7, 5)

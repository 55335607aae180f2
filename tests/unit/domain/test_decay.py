"""Fading scores: one key that orders them at any time, and shows what they are worth now."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd.domain.decay import FRACTION_BITS_MIN, Decay
from rankd.domain.definition import define_board
from rankd.domain.instant import AT_MS_END
from rankd.domain.order import SCORE_MAX_POSSIBLE, Keep, Order, Ties
from rankd.errors import InvalidValue

DAY_MS = 86_400_000
NOW = 1_777_658_400_000
DAILY = Decay(0.9, DAY_MS)
DECAYS = [DAILY, Decay(0.5, 1_000), Decay(0.999, 3_600_000), Decay(0.99, 365 * DAY_MS), Decay(1e-9, 30 * DAY_MS)]
AT = st.integers(0, AT_MS_END - 1)


def _effective(decay: Decay, score: int, at: int, now: int) -> Decimal:
    """The formula of the design, to a hundred digits."""
    with localcontext() as context:
        context.prec = 100
        return score * Decimal(repr(decay.factor)) ** (Decimal(now - at) / decay.every_ms)


def _exactly_shown_up_to(decay: Decay) -> int:
    return min(2**53, int(1.44 * 2**decay.fraction_bits))


@given(st.sampled_from(DECAYS), AT, st.data())
def test_a_score_just_sent_shows_itself_as_far_as_the_step_allows(decay: Decay, at: int, data: st.DataObject) -> None:
    score = data.draw(st.integers(1, _exactly_shown_up_to(decay)))
    assert decay.effective(decay.key(score, at), at) == score


@pytest.mark.parametrize("decay", DECAYS, ids=repr)
@pytest.mark.parametrize("power", [0, 1, 10, 20, 29])
def test_powers_of_two_whose_keys_have_nothing_to_round_show_themselves_too(decay: Decay, power: int) -> None:
    for at in (0, decay.every_ms, 1000 * decay.every_ms % AT_MS_END):
        assert decay.effective(decay.key(2**power, at), at) == 2**power


@given(st.sampled_from(DECAYS), st.integers(1, 2**53), AT, st.integers(0, 40))
def test_a_score_is_worth_what_the_formula_says_within_one_step(
    decay: Decay, score: int, at: int, periods: int
) -> None:
    now = at + periods * decay.every_ms + periods * 7
    shown = decay.effective(decay.key(score, at), now)
    exact = _effective(decay, score, at, now)
    assert int(exact) <= shown <= int(exact * (1 + Decimal(2) ** -decay.fraction_bits))


@given(st.sampled_from(DECAYS), st.integers(1, 2**53), AT, st.integers(1, 2**53), AT)
def test_keys_stand_in_the_order_of_the_effective_scores(
    decay: Decay, score: int, at: int, other_score: int, other_at: int
) -> None:
    key, other_key = decay.key(score, at), decay.key(other_score, other_at)
    now = max(at, other_at)
    worth, other_worth = _effective(decay, score, at, now), _effective(decay, other_score, other_at, now)
    if key > other_key:
        assert worth > other_worth
    elif key < other_key:
        assert worth < other_worth
    else:
        assert abs(worth - other_worth) <= max(worth, other_worth) * Decimal(2) ** -decay.fraction_bits


@given(st.sampled_from(DECAYS), st.integers(1, 2**53 - 1), AT)
def test_a_better_score_at_the_same_time_never_has_the_smaller_key(decay: Decay, score: int, at: int) -> None:
    assert decay.key(score, at) <= decay.key(score + 1, at)


def test_a_score_halves_with_each_period_and_is_floored() -> None:
    decay = Decay(0.5, DAY_MS)
    key = decay.key(1000, NOW)
    assert [decay.effective(key, NOW + day * DAY_MS) for day in range(12)] == [
        *(1000, 500, 250, 125, 62, 31, 15, 7, 3, 1, 0, 0),
    ]
    assert decay.effective(key, AT_MS_END) == 0


def test_an_equal_score_sent_later_stands_first() -> None:
    assert DAILY.key(1000, NOW + 1) > DAILY.key(1000, NOW)
    assert DAILY.key(900, NOW + DAY_MS) == pytest.approx(DAILY.key(1000, NOW), abs=1)


@pytest.mark.parametrize("decay", DECAYS, ids=repr)
def test_no_key_leaves_64_bits_before_2200(decay: Decay) -> None:
    assert decay.key(1, 0) > 0
    assert decay.key(SCORE_MAX_POSSIBLE, AT_MS_END - 1) <= SCORE_MAX_POSSIBLE


def test_the_fraction_is_as_fine_as_64_bits_allow() -> None:
    assert [decay.fraction_bits for decay in DECAYS] == [49, 30, 51, 56, 46]
    assert DAILY.key(SCORE_MAX_POSSIBLE, AT_MS_END - 1) > SCORE_MAX_POSSIBLE // 4


def test_keys_are_the_same_on_every_machine() -> None:
    assert DAILY.key(976, NOW) == 1766174630349253182
    assert DAILY.key(1, 0) == 1


def _log2(number: int, bits: int) -> int:
    """floor(2^bits * log2(number)) by repeated squaring of whole numbers."""
    whole = number.bit_length() - 1
    scale = 200
    mantissa, result = (number << scale) >> whole, whole
    for _ in range(bits):
        mantissa = mantissa * mantissa >> scale
        carry = mantissa >> (scale + 1)
        mantissa >>= carry
        result = result * 2 + carry
    return result


@given(st.integers(1, 2**53), AT)
def test_keys_agree_with_logarithms_taken_another_way(score: int, at: int) -> None:
    decay, more_bits = Decay(0.5, DAY_MS), 60
    bits = decay.fraction_bits + more_bits
    exact = _log2(score, bits) + (at << bits) // DAY_MS
    assert decay.key(score, at) == (exact >> more_bits) + 1


@pytest.mark.parametrize("factor", [0.0, 1.0, -0.5, 1.5, float("nan"), float("inf")])
def test_a_factor_that_does_not_shrink_scores_is_refused(factor: float) -> None:
    with pytest.raises(InvalidValue, match=r"^decay.factor: must be above 0 and below 1"):
        Decay(factor, DAY_MS)


def test_a_decay_too_fast_for_64_bits_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidValue, match="take a larger factor or a longer every"):
        Decay(1e-300, 1_000)
    with pytest.raises(InvalidValue, match=r"^decay.every: must be at least 1s"):
        Decay(0.5, 999)
    assert min(decay.fraction_bits for decay in DECAYS) >= FRACTION_BITS_MIN


FADING: dict[str, object] = {"decay": {"factor": 0.9, "every": "1d"}, "score_min": 1, "ties": "player"}


@pytest.mark.parametrize("keep", ["best", "latest", "first"])
def test_a_fading_board_keeps_best_latest_or_first(keep: str) -> None:
    board = define_board("hot", {**FADING, "keep": keep})
    rules = board.rules_for(board.first_window)
    assert (rules.keep, rules.order, rules.ties) == (Keep(keep), Order.DESC, Ties.PLAYER)
    assert rules.score_max == SCORE_MAX_POSSIBLE


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"keep": "sum"}, "keep.all_time"),
        ({"windows": ["weekly", "daily"], "keep": {"weekly": "sum_of_daily"}}, "keep.weekly"),
        ({"score_min": 0}, "score_min"),
        ({"order": "asc"}, "order"),
        ({"ties": "earliest"}, "ties"),
        ({"ties": "value"}, "ties"),
        ({"decay": {"factor": 1, "every": "1d"}}, "decay.factor"),
        ({"decay": {"factor": "0.9", "every": "1d"}}, "decay.factor"),
        ({"decay": {"factor": 1.0, "every": "1d"}}, "decay.factor"),
        ({"decay": {"factor": 0.9}}, "decay.every"),
        ({"decay": {"factor": 0.9, "every": "500ms"}}, "decay.every"),
        ({"decay": {"factor": 0.9, "each": "1d"}}, "decay.each"),
        ({"decay": 0.9}, "decay"),
    ],
)
def test_anything_else_is_refused_under_the_field_to_change(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        define_board("hot", {**FADING, **change})
    assert refused.value.field == field


def test_a_board_ranks_by_key_and_shows_what_it_is_worth() -> None:
    board = define_board("hot", FADING)
    key = board.ranked_score(1000, NOW)
    assert board.shown_score(key, NOW) == 1000
    assert board.shown_score(key, NOW + DAY_MS) == 900
    plain = define_board("arcade", {})
    assert plain.shown_score(plain.ranked_score(-5, NOW), NOW + DAY_MS) == -5

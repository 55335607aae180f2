"""The standing order and the keep rules, for every keep, order and way to break ties."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd.domain.order import (
    SCORE_MAX_POSSIBLE,
    SCORE_MIN_POSSIBLE,
    TIE_FIELD_MAX,
    Keep,
    Kept,
    Order,
    Rules,
    Ties,
    clamp,
    percentile,
    score_key,
    settle,
    sort_key,
    tie_key,
    top_percent,
)

SCORES = st.integers(SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE)
TIE_FIELDS = st.integers(0, TIE_FIELD_MAX)
EVERY_RULE = [
    Rules(keep, order, ties, SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE) for keep, order, ties in product(Keep, Order, Ties)
]
RULES = st.sampled_from(EVERY_RULE)


def _sets(old: Kept, new: Kept, ties: Ties) -> bool:
    return new.score != old.score or (ties is Ties.VALUE and new.tie != old.tie)


def _spelled_out(rules: Rules, kept: Kept, sent: Kept) -> Kept:
    """The rule of the design, written as a table and not as code that shares anything with `settle`."""
    better_score = sent.score > kept.score if rules.order == "desc" else sent.score < kept.score
    better_tie = rules.ties == "value" and sent.score == kept.score and sent.tie > kept.tie
    total = min(max(kept.score + sent.score, rules.score_min), rules.score_max)
    outcome = {
        "best": sent if better_score or better_tie else kept,
        "latest": sent,
        "sum": Kept(total, sent.tie),
        "first": kept,
    }[rules.keep.value]
    return outcome if _sets(kept, outcome, rules.ties) else kept


@pytest.mark.parametrize("rules", EVERY_RULE, ids=lambda rules: f"{rules.keep}-{rules.order}-{rules.ties}")
@pytest.mark.parametrize("sent_score", [9, 10, 11])
@pytest.mark.parametrize("sent_tie", [4, 5, 6])
def test_every_rule_settles_better_equal_and_worse_scores_as_the_design_says(
    rules: Rules, sent_score: int, sent_tie: int
) -> None:
    tie_counts = rules.ties is not Ties.PLAYER
    kept = Kept(10, 5 if tie_counts else 0)
    sent = Kept(sent_score, sent_tie if tie_counts else 0)
    assert settle(rules, kept, sent_score, sent_tie) == _spelled_out(rules, kept, sent)


@given(RULES, SCORES, TIE_FIELDS, SCORES, TIE_FIELDS)
def test_an_event_that_changes_nothing_gives_back_the_very_same_object(
    rules: Rules, score: int, tie: int, sent_score: int, sent_tie: int
) -> None:
    kept = settle(rules, None, score, tie)
    after = settle(rules, kept, sent_score, sent_tie)
    assert (after is kept) == (not _sets(kept, after, rules.ties))


@pytest.mark.parametrize("rules", EVERY_RULE, ids=lambda rules: f"{rules.keep}-{rules.order}-{rules.ties}")
def test_a_first_score_is_taken_with_its_tie_field_unless_only_the_id_decides(rules: Rules) -> None:
    assert settle(rules, None, 7, 3) == Kept(7, 0 if rules.ties is Ties.PLAYER else 3)


def test_a_sum_stops_at_both_bounds_and_goes_on_from_there() -> None:
    rules = Rules(keep=Keep.SUM, score_min=-10, score_max=12)
    high = settle(rules, Kept(10, 0), 5, 1)
    assert high == Kept(12, 1)
    assert settle(rules, high, -5, 2) == Kept(7, 2)
    assert settle(rules, Kept(-9, 0), -5, 1) == Kept(-10, 1)


def test_a_sum_of_64_bit_ends_does_not_wrap() -> None:
    rules = Rules(Keep.SUM, Order.DESC, Ties.EARLIEST, SCORE_MIN_POSSIBLE, SCORE_MAX_POSSIBLE)
    assert settle(rules, Kept(SCORE_MAX_POSSIBLE, 0), SCORE_MAX_POSSIBLE, 1) == Kept(SCORE_MAX_POSSIBLE, 0)
    assert settle(rules, Kept(SCORE_MIN_POSSIBLE, 0), SCORE_MIN_POSSIBLE, 1) == Kept(SCORE_MIN_POSSIBLE, 0)
    assert settle(rules, Kept(SCORE_MIN_POSSIBLE, 0), SCORE_MAX_POSSIBLE, 1) == Kept(-1, 1)


def test_adding_nothing_to_a_sum_does_not_move_the_time_it_was_reached() -> None:
    assert settle(Rules(keep=Keep.SUM), Kept(10, 5), 0, 9) == Kept(10, 5)


def test_the_same_score_again_does_not_move_the_time_it_was_reached() -> None:
    for keep in (Keep.BEST, Keep.LATEST, Keep.FIRST):
        assert settle(Rules(keep=keep), Kept(10, 5), 10, 9) == Kept(10, 5)


@pytest.mark.parametrize("order", Order)
def test_a_higher_tiebreak_is_better_whatever_the_order(order: Order) -> None:
    rules = Rules(keep=Keep.BEST, order=order, ties=Ties.VALUE)
    assert settle(rules, Kept(10, 5), 10, 6) == Kept(10, 6)
    assert settle(rules, Kept(10, 5), 10, 4) == Kept(10, 5)
    assert sort_key(rules, Kept(10, 6), "z") < sort_key(rules, Kept(10, 5), "a")


def test_the_better_score_wins_before_any_tiebreak() -> None:
    rules = Rules(keep=Keep.BEST, ties=Ties.VALUE)
    assert settle(rules, Kept(10, 0), 9, TIE_FIELD_MAX) == Kept(10, 0)


@given(RULES, SCORES, SCORES)
def test_a_better_score_has_the_smaller_key_up_to_the_ends_of_64_bits(
    rules: Rules, first_score: int, second_score: int
) -> None:
    better = first_score > second_score if rules.order is Order.DESC else first_score < second_score
    assert (score_key(rules, first_score) < score_key(rules, second_score)) == better
    assert SCORE_MIN_POSSIBLE <= score_key(rules, first_score) <= SCORE_MAX_POSSIBLE


def test_the_smallest_integer_has_a_key_that_fits_since_it_is_complemented_and_not_negated() -> None:
    assert score_key(Rules(order=Order.DESC), SCORE_MIN_POSSIBLE) == SCORE_MAX_POSSIBLE
    assert score_key(Rules(order=Order.DESC), SCORE_MAX_POSSIBLE) == SCORE_MIN_POSSIBLE
    assert score_key(Rules(order=Order.ASC), SCORE_MIN_POSSIBLE) == SCORE_MIN_POSSIBLE


@given(RULES, TIE_FIELDS)
def test_a_tie_key_fits_the_tie_field(rules: Rules, tie: int) -> None:
    assert 0 <= tie_key(rules, tie) <= TIE_FIELD_MAX


@pytest.mark.parametrize(
    ("ties", "standing"),
    [
        (Ties.EARLIEST, ["b1", "a2", "c3"]),
        (Ties.LATEST, ["c3", "a2", "b1"]),
        (Ties.VALUE, ["c3", "a2", "b1"]),
        (Ties.PLAYER, ["a2", "b1", "c3"]),
    ],
)
def test_equal_scores_stand_as_ties_says(ties: Ties, standing: list[str]) -> None:
    rules = Rules(ties=ties)
    names = ["a2", "b1", "c3"]
    assert sorted(names, key=lambda name: sort_key(rules, Kept(10, int(name[1])), name)) == standing


@pytest.mark.parametrize("rules", EVERY_RULE, ids=lambda rules: f"{rules.keep}-{rules.order}-{rules.ties}")
def test_the_id_decides_last_and_by_its_bytes(rules: Rules) -> None:
    players = ["", "A", "Z", "a", "aa", "\u00e9", "\uffff", "\U0001f3ae"]
    keys = [sort_key(rules, Kept(1, 1), player) for player in players]
    assert all(key < next_key for key, next_key in pairwise(keys))


@given(SCORES, st.integers(-100, 0), st.integers(0, 100))
def test_clamping_stops_at_the_bounds_and_changes_nothing_within(score: int, low: int, high: int) -> None:
    assert clamp(Rules(score_min=low, score_max=high), score) == sorted([low, score, high])[1]


def test_percentile_and_top_percent_are_unrounded_and_of_the_competition_rank() -> None:
    assert percentile(better=0, total=1) == 0.0
    assert top_percent(better=0, total=1) == 100.0
    assert percentile(better=2, total=3) == 0.0
    assert percentile(better=0, total=3) == 100 * 2 / 3
    assert top_percent(better=0, total=3) == 100 / 3


@given(st.integers(1, 10**9), st.data())
def test_percentile_and_top_percent_make_a_hundred(total: int, data: st.DataObject) -> None:
    better = data.draw(st.integers(0, total - 1))
    assert percentile(better, total) + top_percent(better, total) == pytest.approx(100)
    assert 0 <= percentile(better, total) < 100

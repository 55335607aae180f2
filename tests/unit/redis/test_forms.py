"""Both forms of a score in Redis order exactly as the domain does, and give back what they were given."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace

import msgspec
import pytest

from rankd.domain.order import SCORE_BOUND_DEFAULT, TIE_FIELD_MAX, Keep, Kept, Order, Rules, Ties, sort_key
from rankd.domain.score import TIEBREAK_MAX
from rankd.redis.forms import (
    NUMBER_BITS,
    Form,
    choose_form,
    describe,
    entry_bytes,
    explain_form,
    prefixed_form,
    read_described,
    written_described,
)

SEEDS = range(60)
BOUNDS = [(0, 1), (0, 2**20 - 1), (-500, 500), (2**62, 2**62 + 1_000), (-(2**53) + 1, 2**53 - 1), (-(2**63), 2**63 - 1)]
RESOLUTIONS_MS = [1, 1_000, 60_000, 86_400_000]


def random_rules(rng: random.Random) -> Rules:
    low, high = rng.choice(BOUNDS)
    return Rules(rng.choice(list(Keep)), rng.choice(list(Order)), rng.choice(list(Ties)), low, high)


def random_kept(rng: random.Random, rules: Rules, tie_max: int) -> Kept:
    near = rng.choice([rules.score_min, rules.score_max, rng.randint(rules.score_min, rules.score_max)])
    score = min(rules.score_max, max(rules.score_min, near + rng.randint(-3, 3)))
    tie = 0 if rules.ties is Ties.PLAYER else rng.choice([0, 1, tie_max, rng.randint(0, tie_max)])
    return Kept(score, tie)


def tie_max_of(form: Form) -> int:
    return (1 << form.tie_bits) - 1 if form.is_packed and form.ties is not Ties.PLAYER else TIE_FIELD_MAX


@pytest.mark.parametrize("seed", SEEDS)
def test_ascending_numbers_and_members_are_the_standing_order(seed: int) -> None:
    rng = random.Random(seed)
    rules, resolution_ms = random_rules(rng), rng.choice(RESOLUTIONS_MS)
    for form in (choose_form(rules, resolution_ms), prefixed_form(rules)):
        entries = [
            (random_kept(rng, rules, tie_max_of(form)), f"p{rng.randrange(9)}é"[: rng.randint(1, 3)]) for _ in range(80)
        ]
        written = []
        for kept, player in entries:
            number, prefix = form.encode(*kept)
            assert -(1 << NUMBER_BITS) <= number < 1 << NUMBER_BITS, f"seed {seed}"  # exact in a double
            written.append((float(number), form.member(player, prefix)))
            assert form.decode(float(number), prefix) == kept, f"seed {seed}: {form}"
            assert form.player(written[-1][1]) == player
        ours = sorted(range(80), key=lambda row: (written[row], row))
        expected = sorted(range(80), key=lambda row: (sort_key(rules, *entries[row]), row))

        assert ours == expected, f"seed {seed}: {rules}, {form}"


@pytest.mark.parametrize("seed", SEEDS)
def test_columns_are_written_as_single_scores_are(seed: int) -> None:
    rng = random.Random(seed)
    rules = random_rules(rng)
    form = choose_form(rules, rng.choice(RESOLUTIONS_MS))
    kept = [random_kept(rng, rules, tie_max_of(form)) for _ in range(50)]
    score, tie = array("q", [standing.score for standing in kept]), array("q", [standing.tie for standing in kept])
    expected = [form.encode(*standing) for standing in kept]

    assert form.fits_all(score, tie)
    if form.is_packed:
        assert form.encode_packed(score, tie) == [str(number) for number, _ in expected], f"seed {seed}"
    numbers, prefixes = prefixed_form(rules).encode_prefixed(score, tie)
    plain = [prefixed_form(rules).encode(*standing) for standing in kept]
    assert numbers == [str(number) for number, _ in plain], f"seed {seed}"
    assert prefixes == b"".join(prefix for _, prefix in plain), f"seed {seed}"


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("ties", list(Ties))
def test_a_score_that_would_run_into_its_neighbours_does_not_fit(order: Order, ties: Ties) -> None:
    rules = Rules(order=order, ties=ties, score_min=0, score_max=1_000)
    form = choose_form(rules)
    tie_max = tie_max_of(form) if ties is not Ties.PLAYER else 0

    assert form.is_packed
    assert form.fits(0, 0)
    assert form.fits(1_000, tie_max)
    beyond = 2**53 if ties is Ties.PLAYER else 0  # there are no neighbours to run into before the numbers end
    better = 1_001 + beyond if order is Order.DESC else -1 - beyond
    assert not form.fits(better, 0)
    assert not form.fits_all(array("q", [5, better]), array("q", [0, 0]))
    if ties is not Ties.PLAYER:
        assert not form.fits(5, tie_max + 1)
        assert not form.fits_all(array("q", [5, 6]), array("q", [tie_max + 1, 0]))


def test_the_ties_of_a_score_have_no_other_scores_between_them() -> None:
    form = choose_form(Rules(score_min=0, score_max=1_000))
    tie_max = (1 << form.tie_bits) - 1
    first, last = form.encode(7, 0)[0], form.encode(7, tie_max)[0]

    assert last - first == tie_max
    assert form.encode(8, tie_max)[0] < first
    assert form.encode(6, 0)[0] > last


@pytest.mark.parametrize(
    ("ties", "resolution_ms", "score_max", "packed"),
    [
        (Ties.PLAYER, 1_000, 2**54 - 1, True),
        (Ties.PLAYER, 1_000, 2**54, False),
        (Ties.EARLIEST, 1_000, 2**20 - 1, True),
        (Ties.EARLIEST, 1_000, 2**20, False),
        (Ties.LATEST, 60_000, 2**26 - 1, True),
        (Ties.EARLIEST, 1, 2**11 - 1, True),
        (Ties.EARLIEST, 1, 2**11, False),
        (Ties.VALUE, 1_000, 2**13 - 1, True),
        (Ties.VALUE, 1_000, 2**13, False),
    ],
)
def test_the_packed_form_is_taken_while_score_and_tie_share_a_number(
    ties: Ties, resolution_ms: int, score_max: int, packed: bool
) -> None:
    form = choose_form(Rules(ties=ties, score_min=0, score_max=score_max), resolution_ms)

    assert form.is_packed is packed
    assert form.fits(score_max, TIEBREAK_MAX if ties is Ties.VALUE else 0)


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize(
    ("low", "high", "packed"),
    [
        (-SCORE_BOUND_DEFAULT, SCORE_BOUND_DEFAULT, True),
        (0, 2**54 - 1, True),
        (0, 2**54, False),
        (-(2**63), -(2**63) + 2**54 - 1, True),
        (5, 2**54 + 4, False),  # a double does not hold what numbers would be counted from
        (5, 2**54 + 1, True),
        (2**63 - 2**54, 2**63 - 1, True),
    ],
)
def test_without_ties_the_sign_of_a_number_is_a_bit_too(order: Order, low: int, high: int, packed: bool) -> None:
    form = choose_form(Rules(order=order, ties=Ties.PLAYER, score_min=low, score_max=high))

    assert form.is_packed is packed
    for score in (low, low + 1, (low + high) // 2, high - 1, high):
        assert form.fits(score, 0)
        number, prefix = form.encode(score, 0)
        assert float(number) == number
        assert form.decode(float(number), prefix) == Kept(score, 0)
    assert float(form.lowest_key) == form.lowest_key
    if packed and high - low == 2**54 - 1:
        assert not form.fits(low - 1, 0)
        assert not form.fits(high + 1, 0)


def test_what_is_stored_of_an_instance_is_read_back() -> None:
    form = choose_form(Rules(order=Order.ASC, ties=Ties.LATEST, score_min=-5, score_max=5))
    described = describe(form, 2**127 + 5, 1_234, dense=True)

    assert read_described(written_described(described)) == described
    assert described.form == form
    assert int(described.digest, 16) == 2**127 + 5


def test_a_later_version_may_say_more_of_an_instance() -> None:
    form = choose_form(Rules())
    written = msgspec.msgpack.decode(written_described(describe(form, 1, 2)))

    assert read_described(msgspec.msgpack.encode([*written, "something new"])).form == form


def test_the_explanation_names_the_form_its_bytes_and_a_way_to_less() -> None:
    packed = " ".join(explain_form(Rules(score_min=0, score_max=1_000_000)))
    prefixed = " ".join(explain_form(Rules(score_min=0, score_max=10_000_000)))

    assert packed.startswith("packed: scores from 0 to 1000000 take 20 bits, the time of a score 33")
    assert "Packed would" not in packed
    assert prefixed.startswith("prefixed: ")
    assert "bounds at most 1048575 apart or tie_resolution = 1m or ties = player." in prefixed
    smaller, larger = choose_form(Rules(score_min=0, score_max=1)), prefixed_form(Rules())
    assert str(entry_bytes(larger)) in prefixed
    assert entry_bytes(smaller) < entry_bytes(larger)
    assert entry_bytes(smaller, id_bytes=36) == entry_bytes(smaller) + 23


def test_the_explanation_says_what_a_player_below_the_top_costs() -> None:
    explained = explain_form(Rules(score_min=0, score_max=1_000_000), exact_top=10_000)

    assert "Below the first 10000, about 32 bytes" in explained[2]


def test_what_never_fits_names_only_ways_that_lead_there() -> None:
    explained = " ".join(explain_form(replace(Rules(ties=Ties.VALUE), score_min=-(2**63), score_max=2**63 - 1)))

    assert "ties = player" not in explained
    assert "bounds at most 8191 apart." in explained


def test_bounds_that_would_fit_but_are_too_far_from_0_are_named() -> None:
    first = 21_522_537_394_238_733
    explained = " ".join(explain_form(Rules(score_min=first, score_max=first + 2**20 - 1)))

    assert explained.startswith("prefixed: ")
    assert "more than" not in explained
    assert "bounds nearer to 0" in explained

"""How many lists of friends one player may store in a minute."""

from __future__ import annotations

import pytest

from rankd.api.auth.rates import Rates
from rankd.errors import RateExceeded

from .test_rates import Clock, rates_of


def stored(rates: Rates, player: str = "alice") -> bool:
    try:
        rates.take_list(player)
    except RateExceeded:
        return False
    return True


def test_so_many_lists_a_minute_are_stored_by_one_player() -> None:
    clock = Clock()
    rates = rates_of(clock, player_lists_per_minute=10)

    assert [stored(rates) for _ in range(12)] == [True] * 10 + [False] * 2
    assert stored(rates, "bob")
    clock.now += 5.9
    assert not stored(rates)
    clock.now += 0.2
    assert [stored(rates), stored(rates)] == [True, False]
    clock.now += 61
    assert [stored(rates) for _ in range(11)] == [True] * 10 + [False]


def test_a_sender_of_too_many_lists_learns_when_the_next_one_is_accepted() -> None:
    rates = rates_of(player_lists_per_minute=2)
    assert stored(rates)
    assert stored(rates)
    with pytest.raises(RateExceeded, match="2 a minute are allowed; send it again in 30 s") as refused:
        rates.take_list("alice")

    assert (refused.value.limit, refused.value.retry_after_s) == (2, 30)
    assert rates.refusals == {"player_lists_per_minute": 1}
    assert stored(rates_of())

"""How long a client waits, and when it gives up."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rankd.client.retries import Retries, read_retry_after

CHANCES = some.floats(0, 1)


@given(CHANCES)
def test_each_pause_is_up_to_twice_the_one_before(chance: float) -> None:
    retries = Retries(retries_max=10, backoff_s=0.1, backoff_s_max=1.0)
    pauses = [retries.pause_s(tried, 0, None, chance) for tried in range(1, 9)]

    longest = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]
    assert all(pause is not None and limit / 2 <= pause <= limit for pause, limit in zip(pauses, longest, strict=True))


@given(some.integers(1, 10_000), some.floats(0, 1e6), some.none() | some.floats(0, 1e6), CHANCES)
def test_attempts_are_bounded_in_number_and_in_time(
    tried: int, elapsed_s: float, asked_s: float | None, chance: float
) -> None:
    pause_s = Retries(retries_max=5, total_s=60).pause_s(tried, elapsed_s, asked_s, chance)

    assert pause_s is None or (tried <= 5 and elapsed_s + pause_s < 60 and pause_s >= (asked_s or 0))


def test_clients_that_failed_together_come_back_one_by_one() -> None:
    assert len({Retries().pause_s(1, 0, 1.0, chance / 10) for chance in range(10)}) == 10


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("17", 17), (None, None), ("", None), ("-1", None), ("soon", None), ("1.5", None)]
)
def test_the_wait_a_server_asks_for_is_read(text: str | None, seconds: float | None) -> None:
    assert read_retry_after(text) == seconds


def test_a_date_is_a_wait_until_then() -> None:
    later, earlier = (formatdate(time.time() + offset, usegmt=True) for offset in (60, -60))

    assert read_retry_after(later) == pytest.approx(60, abs=2)
    assert read_retry_after(earlier) == 0

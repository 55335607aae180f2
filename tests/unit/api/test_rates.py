"""Rate limits, beside a model that is slow and obviously right."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankd.api.auth.rates import EXAMINED_MAX, Rates, refused_headers
from rankd.config.model import LimitsConfig
from rankd.errors import RateExceeded

HERE = "203.0.113.9"


class Clock:
    """Stands until it is moved."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def tracked(rates: Rates) -> int:
    return sum(len(limit._full_at) for limit in rates._limits)


def rates_of(clock: Callable[[], float] | None = None, **limits: int) -> Rates:
    return Rates(LimitsConfig(**{"player_writes_per_s": 0, "player_lists_per_minute": 0, **limits}), clock or Clock())


def write(rates: Rates, player: str = "alice", cost: int = 1, address: str = HERE) -> dict[bytes, bytes] | None:
    headers = rates.take(True, f"player:{player}", False, player, address, cost=cost)
    return None if headers is None else dict(headers)


def granted(rates: Rates, **asked: Any) -> bool:
    try:
        write(rates, **asked)
    except RateExceeded:
        return False
    return True


# What a caller sees


def test_a_second_s_worth_is_granted_at_once_and_the_next_one_is_refused() -> None:
    rates = rates_of(player_writes_per_s=10)

    assert [granted(rates) for _ in range(12)] == [True] * 10 + [False] * 2
    assert granted(rates, player="bob")


def test_a_granted_request_learns_how_many_remain() -> None:
    rates = rates_of(player_writes_per_s=3)

    assert write(rates) == {b"ratelimit-limit": b"3", b"ratelimit-remaining": b"2", b"ratelimit-reset": b"1"}
    assert write(rates) == {b"ratelimit-limit": b"3", b"ratelimit-remaining": b"1", b"ratelimit-reset": b"1"}


def test_a_refused_request_learns_when_to_come_back_and_is_granted_then() -> None:
    clock = Clock()
    rates = rates_of(clock, player_writes_per_s=1)
    write(rates)

    with pytest.raises(RateExceeded, match="1 a second are allowed; send it again in 1 s") as refused:
        write(rates)

    assert dict(refused_headers(refused.value)) == {
        b"ratelimit-limit": b"1",
        b"ratelimit-remaining": b"0",
        b"ratelimit-reset": b"1",
    }
    clock.now += refused.value.retry_after_s
    assert granted(rates)


def test_a_bucket_fills_evenly_and_holds_no_more_than_a_second_s_worth() -> None:
    clock = Clock()
    rates = rates_of(clock, player_writes_per_s=4)
    write(rates, cost=4)

    clock.now += 0.25
    assert [granted(rates), granted(rates)] == [True, False]
    clock.now += 3_600
    assert [granted(rates) for _ in range(5)] == [True] * 4 + [False]


def test_every_burst_is_whole_whatever_the_rate() -> None:
    """Sums of floats must not take the last one away."""
    for per_s in [*range(1, 200), 999, 4_096, 99_991]:
        rates = rates_of(Clock(86_400.123), player_writes_per_s=per_s)
        assert [granted(rates) for _ in range(min(per_s, 500))] == [True] * min(per_s, 500)
        if per_s > 500:
            assert granted(rates, cost=per_s - 500)
        assert not granted(rates), per_s


def test_a_refusal_charges_nothing() -> None:
    clock = Clock()
    rates = rates_of(clock, player_writes_per_s=2)
    write(rates, cost=2)
    assert not any(granted(rates) for _ in range(100))

    clock.now += 0.5
    assert granted(rates)


# Whom a limit is for


def test_nobody_is_limited_where_no_limit_is_set() -> None:
    rates = rates_of()

    assert all(write(rates) is None for _ in range(1_000))
    assert tracked(rates) == 0


def test_by_default_only_players_writes_are_limited() -> None:
    rates = Rates(LimitsConfig(), Clock())

    assert rates.take(False, "player:alice", False, "alice", HERE) is None
    assert rates.take(True, "key:1", True, None, HERE) is None
    assert rates.take(True, None, False, None, HERE) is None
    assert rates.take(True, "player:alice", False, "alice", HERE) is not None


def test_reads_and_writes_are_counted_apart() -> None:
    rates = rates_of(player_writes_per_s=1, player_reads_per_s=1)
    write(rates)

    assert rates.take(False, "player:alice", False, "alice", HERE) is not None
    with pytest.raises(RateExceeded):
        rates.take(False, "player:alice", False, "alice", HERE)


def test_a_service_is_counted_by_its_credential_and_a_batch_of_its_as_one() -> None:
    rates = rates_of(service_writes_per_s=2, address_writes_per_s=1)

    assert rates.take(True, "key:1", True, None, HERE, cost=10_000) is not None
    assert rates.take(True, "key:1", True, None, HERE, cost=10_000) is not None
    assert rates.take(True, "key:2", True, None, HERE) is not None
    with pytest.raises(RateExceeded, match="by one credential"):
        rates.take(True, "key:1", True, None, "198.51.100.7")


def test_players_and_strangers_at_one_address_share_its_limit() -> None:
    rates = rates_of(address_reads_per_s=2)

    assert rates.take(False, None, False, None, HERE) is not None
    assert rates.take(False, "player:alice", False, "alice", HERE) is not None
    with pytest.raises(RateExceeded, match="by one address"):
        rates.take(False, "player:bob", False, "bob", HERE)
    assert rates.take(False, "player:bob", False, "bob", "198.51.100.7") is not None
    assert rates.take(False, None, False, None, "") is None


def test_what_one_limit_refuses_is_not_charged_to_the_other() -> None:
    rates = rates_of(player_writes_per_s=5, address_writes_per_s=1)
    assert granted(rates)
    assert not any(granted(rates) for _ in range(10))

    assert [granted(rates, address="198.51.100.7"), granted(rates, address="198.51.100.8")] == [True, True]
    headers = write(rates, address="198.51.100.10")
    assert headers is not None
    assert headers[b"ratelimit-limit"] == b"1"  # of two limits the one with fewer left


def test_an_address_of_version_six_is_limited_with_its_whole_network() -> None:
    rates = rates_of(address_writes_per_s=2)

    assert granted(rates, address="2001:db8:1:2::1")
    assert granted(rates, address="2001:0db8:0001:0002:ffff::")
    assert not granted(rates, address="2001:db8:1:2:3:4:5:6")
    assert granted(rates, address="2001:db8:1:3::1")


def test_refusals_are_counted_by_the_setting_that_refused() -> None:
    rates = rates_of(player_writes_per_s=1, address_reads_per_s=5)
    assert [granted(rates) for _ in range(3)] == [True, False, False]

    assert rates.refusals == {"player_writes_per_s": 2, "address_reads_per_s": 0}


# Batches


def test_a_player_s_batch_counts_as_many_as_it_holds() -> None:
    rates = rates_of(player_writes_per_s=10)

    assert granted(rates, cost=7)
    assert not granted(rates, cost=4)
    assert granted(rates, cost=3)
    assert not granted(rates, cost=0)  # an empty one is a request too


def test_a_batch_larger_than_a_bucket_is_granted_when_it_is_full_and_paid_for_afterwards() -> None:
    clock = Clock()
    rates = rates_of(clock, player_writes_per_s=10)

    headers = write(rates, cost=50)
    assert headers is not None
    assert (headers[b"ratelimit-remaining"], headers[b"ratelimit-reset"]) == (b"0", b"5")
    with pytest.raises(RateExceeded) as refused:
        write(rates)
    assert refused.value.retry_after_s == 5  # 4.1, and whole seconds are answered
    clock.now += 4.05
    assert not granted(rates)
    clock.now += 0.1
    assert granted(rates)
    assert not granted(rates, cost=50)
    clock.now += 1.1
    assert granted(rates, cost=50)


# Hostile


def test_a_flood_of_addresses_takes_no_more_memory_than_is_allowed() -> None:
    clock = Clock()
    rates = rates_of(clock, address_writes_per_s=5, rates_tracked_max=1_000)

    for number in range(60_000):
        assert granted(rates, address=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        clock.now += 0.000_001

    assert tracked(rates) == 1_000


def test_a_flood_of_addresses_makes_nobody_forget_a_player() -> None:
    rates = rates_of(player_writes_per_s=1, address_writes_per_s=1, rates_tracked_max=10)
    assert granted(rates)

    for number in range(1_000):
        rates.take(True, None, False, None, f"10.0.{number >> 8}.{number & 255}")

    assert not granted(rates, address="198.51.100.7")


def test_buckets_that_are_full_again_are_forgotten_as_others_come() -> None:
    clock = Clock()
    rates = rates_of(clock, player_writes_per_s=10, rates_tracked_max=1_000)
    for number in range(900):
        write(rates, player=f"p{number}")

    clock.now += 0.2
    for number in range(900 // (EXAMINED_MAX - 1) + 1):
        write(rates, player=f"q{number}")

    assert tracked(rates) <= 900 // (EXAMINED_MAX - 1) + 1


def test_whoever_owes_is_remembered_while_others_can_be_forgotten() -> None:
    clock = Clock()
    rates = rates_of(clock, player_writes_per_s=10, rates_tracked_max=100)
    write(rates, player="debtor", cost=1_000)

    for number in range(1_000):
        write(rates, player=f"p{number}")
        clock.now += 0.01

    assert not granted(rates, player="debtor")
    assert tracked(rates) <= 100


def test_when_all_owe_the_least_recent_is_forgotten() -> None:
    rates = rates_of(player_writes_per_s=1, rates_tracked_max=3)
    for player in ("a", "b", "c", "d"):
        assert granted(rates, player=player)

    assert tracked(rates) == 3
    assert not any(granted(rates, player=player) for player in ("d", "c", "b"))
    assert granted(rates, player="a")


def test_a_clock_that_goes_back_neither_grants_nor_blocks() -> None:
    clock = Clock()
    rates = rates_of(clock, player_writes_per_s=2)
    write(rates, cost=2)

    clock.now -= 86_400
    assert not granted(rates)
    clock.now += 0.5  # from there on it counts
    assert granted(rates)
    assert not granted(rates)


# Beside the model


CLOSE_S = Fraction(1, 100_000)  # floats may come a little early or late


def outcome(rates: Rates, player: str, cost: int, address: str) -> tuple[dict[bytes, bytes] | None, int]:
    """Return the answer to a granted request, or after how many seconds a refused one may come back."""
    try:
        return write(rates, player, cost, address), 0
    except RateExceeded as refused:
        return None, refused.retry_after_s


class SlowBucket:
    """Tokens as everybody imagines them, in exact numbers."""

    def __init__(self, per_s: int) -> None:
        self.per_s = per_s
        self.tokens = Fraction(per_s)

    def pass_time(self, seconds: Fraction) -> None:
        self.tokens = min(Fraction(self.per_s), self.tokens + max(seconds, Fraction(0)) * self.per_s)

    def missing(self, cost: int) -> Fraction:
        """How many tokens more it would take: a request larger than the bucket needs a full one."""
        return min(Fraction(cost), Fraction(self.per_s)) - self.tokens


Steps = st.lists(
    st.tuples(
        st.floats(-10, 10, allow_nan=False) | st.sampled_from([0.0, 0.1, 0.25, 1.0, 1e-9, 86_400.0, -86_400.0]),
        st.sampled_from(["alice", "bob"]),
        st.sampled_from([HERE, "198.51.100.7", "2001:db8::1"]),
        st.integers(1, 30),
    ),
    max_size=60,
)


@given(st.integers(1, 2_000), st.integers(0, 2_000), st.floats(0, 1e7), Steps)
def test_it_grants_what_the_model_grants(
    player_per_s: int, address_per_s: int, start: float, steps: list[tuple[float, str, str, int]]
) -> None:
    clock = Clock(start)
    rates = rates_of(clock, player_writes_per_s=player_per_s, address_writes_per_s=address_per_s)
    buckets: dict[str, SlowBucket] = {name: SlowBucket(player_per_s) for name in ("alice", "bob")}
    if address_per_s:
        buckets |= {name: SlowBucket(address_per_s) for name in (HERE, "198.51.100.7", "2001:db8::1")}
    for passed, player, address, cost in steps:
        before = clock.now
        clock.now += passed
        for bucket in buckets.values():
            bucket.pass_time(Fraction(clock.now) - Fraction(before))
        concerned = [buckets[name] for name in (player, address) if name in buckets]
        missing_s: Fraction = max(bucket.missing(cost) / bucket.per_s for bucket in concerned)
        headers, retry_after_s = outcome(rates, player, cost, address)
        if headers is None:
            assert missing_s > -CLOSE_S
            assert len(concerned) > 1 or missing_s <= retry_after_s + CLOSE_S
            assert retry_after_s <= max(missing_s, Fraction(0)) + 1 + CLOSE_S
            continue
        assert missing_s < CLOSE_S
        for bucket in concerned:
            bucket.tokens -= cost
        left = max(Fraction(0), min(bucket.tokens for bucket in concerned))
        assert abs(int(headers[b"ratelimit-remaining"]) - left) < 1 + Fraction(1, 10)


@given(st.integers(1, 50), st.lists(st.floats(0, 0.5), min_size=1, max_size=200))
def test_in_no_second_more_is_granted_than_two_seconds_worth(per_s: int, pauses: list[float]) -> None:
    """A full bucket and what flows in meanwhile: the most that any second can see."""
    clock = Clock()
    rates = rates_of(clock, player_writes_per_s=per_s)
    times = []
    for pause in pauses:
        clock.now += pause
        times += [clock.now for _ in range(5) if granted(rates)]

    assert all(later >= earlier for earlier, later in pairwise(times))
    for end in times:
        assert sum(end - 1 < time <= end for time in times) <= 2 * per_s

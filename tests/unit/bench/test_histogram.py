from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rankd.bench.histogram import MICROSECONDS_MAX, LatencyHistogram

latencies = st.lists(st.integers(0, MICROSECONDS_MAX), min_size=1, max_size=200)


def counted(values: list[int]) -> LatencyHistogram:
    made = LatencyHistogram()
    for value in values:
        made.add(value)
    return made


@given(latencies, st.sampled_from([1, 50, 95, 99, 99.9, 100]))
def test_a_percentile_is_never_too_low_and_at_most_one_percent_too_high(values: list[int], percent: float) -> None:
    percentile = counted(values).percentile(percent)
    exact = sorted(values)[max(0, -int(-len(values) * percent // 100) - 1)]

    assert percentile is not None
    assert exact <= percentile <= exact * 1.01 + 1


@given(latencies, latencies)
def test_merging_is_counting_together(some: list[int], others: list[int]) -> None:
    merged = counted(some).merge([counted(others)])
    together = counted(some + others)

    assert merged.count == together.count
    assert [merged.percentile(percent) for percent in (1, 50, 99, 100)] == [
        together.percentile(percent) for percent in (1, 50, 99, 100)
    ]


@given(latencies)
def test_the_largest_is_exact(values: list[int]) -> None:
    assert counted(values).percentile(100) == max(values)


def test_nothing_counted_has_no_percentile() -> None:
    assert LatencyHistogram().percentile(50) is None


def test_whatever_is_counted_the_memory_is_the_same() -> None:
    made = counted([-5, 0, MICROSECONDS_MAX, MICROSECONDS_MAX * 1_000])

    assert made.percentile(25) == 0
    assert made.percentile(100) == MICROSECONDS_MAX
    assert len(made._counts) == len(LatencyHistogram()._counts) < 5_000

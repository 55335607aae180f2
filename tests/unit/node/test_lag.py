"""The lag of ranks: the age of the oldest events that are not ranked, and of nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import pytest

from rankd.errors import LedgerUnavailable
from rankd.node import lag
from rankd.node.lag import SAMPLES_MAX, LagMonitor

MAX_MS = 10_000


class Pipeline:
    """A ledger of two partitions and its ranks, moved by a test."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.heads: list[int] = [5, 5]
        self.ranked: list[int] | None = [5, 5]
        self.is_away = False

    def read_heads(self) -> Sequence[int]:
        if self.is_away:
            raise LedgerUnavailable("away")
        return self.heads

    def monitor(self, lag_max_ms: int = MAX_MS) -> LagMonitor:
        return LagMonitor(self.read_heads, lambda: self.ranked, lag_max_ms, lambda: self.now_s)


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setattr(lag, "SAMPLE_EVERY_S", 3_600.0)
    return Pipeline()


@pytest.fixture
def step(pipeline: Pipeline) -> Iterator[Callable[..., float | None]]:
    """Return a function that lets time pass, samples and returns the lag."""
    monitor = pipeline.monitor()

    def pass_time(seconds: float = 1.0) -> float | None:
        pipeline.now_s += seconds
        monitor.sample()
        return monitor.lag_ms

    yield pass_time
    monitor.close()


def test_a_ledger_without_new_events_has_no_lag(step: Callable[..., float | None]) -> None:
    assert [step(3_600.0) for _ in range(3)] == [0.0, 0.0, 0.0]


def test_the_lag_is_the_age_of_the_oldest_events_not_ranked(
    pipeline: Pipeline, step: Callable[..., float | None]
) -> None:
    pipeline.heads = [6, 5]
    lags = [step(), step()]
    pipeline.heads = [9, 9]
    lags.append(step())
    pipeline.ranked = [6, 5]  # the first of them
    lags.append(step())
    pipeline.ranked = [9, 9]
    lags.append(step())
    assert lags == [0.0, 1_000.0, 2_000.0, 1_000.0, 0.0]


def test_one_partition_that_is_behind_is_a_lag(pipeline: Pipeline, step: Callable[..., float | None]) -> None:
    pipeline.heads = [6, 9]
    step()
    pipeline.ranked = [99, 8]
    assert step() == 1_000.0


def test_ranks_that_follow_a_steady_load_closely_have_no_growing_lag(
    pipeline: Pipeline, step: Callable[..., float | None]
) -> None:
    lags = []
    for number in range(6, 60):
        pipeline.heads, pipeline.ranked = [number, 5], [number - 1, 5]
        lags.append(step())
    assert max(filter(None, lags), default=0.0) <= 1_000.0


def test_without_ranked_positions_the_lag_is_unknown_and_afterwards_counts_from_the_start(
    pipeline: Pipeline, step: Callable[..., float | None]
) -> None:
    pipeline.ranked = None
    pipeline.heads = [6, 5]
    assert [step(), step()] == [None, None]
    pipeline.ranked = [5, 5]
    assert step() == 2_000.0


def test_a_ledger_that_is_away_does_not_hide_the_lag(pipeline: Pipeline, step: Callable[..., float | None]) -> None:
    pipeline.heads = [6, 5]
    step()
    pipeline.is_away = True
    assert step() == 1_000.0
    pipeline.ranked = [6, 5]
    assert step() == 0.0


def test_where_no_projector_ever_ran_everything_is_behind(pipeline: Pipeline) -> None:
    pipeline.ranked = []
    monitor = pipeline.monitor()
    pipeline.now_s += 5.0
    assert monitor.lag_ms == 5_000.0
    monitor.close()


def test_the_samples_are_bounded_however_long_it_lasts(pipeline: Pipeline, step: Callable[..., float | None]) -> None:
    for number in range(6, 2 * SAMPLES_MAX):
        pipeline.heads = [number, 5]
        lag_ms = step()
    assert lag_ms == (2 * SAMPLES_MAX - 7) * 1_000.0
    pipeline.ranked = [SAMPLES_MAX, 5]
    lag_ms = step() or 0.0
    assert abs(lag_ms / 1_000 - SAMPLES_MAX) <= 10


def test_a_long_lag_is_logged_with_its_length_once_in_a_while(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rankd")
    monitor = pipeline.monitor()
    pipeline.heads = [6, 5]
    monitor.sample()
    for _ in range(3):
        pipeline.now_s += 6.0
        monitor._warn()
    pipeline.ranked = [6, 5]
    monitor.sample()
    monitor._warn()
    monitor.close()
    assert [record.message for record in caplog.records] == [
        "ranks are 12.0 s behind the ledger: new scores are refused until they catch up",
        "ranks are within limits.lag_max_ms of the ledger again",
    ]

"""Thin processes beside the oracle: random boards, scores, days and losses, and every answer compared.

What may be otherwise than in the library is listed in scaled_world.py.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

import rankd
from rankd.node import projector
from rankd.redis.fallback.standings_sync import StandingsSync
from rankd.redis.write import backfill

from .conftest import LendStores
from .oracle import Oracle
from .playing import Folders, Runs
from .scaled_world import ScaledDriver, ScaledOracle, ScaledWorld

RUNS: Runs[ScaledWorld] = Runs(
    "tests/simulation/test_model_scaled.py",
    seeds=4,
    steps=200,
    long_runs=60,
    long_steps=500,
    driver=ScaledDriver,
    oracle=ScaledOracle,
    finish=ScaledWorld.verify,
)
PARTITIONS = [1, 3, 8]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the projector read little at a time, and wait for nothing that the clock would have to bring."""
    monkeypatch.setattr(projector, "READ_EVENTS", 7)
    monkeypatch.setattr(projector, "REPLAY_EVENTS", 9)
    monkeypatch.setattr(projector, "BOARD_IDLE_MS", 0)
    monkeypatch.setattr(projector, "BEAT_MS", 0)
    monkeypatch.setattr(projector, "LEASE_EVERY_S", 0.02)
    monkeypatch.setattr(projector, "StandingsSync", partial(StandingsSync, every_ms=50))
    monkeypatch.setattr(backfill, "READ_EVENTS", 5)
    monkeypatch.setattr(backfill, "BACKFILL_EVENTS_MAX", 30)


@RUNS.by_seed
def test_thin_processes_answer_as_the_oracle_does(seed: int, folders: Folders, lend_stores: LendStores) -> None:
    RUNS.play(seed, partial(world_of, folders, lend_stores))


@RUNS.by_number
def test_thin_processes_answer_as_the_oracle_does_whatever_the_seed(
    runs: int, folders: Folders, lend_stores: LendStores
) -> None:
    RUNS.play_fresh(runs, partial(world_of, folders, lend_stores))


@contextmanager
def world_of(folders: Folders, lend_stores: LendStores, seed: int, oracle: Oracle) -> Iterator[ScaledWorld]:
    folder, rng = folders(), random.Random(seed)
    with lend_stores(rng.choice(PARTITIONS)) as stores:
        world = ScaledWorld(folder, rankd.ManualClock(oracle.now), oracle, **stores._asdict(), rng=rng)
        try:
            yield world
        finally:
            world.close()
            shutil.rmtree(folder, ignore_errors=True)

"""The embedded library beside the oracle: random boards, scores, days and restarts, and every answer compared.

Runs that found something are kept in test_model_findings.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import rankd

from .oracle import Oracle
from .playing import Folders, Runs
from .steps import World

RUNS: Runs[World] = Runs("tests/simulation/test_model.py", seeds=8, steps=250, long_runs=300, long_steps=800)


@RUNS.by_seed
def test_the_library_answers_as_the_oracle_does(seed: int, folders: Folders) -> None:
    RUNS.play(seed, partial(world_of, folders))


@RUNS.by_number
def test_the_library_answers_as_the_oracle_does_whatever_the_seed(runs: int, folders: Folders) -> None:
    RUNS.play_fresh(runs, partial(world_of, folders))


@contextmanager
def world_of(folders: Folders, _seed: int, oracle: Oracle) -> Iterator[World]:
    folder = folders()
    world = World(folder, rankd.ManualClock(oracle.now), oracle)
    try:
        yield world
    finally:
        world.boards.close()
        shutil.rmtree(folder)

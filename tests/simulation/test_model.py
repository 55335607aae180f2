"""The embedded library beside the oracle: random boards, scores, days and restarts, and every answer compared.

A failure prints its seed and step and how to play it again: `RANKD_SEED=<seed>` before the same command. With
`RANKD_SHRINK=1` it also looks for the fewest steps that still fail; those that found something are kept in
test_model_findings.py.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import count
from pathlib import Path

import pytest

import rankd

from .driver import Driver
from .extent import LONG, scratch_folder
from .oracle import Oracle
from .shrinking import shrunk
from .steps import Step, World

SEEDS = range(16)  # the same each time
FRESH_SEEDS = 1  # others with `make test-long`
STEPS = 250
LONG_RUNS = 300
LONG_STEPS = 800

Folders = Callable[[], Path]


@pytest.fixture
def folders() -> Iterator[Folders]:
    """Give an empty data folder each time."""
    numbers = count()
    with scratch_folder() as folder:
        yield lambda: folder / f"data-{next(numbers)}"


def fresh_seeds(number: int) -> list[int]:
    """Return new seeds, or the one to play again."""
    if "RANKD_SEED" in os.environ:
        return [int(os.environ["RANKD_SEED"])]
    return [random.randrange(2**32) for _ in range(number)]


@pytest.mark.parametrize("seed", [] if "RANKD_SEED" in os.environ else SEEDS)
def test_the_library_answers_as_the_oracle_does(seed: int, folders: Folders) -> None:
    play(seed, STEPS, folders)


@pytest.mark.parametrize(
    ("runs", "steps"),
    [
        pytest.param(LONG_RUNS if LONG else FRESH_SEEDS, LONG_STEPS if LONG else STEPS, id="sample"),
        pytest.param(LONG_RUNS, LONG_STEPS, id="everything", marks=pytest.mark.long),
    ],
)
def test_the_library_answers_as_the_oracle_does_whatever_the_seed(runs: int, steps: int, folders: Folders) -> None:
    for seed in fresh_seeds(runs):
        # A run of a seed is the beginning of a longer one, so the longest plays any of them again.
        play(seed, LONG_STEPS if "RANKD_SEED" in os.environ else steps, folders)


def play(seed: int, steps: int, folders: Folders) -> None:
    """Make up a run from a seed while it goes on."""
    driver = Driver(random.Random(seed))
    oracle = Oracle(driver.beginning(), driver.scope_values_max())
    beginning = deepcopy(oracle)
    folder = folders()
    world = world_of(oracle, folder)
    done: list[Step] = []
    try:
        for _ in range(steps):
            done.append(driver.next(world.oracle))
            done[-1].do(world)
    except Exception as error:
        kind = type(error)
        error.add_note(f"seed {seed}, step {len(done)}: {done[-1]}")
        error.add_note(f"play it again: RANKD_SEED={seed} .venv/bin/python -m pytest tests/simulation/test_model.py")
        if os.environ.get("RANKD_SHRINK"):
            fewest = shrunk(done, lambda fewer: fails_alike(fewer, deepcopy(beginning), folders(), kind))
            error.add_note("\n".join([f"from {beginning.now}:", *(f"    {step}," for step in fewest)]))
        raise
    finally:
        world.boards.close()
        shutil.rmtree(folder)


def world_of(oracle: Oracle, folder: Path) -> World:
    return World(folder, rankd.ManualClock(oracle.now), oracle)


def fails_alike(steps: Sequence[Step], oracle: Oracle, folder: Path, kind: type[Exception]) -> bool:
    """Tell whether the last step of a shorter run, and no other, still fails with the same kind of error."""
    world = world_of(oracle, folder)
    try:
        for step in steps[:-1]:
            try:
                step.do(world)
            except Exception:
                return False
        try:
            steps[-1].do(world)
        except Exception as other:
            return type(other) is kind
        return False
    finally:
        world.boards.close()

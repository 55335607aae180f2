"""The scaled-out composition beside the oracle: random boards, scores, days and losses, and every answer compared.

What may be otherwise than in the library is listed in scaled_world.py. A failure prints its seed and step and how to
play it again: `RANKD_SEED=<seed>` before the same command; with `RANKD_SHRINK=1` it also looks for the fewest steps
that still fail.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from itertools import count
from pathlib import Path

import pytest

import rankd
from rankd.scaled import missed, projector
from rankd.scaled.keeping import Keeping

from .conftest import LendStores
from .extent import LONG, scratch_folder
from .oracle import Oracle
from .scaled_world import ScaledDriver, ScaledOracle, ScaledWorld
from .shrinking import shrunk
from .steps import Step, World

pytestmark = pytest.mark.timeout(300)  # hundreds of steps over servers
SEEDS = range(8)  # the same each time
FRESH_SEEDS = 1  # others with `make test-long`
STEPS = 200
LONG_RUNS = 60
LONG_STEPS = 500
PARTITIONS = [1, 3, 8]

Folders = Callable[[], Path]


@pytest.fixture
def folders() -> Iterator[Folders]:
    """Give an empty folder each time."""
    numbers = count()
    with scratch_folder() as folder:
        yield lambda: folder / f"projector-{next(numbers)}"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the projector read little at a time, and wait for nothing that the clock would have to bring."""
    monkeypatch.setattr(projector, "READ_EVENTS", 7)
    monkeypatch.setattr(projector, "REPLAY_EVENTS", 9)
    monkeypatch.setattr(projector, "BOARD_IDLE_MS", 0)
    monkeypatch.setattr(projector, "BEAT_MS", 0)
    monkeypatch.setattr(projector, "LEASE_EVERY_S", 0.02)
    monkeypatch.setattr(projector, "Keeping", partial(Keeping, every_ms=50))
    monkeypatch.setattr(missed, "READ_EVENTS", 5)
    monkeypatch.setattr(missed, "MISSED_EVENTS_MAX", 30)


def fresh_seeds(number: int) -> list[int]:
    """Return new seeds, or the one to play again."""
    if "RANKD_SEED" in os.environ:
        return [int(os.environ["RANKD_SEED"])]
    return [random.randrange(2**32) for _ in range(number)]


@pytest.mark.parametrize("seed", [] if "RANKD_SEED" in os.environ else SEEDS)
def test_the_scaled_out_composition_answers_as_the_oracle_does(
    seed: int, folders: Folders, lend_stores: LendStores
) -> None:
    play(seed, STEPS, folders, lend_stores)


@pytest.mark.parametrize(
    ("runs", "steps"),
    [
        pytest.param(LONG_RUNS if LONG else FRESH_SEEDS, LONG_STEPS if LONG else STEPS, id="sample"),
        pytest.param(LONG_RUNS, LONG_STEPS, id="everything", marks=pytest.mark.long),
    ],
)
def test_the_scaled_out_composition_answers_as_the_oracle_does_whatever_the_seed(
    runs: int, steps: int, folders: Folders, lend_stores: LendStores
) -> None:
    for seed in fresh_seeds(runs):
        # A run of a seed is the beginning of a longer one, so the longest plays any of them again.
        play(seed, LONG_STEPS if "RANKD_SEED" in os.environ else steps, folders, lend_stores)


def play(seed: int, steps: int, folders: Folders, lend_stores: LendStores) -> None:
    """Make up a run from a seed while it goes on."""
    driver = ScaledDriver(random.Random(seed))
    oracle = ScaledOracle(driver.beginning(), driver.scope_values_max())
    beginning = deepcopy(oracle)
    done: list[Step] = []
    try:
        with world_of(seed, oracle, folders(), lend_stores) as world:
            for _ in range(steps):
                done.append(driver.next(world.oracle))
                done[-1].do(world)
            world.verify()
    except Exception as error:
        kind = type(error)
        file = "tests/simulation/test_model_scaled.py"
        error.add_note(f"seed {seed}, step {len(done)}: {done[-1]}")
        error.add_note(f"play it again: RANKD_SEED={seed} .venv/bin/python -m pytest {file}")
        if os.environ.get("RANKD_SHRINK"):

            def fails(fewer: Sequence[Step]) -> bool:
                with world_of(seed, deepcopy(beginning), folders(), lend_stores) as other:
                    return fails_alike(fewer, other, kind)

            fewest = shrunk(done, fails)
            error.add_note("\n".join([f"from {beginning.now}:", *(f"    {step}," for step in fewest)]))
        raise


@contextmanager
def world_of(seed: int, oracle: Oracle, folder: Path, lend_stores: LendStores) -> Iterator[ScaledWorld]:
    rng = random.Random(seed)
    with lend_stores(rng.choice(PARTITIONS)) as stores:
        world = ScaledWorld(folder, rankd.ManualClock(oracle.now), oracle, **stores._asdict(), rng=rng)
        try:
            yield world
        finally:
            world.close()
            shutil.rmtree(folder, ignore_errors=True)


def fails_alike(steps: Sequence[Step], world: World, kind: type[Exception]) -> bool:
    """Tell whether the last step of a shorter run, and no other, still fails with the same kind of error."""
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

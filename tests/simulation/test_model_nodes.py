"""Two nodes beside the oracle: random boards, scores, days and restarts, and every answer compared.

What may be otherwise than in the library is listed in node_world.py. A failure prints its seed and step and how to play
it again: `RANKD_SEED=<seed>` before the same command; with `RANKD_SHRINK=1` it also looks for the fewest steps that
still fail.
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
from rankd.node import catching_up, node, open_node, ranks
from rankd.registry.postgres import PostgresRegistry

from .conftest import LendStores
from .driver import Driver
from .extent import LONG, scratch_folder
from .node_world import NodeOracle, NodeWorld
from .oracle import Oracle
from .shrinking import shrunk
from .steps import Step
from .test_model_scaled import fails_alike, fresh_seeds

SEEDS = range(6)  # the same each time
FRESH_SEEDS = 2  # others each time
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
        yield lambda: folder / f"nodes-{next(numbers)}"


@pytest.fixture(autouse=True)
def little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes follow few events at a time."""
    monkeypatch.setattr(ranks, "STEP_EVENTS", 7)
    monkeypatch.setattr(node, "STEP_EVENTS", 7)
    monkeypatch.setattr(catching_up, "READ_EVENTS", 9)
    monkeypatch.setattr(open_node, "PostgresRegistry", partial(PostgresRegistry, look_every_ms=20))


@pytest.fixture
def followed_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes follow nothing by themselves, so that a run of a seed is the same each time."""
    monkeypatch.setattr(node.Node, "_follow", lambda _node: None)


@pytest.mark.usefixtures("followed_when_asked")
@pytest.mark.parametrize("seed", [] if "RANKD_SEED" in os.environ else SEEDS)
def test_two_nodes_answer_as_the_oracle_does(seed: int, folders: Folders, lend_stores: LendStores) -> None:
    play(seed, STEPS, folders, lend_stores)


@pytest.mark.parametrize(
    ("runs", "steps"),
    [
        pytest.param(LONG_RUNS if LONG else FRESH_SEEDS, LONG_STEPS if LONG else STEPS, id="sample"),
        pytest.param(LONG_RUNS, LONG_STEPS, id="everything", marks=pytest.mark.long),
    ],
)
def test_two_nodes_answer_as_the_oracle_does_whatever_the_seed(
    runs: int, steps: int, folders: Folders, lend_stores: LendStores
) -> None:
    for seed in fresh_seeds(runs):
        # A run of a seed is the beginning of a longer one, so the longest plays any of them again.
        play(seed, LONG_STEPS if "RANKD_SEED" in os.environ else steps, folders, lend_stores)


def play(seed: int, steps: int, folders: Folders, lend_stores: LendStores) -> None:
    """Make up a run from a seed while it goes on."""
    driver = Driver(random.Random(seed))
    oracle = NodeOracle(driver.beginning(), driver.scope_values_max())
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
        file = "tests/simulation/test_model_nodes.py"
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
def world_of(seed: int, oracle: Oracle, folder: Path, lend_stores: LendStores) -> Iterator[NodeWorld]:
    rng = random.Random(seed)
    with lend_stores(rng.choice(PARTITIONS)) as stores:
        clock = rankd.ManualClock(oracle.now)
        world = NodeWorld(folder, clock, oracle, ledger_url=stores.ledger_url, rng=rng)
        try:
            yield world
        finally:
            world.close()
            shutil.rmtree(folder, ignore_errors=True)

"""Two nodes beside the oracle: random boards, scores, days and restarts, and every answer compared.

What may be otherwise than in the library is listed in node_world.py.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

import rankd
from rankd.node import catching_up, following, node, ranks, shared_stores
from rankd.node.shared_stores import SharedStores
from rankd.registry.postgres.registry import PostgresRegistry

from .conftest import LendStores
from .node_world import NodeOracle, NodeWorld
from .oracle import Oracle
from .playing import Folders, Runs

RUNS: Runs[NodeWorld] = Runs(
    "tests/simulation/test_model_nodes.py",
    seeds=4,
    steps=200,
    long_runs=60,
    long_steps=500,
    oracle=NodeOracle,
    finish=NodeWorld.verify,
)
PARTITIONS = [1, 3, 8]


@pytest.fixture(autouse=True)
def little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes follow few events at a time."""
    monkeypatch.setattr(ranks, "STEP_EVENTS", 7)
    monkeypatch.setattr(following, "STEP_EVENTS", 7)
    monkeypatch.setattr(catching_up, "READ_EVENTS", 9)
    monkeypatch.setattr(shared_stores, "PostgresRegistry", partial(PostgresRegistry, poll_every_ms=20))


@pytest.fixture
def followed_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes follow nothing by themselves, so that a run of a seed is the same each time."""
    monkeypatch.setattr(node.Node, "_follow", lambda _node: None)


@pytest.mark.usefixtures("followed_when_asked")
@RUNS.by_seed
def test_two_nodes_answer_as_the_oracle_does(seed: int, folders: Folders, lend_stores: LendStores) -> None:
    RUNS.play(seed, partial(world_of, folders, lend_stores))


@RUNS.by_number
def test_two_nodes_answer_as_the_oracle_does_whatever_the_seed(
    runs: int, folders: Folders, lend_stores: LendStores
) -> None:
    RUNS.play_fresh(runs, partial(world_of, folders, lend_stores))


@contextmanager
def world_of(folders: Folders, lend_stores: LendStores, seed: int, oracle: Oracle) -> Iterator[NodeWorld]:
    folder, rng = folders(), random.Random(seed)
    with lend_stores(rng.choice(PARTITIONS)) as stores:
        world = NodeWorld(
            folder, rankd.ManualClock(oracle.now), oracle, stores=SharedStores(stores.ledger_url), rng=rng
        )
        try:
            yield world
        finally:
            world.close()
            shutil.rmtree(folder, ignore_errors=True)

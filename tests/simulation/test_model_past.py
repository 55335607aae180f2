"""Reads of the past beside the oracle: random boards, scores, days and restarts, and `as_of` at random instants."""

from __future__ import annotations

import pytest

from rankd.reads import past as past_reads

from .conftest import LendStores
from .node_world import NodeOracle, NodeWorld
from .past import PastDriver, compare_moments
from .playing import Folders, Runs
from .steps import World
from .test_model import world_of
from .test_model_nodes import followed_when_asked, little_at_a_time
from .test_model_nodes import world_of as node_world_of

__all__ = ["followed_when_asked", "little_at_a_time"]
FILE = "tests/simulation/test_model_past.py"
RUNS: Runs[World] = Runs(
    FILE, seeds=4, steps=200, long_runs=100, long_steps=600, driver=PastDriver, finish=compare_moments
)
NODE_RUNS: Runs[NodeWorld] = Runs(
    FILE,
    seeds=2,
    steps=120,
    long_runs=30,
    long_steps=400,
    driver=PastDriver,
    oracle=NodeOracle,
    finish=compare_moments,
)


@pytest.fixture(autouse=True)
def past_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a past state be followed a few events at a time."""
    monkeypatch.setattr(past_reads, "STEP_EVENTS", 7)


@RUNS.by_seed
def test_the_library_answers_of_the_past_as_the_oracle_did(seed: int, folders: Folders) -> None:
    world = RUNS.play(seed, lambda run_seed, oracle: world_of(folders, run_seed, oracle))
    assert world.moments


@RUNS.by_number
def test_the_library_answers_of_the_past_as_the_oracle_did_whatever_the_seed(runs: int, folders: Folders) -> None:
    RUNS.play_fresh(runs, lambda run_seed, oracle: world_of(folders, run_seed, oracle))


@pytest.mark.usefixtures("followed_when_asked")
@NODE_RUNS.by_seed
def test_two_nodes_answer_of_the_past_as_the_oracle_did(seed: int, folders: Folders, lend_stores: LendStores) -> None:
    NODE_RUNS.play(seed, lambda run_seed, oracle: node_world_of(folders, lend_stores, run_seed, oracle))


@NODE_RUNS.by_number
def test_two_nodes_answer_of_the_past_as_the_oracle_did_whatever_the_seed(
    runs: int, folders: Folders, lend_stores: LendStores
) -> None:
    NODE_RUNS.play_fresh(runs, lambda run_seed, oracle: node_world_of(folders, lend_stores, run_seed, oracle))

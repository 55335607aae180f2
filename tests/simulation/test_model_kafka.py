"""Two nodes on a Kafka ledger beside the oracle: random boards, scores, days and restarts, and every answer compared.

What may be otherwise than in the library is listed in node_world.py and kafka_world.py.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import PostgresServer

import rankd
from rankd.node import catching_up, following, ledger_tending, ranks, shared_stores
from rankd.registry.postgres.registry import PostgresRegistry

from .kafka_world import KafkaDriver, KafkaOracle, KafkaWorld, kafka_stores
from .oracle import Oracle
from .playing import Folders, Runs

RUNS: Runs[KafkaWorld] = Runs(
    "tests/simulation/test_model_kafka.py",
    seeds=2,
    steps=100,
    long_runs=30,
    long_steps=300,
    driver=KafkaDriver,
    oracle=KafkaOracle,
    finish=KafkaWorld.verify,
)
PARTITIONS = [1, 3, 8]


@pytest.fixture(autouse=True)
def little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes follow few events at a time, and write marks of time soon."""
    monkeypatch.setattr(ranks, "STEP_EVENTS", 7)
    monkeypatch.setattr(following, "STEP_EVENTS", 7)
    monkeypatch.setattr(catching_up, "READ_EVENTS", 9)
    monkeypatch.setattr(ledger_tending, "TEND_EVERY_MS", 10)
    monkeypatch.setattr(shared_stores, "PostgresRegistry", partial(PostgresRegistry, poll_every_ms=20))


@RUNS.by_seed
def test_two_nodes_answer_as_the_oracle_does(
    seed: int, folders: Folders, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    RUNS.play(seed, partial(world_of, folders, kafka, postgres))


@RUNS.by_number
def test_two_nodes_answer_as_the_oracle_does_whatever_the_seed(
    runs: int, folders: Folders, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    RUNS.play_fresh(runs, partial(world_of, folders, kafka, postgres))


@contextmanager
def world_of(
    folders: Folders, kafka: KafkaBroker, postgres: PostgresServer, seed: int, oracle: Oracle
) -> Iterator[KafkaWorld]:
    folder, rng = folders(), random.Random(seed)
    partitions = rng.choice(PARTITIONS)
    if isinstance(oracle, KafkaOracle):
        oracle.partitions = partitions
    with kafka_stores(kafka, postgres, partitions) as stores:
        world = KafkaWorld(folder, rankd.ManualClock(oracle.now), oracle, stores=stores, rng=rng)
        try:
            yield world
        finally:
            world.close()
            shutil.rmtree(folder, ignore_errors=True)

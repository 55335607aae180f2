"""Kafka for tests: one broker a session, topics of each test's own; or brokers of a test's own.

Without Kafka such tests are skipped with a sentence how to get it; where CI=true, they fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.servers.kafka import (
    HOW_TO_GET_KAFKA,
    KafkaBroker,
    KafkaCluster,
    kafka_is_installed,
    running_cluster,
    running_kafka,
)


def needs_kafka() -> None:
    """Skip the test, or fail it where CI=true, when there is no Kafka."""
    if not kafka_is_installed():
        if os.environ.get("CI") == "true":
            pytest.fail(HOW_TO_GET_KAFKA)
        pytest.skip(HOW_TO_GET_KAFKA)


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A broker that many tests share: none of them stops it, and each has topics of its own."""
    needs_kafka()
    with running_kafka() as broker:
        yield broker


@pytest.fixture
def own_kafka() -> Iterator[KafkaBroker]:
    """A broker of the test's own, which it may stop, kill and start again."""
    needs_kafka()
    with running_kafka() as broker:
        yield broker


@pytest.fixture
def kafka_cluster() -> Iterator[KafkaCluster]:
    """Three brokers of the test's own; it may kill one."""
    needs_kafka()
    with running_cluster() as cluster:
        yield cluster

"""The figures of Kafka cannot rot: they run here at a tiny size, with a real broker, and counts must agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.figures import KAFKA, LIBRARY, QUIET, RANKD
from tests.servers.fixtures_kafka import needs_kafka
from tests.servers.fixtures_postgres import needs_postgres
from tests.unit.benchmarks.smoke import rows_of, smoke_report

pytestmark = pytest.mark.timeout(300)  # a whole benchmark, small as it is


def test_consuming_is_measured_beside_a_bare_consumer_and_in_a_burst(tmp_path: Path) -> None:
    needs_kafka()
    rows = rows_of(smoke_report("kafka", tmp_path))

    for name, rival in (("kafka_consume", KAFKA), ("kafka_burst_p99", QUIET)):
        assert rows[name]["samples"][RANKD][0] > 0
        assert rows[name]["checksums"][RANKD] == rows[name]["checksums"][rival]


def test_relaying_is_measured_beside_a_bare_producer(tmp_path: Path) -> None:
    needs_kafka()
    needs_postgres()
    rows = rows_of(smoke_report("kafka_relay", tmp_path))

    for name in ("kafka_relay_sqlite", "kafka_relay_postgres"):
        assert rows[name]["samples"][KAFKA][0] > 0
        assert rows[name]["checksums"][RANKD] == rows[name]["checksums"][KAFKA]


def test_a_kafka_ledger_is_measured_beside_the_embedded_server(tmp_path: Path) -> None:
    needs_kafka()
    needs_postgres()
    rows = rows_of(smoke_report("kafka_ledger", tmp_path))

    assert rows["kafka_ledger_rebuild"]["checksums"][RANKD] == rows["kafka_ledger_rebuild"]["checksums"][LIBRARY]
    for name in ("submit_p99", "batches", "visible_p99", "backlog"):
        assert rows[f"kafka_ledger_{name}"]["samples"][RANKD][0] > 0

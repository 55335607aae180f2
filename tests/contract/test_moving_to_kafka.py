"""An embedded installation, and one on PostgreSQL, move into a ledger on Kafka, and are ranked there as they were."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from tests.contract.moved_folders import fill
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import PostgresServer
from tests.simulation.kafka_world import kafka_stores

from rankd.errors import Refused
from rankd.ledger.kafka.ledger import KafkaLedger
from rankd.ledger.port import Appended, Draft
from rankd.node.open_node import open_node
from rankd.node.open_operations import move_from, move_ledger
from rankd.node.shared_stores import SharedStores
from rankd.operations import move_events
from rankd.projection.placement import is_team_scope
from rankd.projection.verify import digests

WAIT_MS = 20_000


def ranked_there(stores: SharedStores, folder: Path) -> dict[str, tuple[int, int]]:
    """Return what a node makes of a ledger, and have it prove that."""
    with open_node(stores, folder, at_least_wait_ms=WAIT_MS) as boards:
        boards.settle()
        boards.define("last", keep="sum")
        boards.submit("last", "zoe", 1)  # ranked behind everything that waits for marks of time
        boards.delete("last")
        boards.settle()
        boards.verify()
        ranked = digests(boards.rank_store)
    return {text: digest for text, digest in ranked.items() if not is_team_scope(text)}


@pytest.mark.parametrize("seed", range(2))
def test_a_folder_ranks_the_same_on_kafka(
    seed: int, tmp_path: Path, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    ranked = fill(tmp_path / "data", seed)
    with kafka_stores(kafka, postgres, 3) as stores:
        moved = move_from(tmp_path / "data", stores)
        assert ranked_there(stores, tmp_path / "node") == ranked, f"seed {seed}"
    assert (moved.players, moved.keys) == (2, 1)


def test_a_ledger_on_postgresql_ranks_the_same_on_kafka(
    tmp_path: Path, kafka: KafkaBroker, postgres: PostgresServer, postgres_url: str
) -> None:
    ranked = fill(tmp_path / "data", 5)
    SharedStores(postgres_url).migrate(5)
    move_from(tmp_path / "data", SharedStores(postgres_url))
    with kafka_stores(kafka, postgres, 3) as stores:
        move_ledger(postgres_url, stores)
        assert ranked_there(stores, tmp_path / "node") == ranked


def test_a_move_that_was_interrupted_goes_on_where_it_was(
    tmp_path: Path, kafka: KafkaBroker, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked = fill(tmp_path / "data", 3)
    monkeypatch.setattr(move_events, "BATCH_EVENTS", 7)
    append, appended = KafkaLedger.append, 0

    def cut_off(self: KafkaLedger, draft: Draft) -> Appended:
        nonlocal appended
        appended += 1
        if appended % 9 == 0:
            raise ConnectionError("cut off")
        return append(self, draft)

    monkeypatch.setattr(KafkaLedger, "append", cut_off)
    with kafka_stores(kafka, postgres, 3) as stores:
        for _ in range(2):
            with pytest.raises(ConnectionError):
                move_from(tmp_path / "data", stores)
            appended += 1
        monkeypatch.setattr(KafkaLedger, "append", append)
        move_from(tmp_path / "data", stores)
        assert ranked_there(stores, tmp_path / "node") == ranked


def test_a_ledger_with_events_of_its_own_is_not_moved_into(
    tmp_path: Path, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    fill(tmp_path / "one", 1)
    fill(tmp_path / "two", 2)
    with kafka_stores(kafka, postgres, 2) as stores:
        move_from(tmp_path / "one", stores)
        with pytest.raises(Refused, match="holds other events"):
            move_from(tmp_path / "two", stores)
        with closing(stores.open_ledger()) as ledger:
            assert ledger.heads().control > 0

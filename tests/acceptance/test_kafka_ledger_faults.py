"""Nodes on a Kafka ledger are killed, and brokers go away: nothing is lost or doubled, the others serve on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import httpx
import pytest
from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.kafka import KafkaBroker, KafkaCluster
from tests.servers.waiting import wait_until
from tests.simulation.extent import short_and_long

from rankd.domain.partition import partition_of

from .node_pair import Pair, other, running_pair
from .scaled_serving import nodes_installed
from .serving import free_port

KILLS, KILLS_LONG = 3, 50
WAIT_MS = 3_000
ANSWER_S = 30.0
WAITING = {"RANKD_RANKS_AT_LEAST_WAIT_MS": "20000"}


@pytest.fixture
def pair(tmp_path: Path, kafka: KafkaBroker) -> Iterator[Pair]:
    with running_pair(tmp_path, WAITING, kafka.url) as made:
        yield made


@short_and_long
def test_nodes_are_killed_and_the_other_serves_on(pair: Pair, everything: bool) -> None:
    pair.kill_some(KILLS_LONG if everything else KILLS)
    pair.finish()


def test_the_holder_of_the_lease_is_killed_and_teams_are_ranked_on(pair: Pair) -> None:
    pair.load.go_on_for()
    killed = pair.holder
    pair.kill(killed)
    pair.load.use(pair.by_name[other(killed)])
    pair.load.go_on_for()
    pair.load.check(pair.by_name[other(killed)])  # teams too, which wait for marks of time by the holder
    pair.start(killed)
    pair.load.use(*pair.by_name.values())
    pair.finish()


def test_what_a_killed_process_left_half_copied_is_completed(tmp_path: Path, kafka: KafkaBroker) -> None:
    needs_postgres()
    with nodes_installed(tmp_path, brokers_url=kafka.url) as nodes:
        other_node = nodes.node("b")
        dying = nodes.start_node("a", free_port(), program="tests.acceptance.dying_copier")
        dying.wait_until_ready()
        with dying.client(nodes.admin) as client, pytest.raises(httpx.TransportError):
            client.put("/v1/boards/arcade", json={"keep": "sum"})
        with other_node.client(nodes.admin, timeout_s=ANSWER_S) as client:
            wait_until(lambda: client.get("/v1/boards/arcade").status_code == 200)
            headers = {"Prefer": "wait=10"}
            sent = {"board": "arcade", "player": "alice", "score": 5}
            assert client.post("/v1/scores", json=sent, headers=headers).json()["rank"] == 1
        proof = other_node.stop(), nodes.command("b", "verify", "--json").returncode
        assert proof == (0, 0)


def test_scores_wait_for_a_leader_and_are_then_refused_and_count_once(
    tmp_path: Path, kafka_cluster: KafkaCluster
) -> None:
    """Two of three brokers are gone: the partitions they led take nothing, and no other broker may lead them."""
    needs_postgres()
    waiting = {"RANKD_LEDGER_KAFKA_WAIT_MS": str(WAIT_MS)}
    with nodes_installed(tmp_path, waiting, kafka_cluster.url) as nodes:
        serving = nodes.node("a")
        with serving.client(nodes.admin, timeout_s=ANSWER_S) as client:
            assert client.put("/v1/boards/arcade", json={"keep": "sum"}).status_code == 200
            assert _submit(client, "first").status_code == 202
            leader = kafka_cluster.leader(nodes.stores.kafka.ledger_topic, partition_of("alice", 8))
            gone = [leader, next(broker for broker in kafka_cluster.brokers if broker is not leader)]
            for broker in gone:
                broker.kill()

            began_s = monotonic()
            refused = _submit(client, "second")
            waited_s = monotonic() - began_s
            read = client.get("/v1/boards/arcade/players/alice")
            for broker in gone:
                broker.launch()
            wait_until(lambda: _submit(client, "second").status_code == 202)
            last = _submit(client, "second")
            where = {"at_least": last.json()["position"]}
            wait_until(lambda: client.get("/v1/boards/arcade/top", params=where).status_code == 200)
            ranked = client.get("/v1/boards/arcade/players/alice", params=where).json()

    assert (refused.status_code, refused.json()["code"]) == (503, "ledger_unavailable")
    assert int(refused.headers["Retry-After"]) > 0
    assert WAIT_MS / 1_000 - 0.5 < waited_s < WAIT_MS / 1_000 + 15
    assert (read.status_code, read.json()["score"]) == (200, 10)
    assert ranked["score"] == 20


def _submit(client: httpx.Client, key: str) -> httpx.Response:
    sent = {"board": "arcade", "player": "alice", "score": 10}
    return client.post("/v1/scores", json=sent, headers={"Idempotency-Key": key})


def test_a_leader_that_is_killed_is_replaced_and_nothing_is_refused(
    tmp_path: Path, kafka_cluster: KafkaCluster
) -> None:
    with running_pair(tmp_path, WAITING, kafka_cluster.url) as pair:
        pair.load.go_on_for()
        leader = kafka_cluster.leader(pair.nodes.stores.kafka.ledger_topic)
        leader.kill()
        pair.load.go_on_for()
        assert not pair.load.answers, "a score was refused"
        pair.finish()

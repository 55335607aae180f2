"""The command line on a configuration of nodes: what it does beside them, and what it refuses with a sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.servers.fixtures_postgres import needs_postgres

from rankd.node.shared_stores import SharedStores

from .scaled_serving import Nodes, nodes_installed
from .serving import STOP_S, free_port

PARTITIONS = 8
EVENTS = 100 + PARTITIONS  # the definition stands in each of them


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A ledger with scores, which a node has followed into its folder and written a checkpoint of."""
    needs_postgres()
    with nodes_installed(tmp_path_factory.mktemp("commands")) as running:
        serving = running.node("a")
        with serving.client(running.admin) as client:
            client.put("/v1/boards/arcade", json={"windows": ["all_time", "weekly"]})
            events = [{"board": "arcade", "player": f"p{number}", "score": number} for number in range(100)]
            assert client.post("/v1/scores/batch", json={"events": events}).status_code == 200
        assert serving.stop() == 0
        yield running


def test_verify_proves_what_a_node_has_in_its_folder(nodes: Nodes) -> None:
    done = nodes.command("a", "verify", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"events": EVENTS, "instances": 2, "entries": 200}


def test_rebuild_ranks_anew_from_the_ledger(nodes: Nodes) -> None:
    done = nodes.command("a", "rebuild", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"events": EVENTS, "instances": 2, "entries": 200, "differed": []}
    checkpoints = nodes.node_folder("a") / "checkpoints"
    assert len(list(checkpoints.iterdir())) == 1


def test_top_ranks_without_a_server(nodes: Nodes) -> None:
    done = nodes.command("new", "top", "arcade", "--limit", "1", "--json")  # in a folder that is not there yet
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["entries"][0]["player"] == "p99"


def test_project_is_refused_where_every_node_ranks(nodes: Nodes) -> None:
    done = nodes.command("a", "project")
    assert done.returncode != 0
    assert "every `rankd serve` ranks for itself" in " ".join(done.stderr.split())


def test_a_folder_is_one_nodes_alone(nodes: Nodes) -> None:
    serving = nodes.node("busy")
    second = nodes.start_node("busy", free_port())
    assert second.process.wait(STOP_S) != 0
    log = second.log.read_text()
    assert "ranks.folder" in log
    assert "a folder of its own" in log
    assert str(nodes.node_folder("busy")) in log

    for command in (["verify"], ["top", "arcade"]):
        done = nodes.command("busy", *command)
        assert done.returncode != 0
        assert f"in use by process {serving.process.pid}" in " ".join(done.stderr.split())


def test_a_node_on_a_database_that_is_not_migrated_says_so(nodes: Nodes) -> None:
    name = nodes.postgres.make_database()
    empty = nodes.start_node("early", RANKD_LEDGER_URL=nodes.postgres.url(name))
    assert empty.process.wait(STOP_S) != 0
    assert "run `rankd migrate`" in empty.log.read_text()


def test_a_checkpoint_of_another_ledger_is_passed_over(nodes: Nodes) -> None:
    url = nodes.postgres.url(nodes.postgres.make_database())
    SharedStores(url).migrate()
    done = nodes.run("boards", "list", "--json", RANKD_LEDGER_URL=url, RANKD_RANKS_FOLDER=str(nodes.node_folder("a")))
    assert done.returncode == 0, done.stderr
    assert "arcade" not in done.stdout
    assert "it is of another ledger" in done.stderr

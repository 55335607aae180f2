"""Nodes under load are killed, paused or cut off from PostgreSQL: nothing is lost or doubled, the others serve on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.servers.waiting import wait_until
from tests.simulation.extent import short_and_long

from rankd.domain.position import is_upto, parse_positions

from .node_pair import LEASE_MOVES_S, Pair, other, running_pair

KILLS, KILLS_LONG = 5, 100


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with running_pair(tmp_path) as made:
        yield made


@short_and_long
def test_nodes_are_killed_one_after_the_other_and_the_other_serves_on(pair: Pair, everything: bool) -> None:
    pair.kill_some(KILLS_LONG if everything else KILLS)
    pair.finish()


def test_a_node_that_was_paused_gives_up_the_lease_and_is_stale_until_it_has_caught_up(pair: Pair) -> None:
    paused = pair.holder
    awake = pair.by_name[other(paused)]
    pair.load.go_on_for()
    pair.load.use(awake)
    pair.by_name[paused].process.send_signal(signal.SIGSTOP)
    wait_until(lambda: pair.nodes.lease_holder() == awake.process.pid, LEASE_MOVES_S)
    pair.load.go_on_for()
    assert pair.refusals(other(paused)) == {}
    pair.load.pause()

    def has_caught_up() -> bool:
        page = client.get("/v1/boards/points/top").json()
        assert page["stale"] or is_upto(parse_positions(page["position"]), pair.load.upto), "it lacks what is old"
        return not page["stale"]

    pair.by_name[paused].process.send_signal(signal.SIGCONT)
    with pair.by_name[paused].client() as client:
        wait_until(has_caught_up)
    pair.load.resume()
    wait_until(lambda: "has lost the lease" in pair.by_name[paused].log.read_text())
    pair.load.use(*pair.by_name.values())
    assert pair.nodes.lease_holder() == awake.process.pid
    pair.finish()


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_postgres_goes_away_and_reads_go_on_as_stale(how: str, pair: Pair) -> None:
    pair.load.go_on_for()
    pair.load.pause()
    (pair.nodes.postgres.stop if how == "stopped" else pair.nodes.postgres.kill)()
    try:
        for serving in pair.by_name.values():
            with serving.client(pair.nodes.admin) as client:
                wait_until(lambda client=client: client.get("/v1/boards/points/top").json()["stale"])  # type: ignore[misc]
                read = client.get("/v1/boards/points/players/p00")
                refused = client.post("/v1/scores", json={"board": "points", "player": "p00", "score": 1})
                unknown = client.get("/v1/boards/unheard-of/top")
                assert (read.status_code, read.json()["stale"]) == (200, True)
                assert refused.status_code == httpx.codes.SERVICE_UNAVAILABLE
                assert refused.json()["code"] == "ledger_unavailable"
                assert unknown.status_code == httpx.codes.SERVICE_UNAVAILABLE
    finally:
        pair.nodes.postgres.start()
    for serving in pair.by_name.values():
        with serving.client() as client:
            wait_until(lambda client=client: not client.get("/v1/boards/points/top").json()["stale"])  # type: ignore[misc]
    pair.load.resume()
    assert pair.holder in pair.by_name
    pair.finish()


def test_a_node_is_ready_when_it_has_caught_up_from_its_checkpoint(pair: Pair) -> None:
    pair.load.go_on_for()
    pair.load.use(pair.by_name["b"])
    assert pair.by_name["a"].stop() == 0  # with a checkpoint
    pair.load.go_on_for()
    pair.load.pause()
    started = pair.start("a")
    with started.client() as client:
        position = client.get("/readyz").json()["position"]
    assert is_upto(parse_positions(position), pair.load.upto)
    assert "checkpoint of event" in started.log.read_text()
    pair.load.resume()
    pair.load.use(*pair.by_name.values())
    pair.finish()

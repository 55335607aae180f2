"""Kafka is away while scores come; and relays beside servers, with their figures."""

from __future__ import annotations

import logging
import threading
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.kafka import KafkaBroker
from tests.servers.waiting import wait_until
from tests.simulation.extent import short_and_long

from rankd.boards import Boards
from rankd.config.model import Config, LedgerConfig
from rankd.node.installation import installation_of
from rankd.outbox import session

from .relaying import PARTITIONS, Outbox, RelayProcesses, once, wait_relayed
from .scaled_serving import installed
from .serving import STOP_S, free_port, serving

BATCH, BATCHES = 1_000, 60  # beyond what a relay has in flight

AWAY_S = 600.0  # in the long variant


def submit(boards: Boards, batches: int, first: int = 0) -> None:
    """Submit each player's scores in ascending order."""
    for number in range(first, first + batches):
        scores = [number] * BATCH
        boards.submit_many("tally", players=[f"p{player}" for player in range(BATCH)], scores=scores)


@pytest.mark.timeout(1_200)
@short_and_long
def test_brokers_that_go_away_hold_nothing_up_and_get_everything_in_order(
    tmp_path: Path,
    own_kafka: KafkaBroker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    everything: bool,
) -> None:
    monkeypatch.setattr(session, "UNCONFIRMED_S_MAX", 0.5)
    caplog.set_level(logging.INFO, "rankd")
    outbox = Outbox(own_kafka)
    installation = installation_of(Config(ledger=LedgerConfig(url=f"sqlite:{tmp_path / 'data'}")))
    with installation.open_boards() as boards:
        boards.define("tally", keep="latest")
        with outbox.relayed(installation, boards) as relay:
            submit(boards, 1)
            wait_relayed(relay, BATCH + 1)
            own_kafka.kill()
            pause, lags = threading.Event(), []
            for number in range(1, BATCHES + 1):  # acknowledged meanwhile
                submit(boards, 1, number)
                lags.append(relay.lag() or 0)
                pause.wait(AWAY_S / BATCHES if everything else 0.0)
            assert lags == sorted(lags)
            wait_until(lambda: (relay.lag() or 0) > BATCH * BATCHES // 2)
            wait_until(lambda: "does not confirm" in caplog.text)
            own_kafka.start()
            wait_relayed(relay, BATCH * (BATCHES + 1) + 1)

    logged = [record.message for record in caplog.records if "the relay" in record.message]
    assert logged[-1] == "the relay goes on"
    assert all(first != second for first, second in pairwise(logged))  # a reason is logged once
    scores: dict[str | None, list[int]] = {}
    for event in once(outbox.events()):
        if event.key is not None:
            scores.setdefault(event.key, []).append(event.value["score"])
    assert set(map(tuple, scores.values())) == {tuple(range(BATCHES + 1))}
    assert len(scores) == BATCH


def test_a_relay_says_how_much_waits_for_brokers_that_were_never_there(tmp_path: Path, own_kafka: KafkaBroker) -> None:
    outbox, data = Outbox(own_kafka), tmp_path / "data"
    installation = installation_of(Config(ledger=LedgerConfig(url=f"sqlite:{data}")))
    with installation.open_boards() as boards:
        boards.define("tally", keep="latest")
        with outbox.relayed(installation, boards) as relay:
            submit(boards, 1)
            wait_relayed(relay, BATCH + 1)
        submit(boards, 2, 1)
    own_kafka.kill()
    address = f"127.0.0.1:{free_port()}"
    processes = RelayProcesses(outbox, tmp_path, f"sqlite:{data}")
    with processes.running(RANKD_OUTBOX_LISTEN=address) as process, httpx.Client(base_url=f"http://{address}") as probe:
        wait_until(lambda: f"rankd_relay_lag_events {2.0 * BATCH}" in probe.get("/metrics").text)
        waiting = probe.get("/readyz")
        assert (waiting.status_code, waiting.json()["role"]) == (503, "active")
        assert probe.get("/healthz").status_code == 200

        own_kafka.start()
        wait_until(lambda: "rankd_relay_lag_events 0.0" in probe.get("/metrics").text)
        assert f"rankd_relayed_events_total {2.0 * BATCH}" in probe.get("/metrics").text
        assert probe.get("/readyz").json() == {"status": "ready", "role": "active"}
        process.terminate()
        assert process.wait(STOP_S) == 0
    assert len(once(outbox.events())) == 3 * BATCH + PARTITIONS


def test_a_server_relays_beside_its_other_work_and_shows_how_far_it_is(tmp_path: Path, kafka: KafkaBroker) -> None:
    outbox = Outbox(kafka)
    lines = [f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}" for name, value in outbox.options]
    config = "\n".join(["[outbox]", *lines, '[boards.tally]\nkeep = "sum"\n'])
    with serving(tmp_path / "data", config=config) as server, server.client(server.admin_key) as admin:
        for number in range(20):
            scored = admin.post("/v1/scores", json={"board": "tally", "player": "ann", "score": number})
            assert scored.status_code == 200
        wait_until(lambda: "rankd_relayed_events_total 21.0" in admin.get("/metrics").text)
        assert "rankd_relay_lag_events 0.0" in admin.get("/metrics").text
        assert server.stop() == 0

    assert [event.value["score"] for event in outbox.events() if event.key == "ann"] == list(range(20))
    top = outbox.newest_tops()["tally@all_time@global"]
    assert top is not None
    assert top["entries"][0]["score"] == 190


def test_a_server_with_its_ranks_in_redis_relays_and_notifies(tmp_path: Path, kafka: KafkaBroker) -> None:
    needs_postgres()
    outbox = Outbox(kafka)
    with installed(tmp_path, outbox.variables) as installation:
        installation.project()
        server = installation.serve()
        with server.client(installation.admin) as admin:
            assert admin.put("/v1/boards/tally", json={"keep": "best"}).status_code in (200, 201)
            for player, score in (("ann", 3), ("bob", 4)):
                admin.post("/v1/scores", json={"board": "tally", "player": player, "score": score})
            wait_until(lambda: "rankd_relay_lag_events" in admin.get("/metrics").text)
            wait_until(lambda: players(outbox) == ["bob", "ann"])

    assert {event.key for event in outbox.events()} == {None, "ann", "bob"}


def players(outbox: Outbox) -> list[str]:
    """Return the players of the newest notification of the board."""
    top = outbox.newest_tops().get("tally@all_time@global")
    return [] if top is None else [entry["player"] for entry in top["entries"]]

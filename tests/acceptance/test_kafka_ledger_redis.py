"""A Kafka ledger with ranks in Redis: servers that hold nothing, and projectors that rank the log."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.fixtures_redis import needs_redis
from tests.servers.kafka import KafkaBroker
from tests.servers.waiting import wait_until

from .scaled_serving import Installation, installed

WAIT = {"Prefer": "wait=10"}
READY_S = 60.0


@pytest.fixture
def installation(tmp_path: Path, kafka: KafkaBroker) -> Iterator[Installation]:
    needs_postgres()
    needs_redis()
    waiting = {"RANKD_RANKS_AT_LEAST_WAIT_MS": "20000"}
    with installed(tmp_path, waiting, kafka.url) as running:
        yield running


def is_ranked(client: httpx.Client, board: str) -> bool:
    return client.get(f"/v1/boards/{board}/top").status_code == 200


def submit(client: httpx.Client, player: str, score: int, key: str = "") -> dict[str, Any]:
    headers = {**WAIT, "Idempotency-Key": key} if key else WAIT
    sent = {"board": "arcade", "player": player, "score": score, "attributes": {"clan": "red"}}
    answer = client.post("/v1/scores", json=sent, headers=headers)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_scores_are_ranked_by_projectors_that_are_killed_verified_and_rebuilt(installation: Installation) -> None:
    first, _ = installation.project("a"), installation.project("b")
    serving = installation.serve()
    with serving.client(installation.admin, timeout_s=READY_S) as client:
        for board, definition in {
            "clans": {"team": {"attribute": "clan", "by": "sum"}, "keep": "sum"},
            "arcade": {"keep": "sum", "windows": ["all_time", "weekly"], "feeds": ["clans"]},
        }.items():
            assert client.put(f"/v1/boards/{board}", json=definition).status_code == 200
            wait_until(partial(is_ranked, client, board), READY_S)
        assert submit(client, "alice", 10)["rank"] == 1
        assert submit(client, "bob", 20)["rank"] == 1
        for _ in range(2):
            answer = submit(client, "alice", 15, key="match-1")
        assert (answer["rank"], answer["score"]) == (1, 25)

        first.send_signal(signal.SIGKILL)
        first.wait(READY_S)
        after = submit(client, "bob", 30)
        assert (after["rank"], after["score"]) == (1, 50)
        where = {"at_least": after["position"]}
        page = client.get("/v1/boards/clans/top", params=where).json()
        assert [(entry["player"], entry["score"]) for entry in page["entries"]] == [("red", 75)]

        assert client.get("/v1/boards/arcade/players/bob/events").status_code == 422
        for command in ("verify", "rebuild", "verify"):
            done = installation.run(command, "--json")
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["entries"] == 5

        with installation.redis.client() as redis:  # what was lost is there again
            redis.flushall()
        wait_until(lambda: client.get("/v1/boards/arcade/players/bob", params=where).status_code == 200)
        assert submit(client, "carol", 1)["rank"] == 3

"""A part of a scaled-out installation is away: what does not need it goes on, and no answer names the host."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.fixtures_redis import needs_redis
from tests.servers.waiting import wait_until
from tests.timing import BUSY_MACHINE

from .scaled_serving import installed

HANGING_WAIT_S = 8.0 * BUSY_MACHINE
READS = 20
HOSTS = ("127.0.0.1", "localhost", "Error ", "connection to server")


@pytest.fixture(autouse=True)
def _servers() -> None:
    needs_postgres()
    needs_redis()


def test_a_server_starts_while_redis_is_away_and_finds_it_when_it_comes(tmp_path: Path) -> None:
    with installed(tmp_path) as installation:
        installation.redis.stop()
        serving = installation.serve()
        with serving.client(installation.admin, timeout_s=HANGING_WAIT_S) as client:
            assert client.put("/v1/boards/arcade", json={}).status_code == 200
            score = {"board": "arcade", "player": "alice", "score": 976}
            assert client.post("/v1/scores", json=score).status_code == 202
            refused = client.get("/v1/boards/arcade/players/alice/around")
            assert (refused.status_code, refused.json()["code"]) == (503, "ranks_unavailable")
            assert not [host for host in HOSTS if host in refused.text], refused.text

            installation.redis.start()
            installation.project()

            def is_ranked() -> bool:
                answer = client.get("/v1/boards/arcade/players/alice/around")
                return answer.status_code == 200 and answer.json()["player"]["rank"] == 1

            wait_until(is_ranked)


@pytest.mark.parametrize("how", ["hangs", "is stopped"])
def test_ranks_of_boards_with_metadata_are_read_while_postgres(how: str, tmp_path: Path) -> None:
    with installed(tmp_path) as installation:
        installation.project()
        serving, postgres = installation.serve(), installation.postgres
        with serving.client(installation.admin, timeout_s=HANGING_WAIT_S) as client:
            assert client.put("/v1/boards/arcade", json={}).status_code == 200
            # A score for a board that Redis does not have yet is accepted: nobody knows what was kept before.
            wait_until(lambda: client.get("/v1/boards/arcade/top").status_code == 200)
            score = {"board": "arcade", "player": "alice", "score": 976, "metadata": {"replay": "r-17"}}
            ranked = client.post("/v1/scores", json=score, headers={"Prefer": "wait=10"})
            assert ranked.status_code == 200, ranked.text
            (postgres.pause if how == "hangs" else postgres.stop)()
            try:
                began = time.monotonic()
                for _ in range(READS):
                    for path in ("top", "players/alice/around", "players/alice"):
                        answer = client.get(f"/v1/boards/arcade/{path}")
                        assert answer.status_code == 200, answer.text
                assert answer.json()["rank"] == 1
                assert answer.json().get("metadata") is None
                assert time.monotonic() - began < HANGING_WAIT_S
                refused = client.post("/v1/scores", json=score) if how == "is stopped" else None
            finally:
                (postgres.resume if how == "hangs" else postgres.start)()
            if refused is not None:
                assert (refused.status_code, refused.json()["code"]) == (503, "ledger_unavailable")
                assert not [host for host in HOSTS if host in refused.text], refused.text
            wait_until(
                lambda: client.get("/v1/boards/arcade/players/alice").json().get("metadata") == {"replay": "r-17"}
            )

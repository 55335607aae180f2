"""Redis comes back with less than it had: nothing of that is shown as fresh before it has all of it again."""

from __future__ import annotations

import shutil
import signal
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.fixtures_redis import needs_redis
from tests.servers.waiting import wait_until

from rankd.clock import SystemClock
from rankd.domain.instance import InstanceKey
from rankd.domain.position import is_upto
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.redis.connection.client import connect
from rankd.redis.read.rank_source import Heartbeat, Layout, RedisRankSource

from .scaled_serving import Installation, installed

# So that the projector's heartbeat, which stops with it, says nothing within the time that a test takes.
PATIENT = {"RANKD_SERVER_STALE_AFTER_MS": "600000", "RANKD_RANKS_CACHE_MS": "0"}
LOG = "appendonlydir"
READS = (
    "/v1/boards/arcade/players/alice",
    "/v1/boards/arcade/players/alice/around",
    "/v1/boards/arcade/players/late",
    "/v1/boards/arcade/players/late/around",
    "/v1/boards/arcade/top",
    "/v1/boards/arcade/scores/7",
    "/v1/boards/arcade/distribution",
)


@pytest.fixture(autouse=True)
def _servers() -> None:
    needs_postgres()
    needs_redis()


def submit(client: httpx.Client, player: str, score: int) -> None:
    sent = {"board": "arcade", "player": player, "score": score}
    answer = client.post("/v1/scores", json=sent, headers={"Prefer": "wait=10"})
    assert answer.status_code == 200, answer.text


def start_from_older_log(installation: Installation, kept: Path) -> None:
    """Kill Redis, and start it from what its log was earlier."""
    redis = installation.redis
    redis.kill()
    shutil.rmtree(redis.folder / LOG)
    shutil.copytree(kept, redis.folder / LOG)
    redis.start()


@pytest.mark.parametrize("shards", [1, 3])
def test_what_redis_has_lost_is_stale_until_it_is_there_again(shards: int, tmp_path: Path) -> None:
    with installed(tmp_path, PATIENT) as installation:
        projector, serving = installation.project(), installation.serve()
        with serving.client(installation.admin, timeout_s=15) as client:
            assert client.put("/v1/boards/arcade", json={"shards": shards}).status_code == 200
            wait_until(lambda: client.get("/v1/boards/arcade/top").status_code == 200)
            submit(client, "alice", 5)
            kept = tmp_path / "kept"
            shutil.copytree(installation.redis.folder / LOG, kept)
            submit(client, "alice", 9)
            submit(client, "late", 8)
            wait_until(lambda: client.get(READS[0]).json()["stale"] is False)
            for path in READS:
                answer = client.get(path)
                assert (answer.status_code, answer.json()["stale"]) == (200, False), answer.text

            projector.send_signal(signal.SIGSTOP)  # or it would be there again before anybody looks
            start_from_older_log(installation, kept)
            # Before Redis is asked again, PostgreSQL answers, which has lost nothing.
            wait_until(lambda: client.get(READS[0]).json().get("score") == 5)
            for path in READS:
                answer = client.get(path)
                assert answer.status_code == (404 if "late" in path else 200), answer.text
                assert answer.json()["stale"] is True, answer.text
                assert answer.json()["position"], answer.text
                assert answer.json()["as_of"] > 0, answer.text

            projector.send_signal(signal.SIGCONT)

            def is_whole() -> bool:
                answers = [client.get(path).json() for path in READS]
                assert all(answer.get("score") != 5 or answer["stale"] for answer in answers)
                return all(answer.get("stale") is False for answer in answers)

            wait_until(is_whole)
            assert client.get(READS[0]).json()["score"] == 9
            assert client.get(READS[2]).json()["score"] == 8


def test_what_redis_has_lost_is_stale_for_who_never_read_it(tmp_path: Path) -> None:
    with installed(tmp_path, PATIENT) as installation, ExitStack() as opened:
        projector, serving = installation.project(), installation.serve()
        client = opened.enter_context(serving.client(installation.admin, timeout_s=15))
        assert client.put("/v1/boards/arcade", json={}).status_code == 200
        assert client.put("/v1/boards/idle", json={}).status_code == 200
        wait_until(lambda: client.get("/v1/boards/arcade/top").status_code == 200)
        submit(client, "alice", 5)
        kept = tmp_path / "kept"
        shutil.copytree(installation.redis.folder / LOG, kept)
        submit(client, "alice", 9)

        redis = connect(installation.redis.url)
        opened.callback(redis.close)
        heartbeat = Heartbeat(redis, 600_000, SystemClock().now)
        opened.callback(heartbeat.close)
        reads = RedisRankSource(redis, Layout(dict), heartbeat)
        ledger = PostgresLedger(installation.ledger_url)
        opened.callback(ledger.close)
        wait_until(lambda: is_upto(heartbeat.floor, dict(enumerate(ledger.heads().sequences))))

        projector.send_signal(signal.SIGSTOP)
        start_from_older_log(installation, kept)
        alltime = InstanceKey("arcade")

        def read() -> tuple[int | None, bool]:
            session = reads.open(alltime)
            kept = session.score(alltime, "alice")
            return None if kept is None else kept.score, session.is_stale

        assert read() == (5, True)
        projector.send_signal(signal.SIGCONT)
        wait_until(lambda: read() == (9, False))


def test_who_is_absent_while_nobody_ranks_may_have_scored(tmp_path: Path) -> None:
    with installed(tmp_path, {"RANKD_RANKS_CACHE_MS": "0"}) as installation:
        projector, serving = installation.project(), installation.serve()
        with serving.client(installation.admin, timeout_s=15) as client:
            assert client.put("/v1/boards/arcade", json={}).status_code == 200
            wait_until(lambda: client.get("/v1/boards/arcade/top").status_code == 200)
            submit(client, "alice", 5)
            wait_until(lambda: client.get("/v1/boards/arcade/players/bob").json()["stale"] is False)
            fresh = client.get("/v1/boards/arcade/players/bob")
            assert (fresh.status_code, fresh.json()["code"]) == (404, "player_absent")

            projector.send_signal(signal.SIGSTOP)
            sent = client.post("/v1/scores", json={"board": "arcade", "player": "bob", "score": 7})
            assert sent.status_code == 202, sent.text
            wait_until(lambda: client.get("/v1/boards/arcade/players/bob").json()["stale"])
            for path in ("/v1/boards/arcade/players/bob", "/v1/boards/arcade/players/bob/around"):
                absent = client.get(path)
                assert (absent.status_code, absent.json()["code"]) == (404, "player_absent")
                assert (absent.json()["position"], absent.json()["stale"]) == (fresh.json()["position"], True)
            projector.send_signal(signal.SIGCONT)
            wait_until(lambda: client.get("/v1/boards/arcade/players/bob").status_code == 200)

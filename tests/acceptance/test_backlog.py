"""Ranks that fall behind the ledger: scores are refused beyond `limits.lag_max_ms`, and accepted again afterwards."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.fixtures_redis import needs_redis
from tests.servers.waiting import wait_until

from rankd.clock import SystemClock
from rankd.ledger.backlog import HOLD_MS_MAX
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.redis.connection.client import connect
from rankd.redis.heartbeat import read_beat
from rankd.registry.credentials import Scope
from rankd.registry.sqlite.credentials import SqliteCredentials

from .keyed_load import BOARDS, KeyedLoad
from .scaled_serving import Installation, Nodes, installed, nodes_installed
from .serving import Serving, free_port
from .slow_rebuild import HELD
from .workers_serving import WRITER, Workers, running_workers

LAG_MAX_MS, STALE_AFTER_MS = 1_500, 3_000
SETTINGS = {
    "RANKD_LIMITS_LAG_MAX_MS": str(LAG_MAX_MS),
    "RANKD_SERVER_STALE_AFTER_MS": str(STALE_AFTER_MS),
    "RANKD_RANKS_AT_LEAST_WAIT_MS": "50",
}
SEED = 5
LAG = re.compile(r"^rankd_lag_seconds (\S+)$", re.M)
REFUSALS = re.compile(r'^rankd_rate_refusals_total\{limit="lag_max_ms"\} (\S+)$', re.M)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    needs_postgres()
    with nodes_installed(tmp_path, SETTINGS) as running:
        yield running


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    needs_postgres()
    needs_redis()
    with installed(tmp_path, SETTINGS) as running:
        yield running


def submit(client: httpx.Client) -> httpx.Response:
    return client.post("/v1/scores", json={"board": "arcade", "player": "alice", "score": 7})


def is_stale(client: httpx.Client) -> bool:
    return bool(client.get("/v1/boards/arcade/top").json()["stale"])


def figure(client: httpx.Client, pattern: re.Pattern[str]) -> float:
    match = pattern.search(client.get("/metrics").text)
    assert match is not None
    return float(match[1])


def has_beaten(installation: Installation) -> bool:
    """Return whether the newest heartbeat says that the whole ledger is ranked."""
    with closing(PostgresLedger(installation.ledger_url)) as ledger, closing(connect(installation.redis.url)) as client:
        beat = read_beat(client)
        return beat is not None and beat.positions == ledger.heads().sequences


def refuse_and_recover(held: httpx.Client, writer: httpx.Client, serving: Serving) -> Iterator[None]:
    """Check the server whose ranks lag, up to and after the step in which they are let go."""

    def is_refused() -> bool:
        submit(writer)
        answer = submit(held)
        if answer.status_code in (200, 202):
            return False
        assert (answer.status_code, answer.json()["code"]) == (429, "behind"), answer.text
        assert int(answer.headers["Retry-After"]) >= 1
        return True

    assert submit(held).status_code == 202  # ranks may be a little behind
    wait_until(is_refused)
    batch = {"events": [{"board": "arcade", "player": "bob", "score": 1}]}
    assert held.post("/v1/scores/batch", json=batch).status_code == 429
    assert figure(held, LAG) > LAG_MAX_MS / 1_000
    assert figure(held, REFUSALS) >= 1
    wait_until(lambda: is_stale(held))
    wait_until(lambda: "behind the ledger: new scores are refused" in serving.log.read_text())
    yield
    wait_until(lambda: submit(held).status_code in (200, 202))
    wait_until(lambda: not is_stale(held) and figure(held, LAG) < LAG_MAX_MS / 2_000)
    wait_until(lambda: "within limits.lag_max_ms of the ledger again" in serving.log.read_text())


def test_a_node_that_is_held_back_refuses_scores_until_it_has_caught_up(nodes: Nodes, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    a = nodes.start_node("a", program="tests.acceptance.held_back", HELD_BACK_FILE=str(hold))
    b = nodes.node("b")
    a.wait_until_ready()
    with a.client(nodes.admin) as held, b.client(nodes.admin) as other:
        assert other.put("/v1/boards/arcade", json={}).status_code == 200
        wait_until(lambda: submit(held).status_code == 200)
        hold.touch()
        wait_until(lambda: is_stale(held))  # it was held back for longer than the limit, and nothing was appended
        steps = refuse_and_recover(held, other, a)
        next(steps)
        assert submit(other).status_code == 200  # the other node does not lag
        hold.unlink()
        next(steps, None)
        assert submit(held).status_code == 200


@pytest.mark.parametrize("encoding", ["identity", "gzip, identity;q=0"])
def test_a_replica_that_lags_refuses_the_sender_of_batches_and_not_the_one_of_single_scores(
    tmp_path: Path, encoding: str
) -> None:
    stated = tmp_path / "lag"
    stated.write_text("0")
    limits = "[limits]\nlag_max_ms = 10000\n"
    program, environment = "tests.acceptance.stated_lag", {"STATED_LAG_FILE": str(stated)}
    with running_workers(tmp_path / "data", config=limits, program=program, environment=environment) as workers:
        keys = [made_key(workers, name) for name in ("large", "small")]
        with workers.admin(WRITER) as admin:
            assert admin.put("/v1/boards/arcade", json={"keep": "sum"}).status_code == 200
        with workers.only(1, keys[0]) as large, workers.only(1, keys[1]) as small:
            large.headers["Accept-Encoding"] = encoding
            batch = {"events": [{"board": "arcade", "player": f"p{number}", "score": 1} for number in range(100)]}
            stated.write_text("7600")  # above three quarters: large senders are refused
            assert submit(small).status_code == 200
            assert large.post("/v1/scores/batch", json=batch).status_code == 200  # its size is not known before
            refused = [large.post("/v1/scores/batch", json=batch) for _ in range(3)]
            assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [(429, "behind")] * 3
            assert submit(large).status_code == 429
            assert [submit(small).status_code for _ in range(3)] == [200] * 3
            assert small.get("/v1/boards/arcade/top").json()["total"] == 101
            stated.write_text("0")
            assert large.post("/v1/scores/batch", json=batch).status_code == 200


def made_key(workers: Workers, name: str) -> str:
    """Make a credential that may send scores, and that every worker knows."""
    with SqliteCredentials(workers.serving.folder, SystemClock()) as credentials:
        _, key = credentials.create(name, [Scope.SCORES_WRITE])
    for number in range(workers.count):
        with workers.only(number, key) as client:
            assert client.get("/v1/boards").status_code == 200
    return key


def test_scores_are_refused_while_the_projector_is_paused_for_long(installation: Installation) -> None:
    projector = installation.project()
    serving = installation.serve()
    with serving.client(installation.admin) as client:
        assert client.put("/v1/boards/arcade", json={}).status_code == 200
        wait_until(lambda: client.get("/v1/boards/arcade/top").status_code == 200 and not is_stale(client))
        wait_until(lambda: has_beaten(installation))
        projector.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_stale(client))  # it was paused for longer than the limit, and nothing was appended
        steps = refuse_and_recover(client, client, serving)
        next(steps)
        projector.send_signal(signal.SIGCONT)
        next(steps, None)


def test_without_a_limit_the_backlog_grows(installation: Installation) -> None:
    serving = installation.serve(RANKD_LIMITS_LAG_MAX_MS="0")
    with serving.client(installation.admin) as client:
        assert client.put("/v1/boards/arcade", json={}).status_code == 200
        wait_until(lambda: submit(client).status_code == 202 and figure(client, LAG) > 2 * LAG_MAX_MS / 1_000)
        assert submit(client).status_code == 202


def test_scores_are_refused_for_the_moment_that_a_rebuild_asks_for(installation: Installation) -> None:
    serving = installation.serve()
    with serving.client(installation.admin) as client, closing(PostgresLedger(installation.ledger_url)) as ledger:
        assert client.put("/v1/boards/arcade", json={}).status_code == 200
        assert submit(client).status_code == 202
        assert ledger.backlog.hold(HOLD_MS_MAX, 0)
        wait_until(lambda: submit(client).status_code == 429)
        assert "rebuilt" in submit(client).json()["detail"]
        assert client.post("/v1/boards/arcade/reset").status_code == 429
        assert client.delete("/v1/boards/arcade/players/alice").status_code == 429
        assert client.put("/v1/boards/arcade", json={"open": False}).status_code == 200  # how an operator ends a flood
        ledger.backlog.release()
        wait_until(lambda: client.put("/v1/boards/arcade", json={}).status_code == 200)
        wait_until(lambda: submit(client).status_code == 202)


def test_a_node_that_starts_slower_than_the_load_is_ready_in_time(nodes: Nodes) -> None:
    """Nobody pauses the load; the node that starts has it slowed down."""
    first = nodes.node("a")
    with first.client(nodes.admin) as client:
        for board, definition in BOARDS.items():
            assert client.put(f"/v1/boards/{board}", json=definition).status_code == 200
    with closing(KeyedLoad([first], nodes.admin, SEED)) as load:
        load.go_on_for()
        slow = nodes.start_node("b", program="tests.acceptance.slow_node")
        slow.wait_until_ready()
        assert load.answers["429 behind"]
        load.go_on_for()
        load.check(first, slow)


def test_a_rebuild_and_a_verification_end_under_load(installation: Installation) -> None:
    """Nobody pauses the load; the rebuild is slower than it, and asks for a moment without writes."""
    installation.project()
    serving = [installation.start_serving(free_port()) for _ in range(2)]
    for server in serving:
        server.wait_until_ready()
    with serving[0].client(installation.admin) as client:
        for board, definition in BOARDS.items():
            assert client.put(f"/v1/boards/{board}", json=definition).status_code == 200
    with closing(KeyedLoad(serving, installation.admin, SEED)) as load:
        load.go_on_for()
        rebuilt = installation.run("rebuild", "--json", program="tests.acceptance.slow_rebuild")
        assert rebuilt.returncode == 0, rebuilt.stderr
        assert HELD in rebuilt.stderr
        assert load.answers["429 behind"]
        load.go_on_for()
        verified = installation.run("verify", "--json")
        assert verified.returncode == 0, verified.stderr
        load.go_on_for()
        load.check(*serving)

"""An upgrade under load: nodes of two versions side by side, one after the other exchanged, and back again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.fixtures_redis import needs_redis
from tests.servers.waiting import wait_until

import rankd
from rankd.cli.exits import ExitCode
from rankd.ledger.event import PAYLOAD_VERSION, PAYLOAD_WRITTEN
from rankd.ledger.postgres.ledger import known_scripts
from rankd.ledger.postgres.migrations import scripts_of
from rankd.projection.checkpoints import FORMAT
from rankd.redis.connection.library import LIBRARY_VERSION
from rankd.redis.keys import LAYOUT_VERSION

from .keyed_load import BOARDS, UNAVAILABLE, KeyedLoad
from .other_version import PACKAGE_VERSION, make_version
from .scaled_serving import Installation, installed, nodes_installed
from .serving import STOP_S, Serving

pytestmark = pytest.mark.timeout(300)  # many processes that start, one after the other
SEED = int(os.environ.get("RANKD_SEED", "20"))
SCHEMA = len(known_scripts())
REGISTRY_SCHEMA = len(scripts_of("rankd.registry.postgres"))
BEYOND = PAYLOAD_VERSION + 1 - PAYLOAD_WRITTEN  # how far a version writes ahead that we cannot read


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    needs_postgres()
    needs_redis()
    with installed(tmp_path) as running:
        yield running


def log_of(installation: Installation, projector: str) -> str:
    return (installation.folder / f"project-{projector}.log").read_text()


def wait_until_logged(installation: Installation, projector: str, words: str) -> None:
    log = installation.folder / f"project-{projector}.log"
    wait_until(lambda: log.exists() and words in log.read_text())


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(STOP_S) == 0


def define(installation: Installation, serving: Serving, board: str, **definition: object) -> None:
    with serving.client(installation.admin) as client:
        answer = client.put(f"/v1/boards/{board}", json=definition)
        assert answer.status_code == 200, answer.text


def versions_in(migrated: str) -> tuple[int, int]:
    """What `migrate --json` found, and what it left."""
    report = json.loads(migrated)
    return report["version_before"], report["version"]


def version_of(serving: Serving) -> str:
    with serving.client() as client:
        return str(client.get("/healthz").json()["version"])


def test_an_upgrade_and_the_way_back_lose_nothing_and_count_nothing_twice(installation: Installation) -> None:
    newer = make_version(installation.folder / "newer", functions=1, payload_known=1, saved=1, scripts=1)
    first = installation.project("first")
    old = installation.serve()
    for board, definition in BOARDS.items():
        define(installation, old, board, **definition)
    load = KeyedLoad([old], installation.admin, SEED)
    try:
        load.go_on_for()

        migrated = installation.run("migrate", "--json", **newer)
        assert migrated.returncode == 0, migrated.stderr
        assert versions_in(migrated.stdout) == (SCHEMA, SCHEMA + 1)
        again = installation.run("migrate", "--json")
        assert versions_in(again.stdout) == (SCHEMA + 1, SCHEMA + 1)
        load.check(old)

        new = installation.serve(**newer)
        assert (version_of(old), version_of(new)) == (rankd.__version__, PACKAGE_VERSION)
        load.use(old, new)
        load.go_on_for()
        load.check(old, new)
        define(installation, new, "of-the-new", keep="best", windows=["daily"])
        define(installation, old, "of-the-old", keep="latest")
        for server in (old, new):
            with server.client(installation.admin) as client:
                for board in ("of-the-new", "of-the-old"):
                    score = {"board": board, "player": server.url, "score": 1}
                    assert client.post("/v1/scores", json=score).status_code in (200, 202)

        second = installation.project("second", **newer)
        wait_until_logged(installation, "second", "following the ledger")
        load.go_on_for()
        stop(first)
        wait_until_logged(installation, "second", "ranking, epoch")
        load.go_on_for()
        load.check(old, new)

        third = installation.project("third")
        wait_until_logged(installation, "third", "following the ledger")
        stop(second)
        wait_until_logged(installation, "third", "ranking, epoch")
        load.go_on_for()
        load.check(old, new)

        stop(third)
        installation.project("second")  # of the old version, where one of the new version has left its checkpoint
        wait_until_logged(installation, "second", f"has version {FORMAT + 1}: upgrade rankd to read it")
        load.go_on_for()
        load.check(old, new)

        load.use(new)
        assert old.stop() == 0
        load.go_on_for()
        back = installation.serve()
        load.use(new, back)
        load.go_on_for()
        load.check(new, back)
        for version in ({}, newer):
            verified = installation.run("verify", **version)
            assert verified.returncode == 0, verified.stderr
    finally:
        load.close()
    assert load.repeats > 0 < load.reads
    assert all(answer.startswith(str(UNAVAILABLE)) and "newer" not in answer for answer in load.answers), load.answers


def submit(installation: Installation, serving: Serving, board: str, player: str, score: int) -> httpx.Response:
    with serving.client(installation.admin) as client:
        return client.post("/v1/scores", json={"board": board, "player": player, "score": score})


def rank_of(serving: Serving, board: str, player: str, at_least: str) -> int | None:
    """The rank as of a position; None while nobody has ranked that far."""
    with serving.client() as client:
        answer = client.get(f"/v1/boards/{board}/players/{player}", params={"at_least": at_least})
    return int(answer.json()["rank"]) if answer.status_code == httpx.codes.OK else None


def wait_until_ranked(serving: Serving, board: str, player: str, at_least: str) -> None:
    wait_until(lambda: rank_of(serving, board, player, at_least) is not None)


def ends_refused(process: subprocess.Popen[bytes]) -> bool:
    return process.wait(STOP_S) == ExitCode.DAMAGED


def test_a_schema_too_far_ahead_is_refused_by_every_command(installation: Installation) -> None:
    newest = make_version(installation.folder / "newest", functions=2, payload_known=2, scripts=2)
    assert installation.run("migrate", **newest).returncode == 0

    for command in (("serve",), ("project",), ("migrate",), ("verify",), ("rebuild",), ("token", "list")):
        ended = installation.run(*command)
        assert ended.returncode == ExitCode.DAMAGED, (command, ended.stderr)
        known = REGISTRY_SCHEMA if command[0] == "token" else SCHEMA
        refusal = f"has version {known + 2}, and this rankd knows versions up to {known}: upgrade rankd"
        assert refusal in ended.stderr + ended.stdout

    serving = installation.serve(**newest)
    installation.project(**newest)
    define(installation, serving, "arcade")
    wait_until_ranked(
        serving, "arcade", "alice", submit(installation, serving, "arcade", "alice", 1).json()["position"]
    )


def test_events_of_a_newer_version_stop_whoever_has_to_rank_them(installation: Installation) -> None:
    newer = make_version(installation.folder / "newer", payload_known=1, payload_written=BEYOND)
    ranking, old, new = installation.project("old"), installation.serve(), installation.serve(**newer)
    define(installation, old, "arcade")
    before = submit(installation, old, "arcade", "alice", 2).json()["position"]
    wait_until_ranked(old, "arcade", "alice", before)

    after = submit(installation, new, "arcade", "bob", 3).json()["position"]
    assert ends_refused(ranking)
    known = PAYLOAD_VERSION
    refusal = f"holds events of version {known + 1}, and this rankd knows versions up to {known}: upgrade rankd"
    assert refusal in log_of(installation, "old")
    for command in ("verify", "rebuild"):
        ended = installation.run(command)
        assert (ended.returncode, refusal in ended.stderr) == (ExitCode.DAMAGED, True), ended.stderr

    installation.project("new", **newer)
    wait_until_ranked(old, "arcade", "bob", after)
    later = submit(installation, old, "arcade", "carol", 1).json()["position"]  # what it writes, everybody reads
    wait_until_ranked(old, "arcade", "carol", later)

    define(installation, new, "arcade", score_max=1_000)  # what an old server has to follow, and cannot
    refused = submit(installation, old, "arcade", "dora", 9)
    assert (refused.status_code, refused.json()["code"]) == (UNAVAILABLE, "ledger_newer")
    with old.client() as client:
        unready = client.get("/readyz")
        assert (unready.status_code, unready.json()["code"]) == (UNAVAILABLE, "ledger_newer")
        assert "upgrade rankd" in unready.json()["detail"]
        assert client.get("/healthz").status_code == 200
    with new.client() as client:
        assert client.get("/readyz").status_code == 200
    assert submit(installation, new, "arcade", "alice", 2).status_code in (200, 202)
    assert installation.run("serve").returncode == ExitCode.DAMAGED
    with new.client() as client:
        entries = client.get("/v1/boards/arcade/top").json()["entries"]
    assert {entry["player"] for entry in entries} == {"alice", "bob", "carol"}
    verified = installation.run("verify", **newer)
    assert verified.returncode == 0, verified.stderr


def test_a_node_is_not_ready_once_a_newer_version_has_written_the_ledger(tmp_path: Path) -> None:
    needs_postgres()
    newer = make_version(tmp_path / "newer", payload_known=1, payload_written=BEYOND)
    with nodes_installed(tmp_path) as nodes:
        old, new = nodes.node("old"), nodes.node("new", None, **newer)
        with old.client(nodes.admin) as by_old, new.client(nodes.admin) as by_new:
            score = {"board": "arcade", "player": "alice", "score": 1}
            assert by_old.put("/v1/boards/arcade", json={}).status_code == 200
            assert by_old.post("/v1/scores", json=score).status_code == 200
            assert by_old.get("/readyz").status_code == 200

            assert by_new.post("/v1/scores", json={**score, "score": 2}).status_code == 200
            wait_until(lambda: by_old.get("/readyz").status_code == UNAVAILABLE)
            for refused in (by_old.get("/readyz"), by_old.post("/v1/scores", json=score)):
                assert (refused.status_code, refused.json()["code"]) == (UNAVAILABLE, "ledger_newer")
                assert "upgrade rankd" in refused.json()["detail"]
            assert by_old.get("/healthz").status_code == 200
            assert by_old.get("/v1/boards/arcade/players/alice").json()["score"] == 1
            assert by_new.get("/readyz").status_code == 200


def test_functions_two_versions_ahead_stop_who_uses_the_older_ones(installation: Installation) -> None:
    newest = make_version(installation.folder / "newest", functions=2)
    ranking, old = installation.project("old"), installation.serve()
    define(installation, old, "arcade")
    before = submit(installation, old, "arcade", "alice", 2).json()["position"]
    wait_until_ranked(old, "arcade", "alice", before)

    new = installation.serve(**newest)
    installation.project("new", **newest)
    assert ends_refused(ranking)
    refusal = f"are of version {LIBRARY_VERSION + 2}, this node knows {LIBRARY_VERSION}: upgrade rankd"
    assert refusal in log_of(installation, "old")
    started = installation.run("serve")
    assert (started.returncode, refusal in started.stderr + started.stdout) == (ExitCode.DAMAGED, True)

    accepted = submit(installation, old, "arcade", "bob", 3)  # for that, it needs no functions
    assert accepted.status_code == httpx.codes.ACCEPTED
    wait_until_ranked(new, "arcade", "bob", accepted.json()["position"])
    with old.client() as client:
        refused = client.get("/v1/boards/arcade/players/bob")
    assert (refused.status_code, refused.json()["code"]) == (UNAVAILABLE, "ranks_newer")
    verified = installation.run("verify", **newest)
    assert verified.returncode == 0, verified.stderr


def test_a_board_in_a_newer_layout_stops_who_would_write_it(installation: Installation) -> None:
    ranking, serving = installation.project("old"), installation.serve()
    define(installation, serving, "arcade")
    wait_until_ranked(
        serving, "arcade", "alice", submit(installation, serving, "arcade", "alice", 2).json()["position"]
    )
    with installation.redis.client() as redis:
        redis.hset("rankd:{arcade#0}:meta", "version", LAYOUT_VERSION + 1)

    assert ends_refused(ranking)
    assert f"this shard has layout {LAYOUT_VERSION + 1}, this call is for {LAYOUT_VERSION}: upgrade rankd" in log_of(
        installation, "old"
    )
    with serving.client() as client:
        refused = client.get("/v1/boards/arcade/players/alice")
    assert (refused.status_code, refused.json()["code"]) == (UNAVAILABLE, "ranks_newer")
    assert submit(installation, serving, "arcade", "bob", 3).status_code == httpx.codes.ACCEPTED


def test_a_folder_that_a_newer_version_has_used_is_ranked_without_its_snapshots(tmp_path: Path) -> None:
    newer = {**os.environ, **make_version(tmp_path / "newer", payload_known=1, saved=1)}
    folder = tmp_path / "data"

    def run(code: str, environment: dict[str, str]) -> str:
        command = [sys.executable, "-c", f"import rankd\nwith rankd.open({str(folder)!r}) as boards:\n  {code}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    run("boards.define('arcade'); boards.submit('arcade', 'alice', 1); boards.snapshot()", newer)
    assert list((folder / "snapshots").iterdir())
    output = run(
        "print(boards.started.snapshot, boards.rank('arcade', 'alice').rank); boards.verify()", dict(os.environ)
    )
    assert output.split() == ["None", "1"]

"""The restore drill of docs/backup.md, with the real server and a real S3: lost machine, lost bucket, the wrong key."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
from tests.acceptance.serving import ROOT, Serving, serving, start
from tests.servers.s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from tests.servers.waiting import wait_until

from rankd.archive.remote_objects import RemoteObjects

COMMAND_S = 60.0
BOARD = """
[boards.arcade]
keep = "sum"
windows = ["all_time", "weekly"]
"""


def environment(s3: S3Server, bucket: str, secret: str = SECRET_KEY) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": REGION,
        "RANKD_ARCHIVE_URL": f"s3://{bucket}/rankd",
        "RANKD_ARCHIVE_ENDPOINT": s3.endpoint,
        "RANKD_ARCHIVE_SEGMENTS_EVERY_MS": "50",
    }


def command(*arguments: str, known: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rankd", *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        env={"PATH": "/usr/bin:/bin", **known},
        cwd=ROOT,
        check=False,
    )


def submit(client: httpx.Client, number: int) -> dict[str, object]:
    answer = client.post(
        "/v1/scores",
        json={"board": "arcade", "player": f"p{number}", "score": number},
        headers={"Idempotency-Key": f"key-{number}"},
    )
    assert answer.status_code == 200, answer.text
    body: dict[str, object] = answer.json()
    return body


def archive_of(server: Serving) -> dict[str, object]:
    with server.client() as anybody:
        answer = anybody.get("/readyz")
    assert answer.status_code == 200, "an archive that is behind is no failure of the server"
    archive: dict[str, object] = answer.json()["archive"]
    return archive


def is_current(server: Serving) -> Callable[[], bool]:
    return lambda: archive_of(server) == {"behind_events": 0, "behind_ms": 0}


def test_a_lost_machine_comes_back_from_its_bucket(s3: S3Server, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    known = environment(s3, bucket)
    with serving(tmp_path / "data", config=BOARD, environment=known) as server:
        token = server.admin_key
        with server.client(token) as client:
            first = [submit(client, number) for number in range(30)]
            assert client.put("/v1/players/p7", json={"name": "Seven"}).status_code == 200
        wait_until(is_current(server))
        with server.client(token) as client:
            assert "rankd_archive_behind_events 0.0" in client.get("/metrics").text
        server.stop(signal.SIGKILL)
    shutil.rmtree(tmp_path / "data")

    target = tmp_path / "restored"
    restored = command("restore", known["RANKD_ARCHIVE_URL"], str(target), "--json", known=known)
    assert restored.returncode == 0, restored.stderr
    report = json.loads(restored.stdout)
    assert report["position"] == first[-1]["position"]
    assert (report["missing_ms_max"], report["is_whole"]) == (50, True)
    assert command("verify", "--data", str(target), known=known).returncode == 0
    with serving(target, config=BOARD, environment=known) as server, server.client(token) as client:
        for number, answer in enumerate(first):
            again = submit(client, number)
            assert (again["position"], again["score"], again["repeated"]) == (answer["position"], number, True)
        assert client.get("/v1/players/p7").json()["name"] == "Seven"
        submit(client, 100)
        wait_until(is_current(server))
    proved = command("backup", "--verify", "--json", known=known)
    assert proved.returncode == 0, proved.stderr
    assert json.loads(proved.stdout)["events"] == report["events"] + 1


def test_an_archive_that_is_away_is_said_and_gets_everything_later(
    own_s3: S3Server, s3_credentials: None, tmp_path: Path
) -> None:
    bucket = own_s3.new_bucket()
    known = environment(own_s3, bucket)
    with (
        serving(tmp_path / "data", config=BOARD, environment=known) as server,
        server.client(server.admin_key) as client,
    ):
        wait_until(is_current(server))
        own_s3.kill()
        for number in range(10):
            submit(client, number)
        assert archive_of(server)["behind_events"] != 0
        own_s3.start()
        wait_until(is_current(server))
        objects = RemoteObjects(known["RANKD_ARCHIVE_URL"], endpoint=own_s3.endpoint)
        while there := list(objects.list("")):  # the bucket is lost, and an empty one is made in its place
            for stored in there:
                objects.delete(stored.path)
        submit(client, 11)
        wait_until(is_current(server))
    restored = command("restore", known["RANKD_ARCHIVE_URL"], str(tmp_path / "restored"), "--json", known=known)
    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["players"] == 11
    assert command("verify", "--data", str(tmp_path / "restored"), known=known).returncode == 0


def test_the_wrong_key_is_named_and_keeps_no_server_from_serving(s3: S3Server, tmp_path: Path) -> None:
    known = environment(s3, s3.new_bucket(), secret="not-the-key")
    with (
        serving(tmp_path / "data", config=BOARD, environment=known) as server,
        server.client(server.admin_key) as client,
    ):
        submit(client, 1)
        wait_until(lambda: "problem" in archive_of(server))
        assert "not-the-key" not in server.log.read_text()
        assert "AWS_SECRET_ACCESS_KEY" in server.log.read_text()
        assert ACCESS_KEY not in json.dumps(archive_of(server))
    restored = command("restore", known["RANKD_ARCHIVE_URL"], str(tmp_path / "restored"), known=known)
    assert restored.returncode == 1
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in restored.stderr


def test_two_servers_on_one_archive(s3: S3Server, tmp_path: Path) -> None:
    known = environment(s3, s3.new_bucket())
    with serving(tmp_path / "first", config=BOARD, environment=known) as first:
        wait_until(is_current(first))
        second = start(tmp_path / "second", config=BOARD, environment=known)
        try:
            second.wait_until_ready()
            wait_until(lambda: "another ledger" in str(archive_of(second).get("problem")))
            assert "name another archive.url for this folder" in second.log.read_text()
            with first.client(first.admin_key) as client:
                submit(client, 1)
            wait_until(is_current(first))
        finally:
            second.stop(signal.SIGKILL)

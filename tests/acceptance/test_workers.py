"""Several workers on one folder: whichever one is asked, the answer is that of one server."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.servers.waiting import WAIT_S
from websockets.sync.client import unix_connect

from .workers_serving import WRITER, Workers, answered, running_workers

EVERY = range(3)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    config = "record_origin = true\n[push]\npush_interval_ms = 50\n"
    with running_workers(tmp_path_factory.mktemp("workers") / "data", len(EVERY), config) as running:
        yield running


@pytest.fixture
def board(workers: Workers) -> str:
    """A board of its own for each test, defined through a worker that reads."""
    name = f"board-{uuid4().hex[:8]}"
    with workers.admin(1) as client:
        answered(client.put(f"/v1/boards/{name}", json={"keep": "sum", "windows": ["all_time"]}))
    return name


def submit(client: httpx.Client, board: str, player: str, score: int, key: str | None = None) -> dict[str, Any]:
    headers = {} if key is None else {"Idempotency-Key": key}
    return answered(client.post("/v1/scores", json={"board": board, "player": player, "score": score}, headers=headers))


@pytest.mark.parametrize("number", EVERY)
def test_a_client_reads_what_it_wrote_through_any_worker(workers: Workers, board: str, number: int) -> None:
    body = json.dumps({"board": board, "player": "alice", "score": 1})
    post = (
        f"POST /v1/scores HTTP/1.1\r\nHost: rankd\r\nAuthorization: Bearer {workers.serving.admin_key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )
    get = f"GET /v1/boards/{board}/players/alice HTTP/1.1\r\nHost: rankd\r\n\r\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(WAIT_S)
        link.connect(str(workers.serving.folder / f"worker-{number}.sock"))
        for score in range(1, 21):
            link.sendall((post + get).encode())  # the read is there when the write is answered
            answers = ""
            while answers.count('"position"') < 2:
                answers += link.recv(65_536).decode()
            assert [int(digits) for digits in re.findall(r'"score":(\d+)', answers)] == [score, score]


def test_a_position_holds_on_every_worker(workers: Workers, board: str) -> None:
    with workers.admin(1) as written, workers.only(2) as read, workers.only(WRITER) as also:
        for score in range(1, 51):
            position = submit(written, board, "alice", 1)["position"]
            for client in (read, also):
                standing = answered(client.get(f"/v1/boards/{board}/players/alice", params={"at_least": position}))
                assert standing["score"] == score
                assert not standing["stale"]


def test_a_position_that_is_not_there_yet_is_refused_after_a_while(workers: Workers, board: str) -> None:
    with workers.only(1) as client:
        refused = client.get(f"/v1/boards/{board}/top", params={"at_least": "0-999999999"})
        assert (refused.status_code, refused.json()["code"]) == (503, "behind")


def test_a_key_counts_once_through_all_workers(workers: Workers, board: str) -> None:
    positions = set()
    for number in (1, 2, WRITER, 1):
        with workers.admin(number) as client:
            positions.add(submit(client, board, "alice", 5, key="first")["position"])
    assert len(positions) == 1
    with workers.admin(2) as client:
        refused = client.post(
            "/v1/scores",
            json={"board": board, "player": "alice", "score": 6},
            headers={"Idempotency-Key": "first"},
        )
        assert (refused.status_code, refused.json()["code"]) == (409, "key_reused")
        assert answered(client.get(f"/v1/boards/{board}/players/alice"))["score"] == 5


def test_every_change_through_a_worker_that_reads_is_seen_by_all(workers: Workers, board: str) -> None:
    with workers.admin(1) as client:
        for player in ("alice", "bob", "carol"):
            submit(client, board, player, 3)
        batch = {"events": [{"board": board, "player": "bob", "score": 4, "metadata": {"level": 2}}]}
        answered(client.post("/v1/scores/batch", json=batch))
        answered(client.put("/v1/players/bob", json={"name": "Bob"}))
        answered(client.put("/v1/players/bob/friends", json={"players": ["alice"]}))
        position = answered(client.delete(f"/v1/boards/{board}/players/carol"))["position"]
    for number in EVERY:
        with workers.admin(number) as client:
            page = answered(client.get(f"/v1/boards/{board}/top", params={"at_least": position}))
            shown = [(entry["player"], entry["score"], entry.get("name")) for entry in page["entries"]]
            assert shown == [("bob", 7, "Bob"), ("alice", 3, None)]
            assert answered(client.get("/v1/players/bob"))["name"] == "Bob"
            friends = answered(client.get(f"/v1/boards/{board}/players/bob/friends"))["entries"]
            assert [entry["player"] for entry in friends] == ["bob", "alice"]
            events = answered(client.get(f"/v1/boards/{board}/players/bob/events"))["events"]
            assert [event["score"] for event in events] == [4, 3]
    with workers.admin(2) as client:
        answered(client.put("/v1/players/bob", json={"name": "Robert"}))
        position = answered(client.post(f"/v1/boards/{board}/reset", json={}))["position"]
    for number in EVERY:
        with workers.admin(number) as client:
            assert answered(client.get("/v1/players/bob"))["name"] == "Robert"
            assert answered(client.get(f"/v1/boards/{board}/top", params={"at_least": position}))["entries"] == []
    with workers.admin(2) as client:
        answered(client.delete(f"/v1/boards/{board}"))
        assert client.get(f"/v1/boards/{board}").status_code == 404


def test_a_stream_on_any_worker_shows_what_came_through_another(workers: Workers, board: str) -> None:
    for number in EVERY:
        with workers.admin(number) as client, workers.admin((number + 1) % len(EVERY)) as other:
            with client.stream("GET", "/v1/stream", params={"topic": f"player:{board}:alice"}) as stream:
                lines = stream.iter_lines()
                first = next_data(lines)
                submitted = submit(other, board, "alice", 1)
                assert next_data(lines) != first
            assert answered(client.get(f"/v1/boards/{board}/players/alice"))["score"] == submitted["score"]


def test_a_websocket_on_any_worker_shows_what_came_through_another(workers: Workers, board: str) -> None:
    for number in EVERY:
        path = str(workers.serving.folder / f"worker-{number}.sock")
        with unix_connect(path, "ws://localhost/v1/ws") as connection:
            connection.send(json.dumps({"op": "subscribe", "topic": f"top:{board}"}))
            assert json.loads(connection.recv(WAIT_S))["type"] == "snapshot"
            with workers.admin((number + 1) % len(EVERY)) as other:
                submit(other, board, f"player-{number}", 1)
            assert json.loads(connection.recv(WAIT_S))["type"] == "change"


def next_data(lines: Iterator[str]) -> dict[str, object]:
    data: dict[str, object] = json.loads(next(line for line in lines if line.startswith("data:")).removeprefix("data:"))
    return data


def test_a_ticket_of_any_worker_opens_one_stream_on_any(workers: Workers, board: str) -> None:
    for given, used in ((WRITER, 1), (1, 2), (2, WRITER), (1, 1)):
        with workers.admin(given) as client:
            ticket = answered(client.post("/v1/stream/tickets"))["ticket"]
        asked = {"topic": f"top:{board}", "ticket": ticket}
        with workers.only(used) as client, client.stream("GET", "/v1/stream", params=asked) as stream:
            assert stream.status_code == 200
        for number in EVERY:
            with workers.only(number) as client:
                assert client.get("/v1/stream", params=asked).status_code == 401


def test_the_public_address_is_answered_by_every_worker(workers: Workers) -> None:
    prefixes = set()
    for _ in range(200):
        with workers.serving.client() as client:
            prefixes.add(client.get("/healthz").headers["x-request-id"][:8])
        if len(prefixes) == len(EVERY):
            return
    raise AssertionError(f"only {len(prefixes)} workers answered")


def test_only_the_local_socket_says_where_a_request_came_from(workers: Workers, board: str) -> None:
    forged = {"X-Rankd-Peer": "203.0.113.9"}
    for _ in range(20):  # some of them come to a worker that reads
        with workers.admin() as client:
            event = {"board": board, "player": "alice", "score": 1}
            response = client.post("/v1/scores", json=event, headers=forged)
            assert answered(response)["score"]
            assert not [name for name in response.headers if name.startswith("x-rankd-")]
    with workers.admin(1) as client:
        events = answered(client.get(f"/v1/boards/{board}/players/alice/events"))["events"]
        audited = answered(client.get("/v1/audit", params={"board": board, "kind": "score"}))["events"]
    assert [event["origin"] for event in events] == ["127.0.0.1"] * 20
    assert {event["address"] for event in audited} == {"127.0.0.1"}
    assert [event["new_score"] for event in audited] == list(range(20, 0, -1))  # they are added up
    assert all(event["user_agent"].startswith("python-httpx") for event in audited)
    assert len({event["request_id"] for event in audited}) == 20


def test_a_request_keeps_its_id_and_is_counted_by_the_writer_alone(workers: Workers, board: str) -> None:
    with workers.admin(1) as client:
        event = {"board": board, "player": "alice", "score": 1}
        response = client.post("/v1/scores", json=event, headers={"X-Request-Id": "from-the-game"})
        assert response.headers["x-request-id"] == "from-the-game"
        text = client.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    counted = {
        sample.labels["worker"] for sample in families["rankd_requests"].samples if sample.labels["method"] == "PUT"
    }
    assert counted == {str(WRITER)}
    up = {sample.labels["worker"]: sample.value for sample in families["rankd_worker_up"].samples}
    assert up == {str(number): 1.0 for number in EVERY}
    positions = {sample.labels["worker"] for sample in families["rankd_position"].samples}
    assert positions == {str(number) for number in EVERY}


def test_a_body_in_pieces_comes_through(workers: Workers, board: str) -> None:
    lines = [json.dumps({"board": board, "player": f"p{number}", "score": 1}) + "\n" for number in range(5_000)]
    media = {"Content-Type": "application/x-ndjson"}
    with workers.admin(1) as client:
        sent = client.post("/v1/scores/batch", content=(line.encode() for line in lines), headers=media)
        assert answered(sent)["count"] == len(lines)
        assert answered(client.get(f"/v1/boards/{board}/top"))["total"] == len(lines)


def test_a_body_that_is_refused_is_not_read_to_its_end(workers: Workers, board: str) -> None:
    with workers.only(1, "rk_nobody") as client:
        pieces = (b" " * 65_536 for _ in range(64))
        refused = client.post("/v1/scores", content=pieces, headers={"Content-Type": "application/json"})
        assert refused.status_code == 401
    with workers.admin(2) as client:
        refused = client.post("/v1/scores", content=b" " * 2_000_000, headers={"Content-Type": "application/json"})
        assert refused.status_code == 413
        submit(client, board, "alice", 1)


def test_the_folder_says_which_process_to_stop(workers: Workers) -> None:
    lines = (workers.serving.folder / "lock").read_text().split()
    assert lines == [str(workers.supervisor), workers.serving.url]


def test_local_sockets_are_their_owners_alone(workers: Workers) -> None:
    for number in EVERY:
        path = Path(workers.serving.folder, f"worker-{number}.sock")
        assert os.stat(path).st_mode & 0o777 == 0o600

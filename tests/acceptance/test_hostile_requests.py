"""Requests meant to hurt: refused with a reason, memory steady, others served meanwhile."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.servers.waiting import WAIT_S
from tests.timing import BUSY_MACHINE

from .serving import Serving, serving

CONFIG = """
[limits]
header_read_ms = 1500
body_read_ms = 700
"""
MIB = 1024 * 1024
GROWTH_BYTES_MAX = 96 * MIB


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("hostile") / "data", config=CONFIG) as running:
        with running.client(running.admin_key) as admin:
            assert admin.put("/v1/boards/arcade", json={}).status_code == 200
            assert admin.post("/v1/scores", json={"board": "arcade", "player": "alice", "score": 5}).status_code == 200
        yield running


@pytest.fixture
def admin(server: Serving) -> Iterator[httpx.Client]:
    with server.client(server.admin_key, timeout_s=30) as client:
        yield client


def resident_bytes(server: Serving) -> int:
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * 4096


@pytest.fixture(autouse=True)
def others_are_served(server: Serving) -> Iterator[None]:
    before = resident_bytes(server)
    yield
    assert server.process.poll() is None
    with server.client() as anybody:
        assert anybody.get("/v1/boards/arcade/players/alice").json()["score"] == 5
    assert resident_bytes(server) - before < GROWTH_BYTES_MAX


def post(admin: httpx.Client, body: bytes, path: str = "/v1/scores", **headers: str) -> httpx.Response:
    return admin.post(path, content=body, headers={"Content-Type": "application/json", **headers})


SCORES: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 400),
    "no JSON": (b"score=1", 400),
    "half of it": (b'{"board":"arcade"', 400),
    "two of them": (b'{"board":"arcade","player":"a","score":1}{}', 400),
    "not UTF-8": (b'{"board":"arcade","player":"\xff\xfe","score":1}', 400),
    "a list": (b"[]", 422),
    "nested": (b'{"board":"arcade","player":"a","score":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    "nested metadata": (
        b'{"board":"arcade","player":"a","score":1,"metadata":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001,
        400,
    ),
    "NaN": (b'{"board":"arcade","player":"a","score":NaN}', 400),
    "a float": (b'{"board":"arcade","player":"a","score":976.0}', 422),
    "an exponent": (b'{"board":"arcade","player":"a","score":1e3}', 422),
    "true": (b'{"board":"arcade","player":"a","score":true}', 422),
    "text": (b'{"board":"arcade","player":"a","score":"5"}', 422),
    "null": (b'{"board":"arcade","player":"a","score":null}', 422),
    "beyond 64 bits": (b'{"board":"arcade","player":"a","score":18446744073709551616}', 422),
    "beyond all numbers": (b'{"board":"arcade","player":"a","score":1e400}', 422),
    "metadata beyond all numbers": (b'{"board":"arcade","player":"a","score":1,"metadata":{"a":1e400}}', 422),
    "a score of a megabyte": (b'{"board":"arcade","player":"a","score":1,"metadata":{"a":' + b"[" * 900_000, 422),
    "a million digits": (b'{"board":"arcade","player":"a","score":' + b"9" * 900_000 + b"}", 422),
    "a lone surrogate": (b'{"board":"arcade","player":"\\ud800","score":1}', 400),
    "a control character": (b'{"board":"arcade","player":"a\\u0000b","score":1}', 422),
    "a long player": (b'{"board":"arcade","player":"' + b"a" * 129 + b'","score":1}', 422),
    "nobody": (b'{"board":"arcade","score":1}', 422),
    "two dots": (b'{"board":"arcade","player":"..","score":1}', 422),
    "unknown": (b'{"board":"arcade","player":"a","score":1,"colour":"red"}', 422),
    "no such board": (b'{"board":"nowhere","player":"a","score":1}', 404),
    "a board that cannot be": (b'{"board":"../etc","player":"a","score":1}', 422),
    "large metadata": (b'{"board":"arcade","player":"a","score":1,"metadata":{"a":"' + b"x" * 2_000 + b'"}}', 422),
    "metadata that is a list": (b'{"board":"arcade","player":"a","score":1,"metadata":[1]}', 422),
    "attributes that are lists": (b'{"board":"arcade","player":"a","score":1,"attributes":{"country":[1]}}', 422),
    "an instant in the future": (b'{"board":"arcade","player":"a","score":1,"at":99999999999999}', 422),
}


@pytest.mark.parametrize("name", SCORES)
def test_a_bad_score_is_refused_with_a_reason(admin: httpx.Client, name: str) -> None:
    body, status = SCORES[name]
    answer = post(admin, body)

    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert answer.json()["detail"]


QUERIES = {
    "top?limit=1000000000": 422,
    "top?limit=0": 422,
    "top?limit=1e3": 422,
    "top?limit=" + "9" * 4_000: 422,
    "top?limit=10&limit=20": 422,
    "top?offset=-1": 422,
    "top?cursor=garbage": 422,
    "top?cursor=" + "A" * 5_000: 422,
    "top?windw=weekly": 422,
    "top?window=weekly": 404,
    "top?window=%00": 422,
    "top?window=%ff": 422,
    "top?scope=country:BR": 404,
    "top?ranking=fancy": 422,
    "top?at_least=never": 422,
    "top?at_least=0-999999999": 503,
    "range": 422,
    "range?from=1&to=100000": 422,
    "range?from=0&to=1": 422,
    "range?from=2&to=1": 422,
    "players/alice/around?above=101": 422,
    "players/%ff": 422,
    "players/..%2f..": 404,
    "players/a%00b": 422,
    "scores/12x": 422,
    "scores/" + "9" * 40: 422,
    "distribution?buckets=1000000": 422,
    "top?" + "&".join(f"a{index}=1" for index in range(100)): 422,
    "nothing": 404,
    "players/alice/": 404,
    "": 404,
}


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path[:40])
def test_a_bad_question_is_refused_with_a_reason(admin: httpx.Client, path: str) -> None:
    answer = admin.get(f"/v1/boards/arcade/{path}")

    assert answer.status_code == QUERIES[path], answer.text
    assert answer.json()["detail"]


def test_a_body_of_a_hundred_megabytes_is_refused_before_it_is_read(server: Serving) -> None:
    with connection(server) as link:
        link.sendall(head(server, "/v1/scores", 100 * MIB))
        assert b" 413 " in link.recv(4_096).split(b"\r\n")[0]


def test_an_endless_body_is_cut_off(server: Serving) -> None:
    with connection(server) as link:
        link.sendall(head(server, "/v1/scores/batch", None))
        piece = b"10000\r\n" + b"[" * 0x10000 + b"\r\n"
        sent = 0
        try:
            while sent < 64 * MIB:
                link.sendall(piece)
                sent += len(piece)
        except (ConnectionError, TimeoutError):
            pass
        assert sent < 48 * MIB


def test_a_batch_of_a_million_is_refused(admin: httpx.Client) -> None:
    event = b'{"board":"arcade","player":"a","score":1}'
    answer = post(admin, b'{"events":[' + b",".join([event] * 300_000) + b"]}", "/v1/scores/batch")

    assert answer.status_code == 413
    assert "10000" in answer.json()["detail"]


def test_a_batch_of_nothing_is_refused(admin: httpx.Client) -> None:
    answer = post(admin, b'{"events":[]}', "/v1/scores/batch")

    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "events")


@pytest.mark.timed
def test_a_slow_sender_of_a_body_is_cut_off(server: Serving) -> None:
    with connection(server) as link:
        link.sendall(head(server, "/v1/scores", 50) + b"{")
        began = time.monotonic()
        assert b" 408 " in link.recv(4_096).split(b"\r\n")[0]
        assert time.monotonic() - began < 5 * BUSY_MACHINE


@pytest.mark.timed
def test_a_slow_sender_of_headers_is_cut_off(server: Serving) -> None:
    with connection(server) as link:
        link.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        began = time.monotonic()
        assert b" 200 " not in link.recv(4_096)
        assert time.monotonic() - began < 10 * BUSY_MACHINE


def test_headers_without_end_are_refused(server: Serving) -> None:
    with connection(server) as link:
        try:
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + b"X-Many: " + b"a" * (2 * MIB))
            answer = link.recv(4_096)
        except ConnectionError:
            answer = b""
        assert b" 200 " not in answer


@pytest.mark.timed
def test_many_connections_that_say_nothing_keep_nobody_from_being_served(server: Serving) -> None:
    silent = [connection(server) for _ in range(300)]
    try:
        with server.client() as anybody:
            began = time.monotonic()
            for _ in range(50):
                assert anybody.get("/healthz").status_code == 200
            assert time.monotonic() - began < 5 * BUSY_MACHINE
    finally:
        for link in silent:
            link.close()


@pytest.mark.timed
@pytest.mark.parametrize("piece", ["http://", "_", "://user:", "bearer "])
def test_a_name_of_a_megabyte_keeps_nobody_waiting(server: Serving, piece: str) -> None:
    hostile = b'{"' + piece.encode() * (1_000_000 // len(piece)) + b'":1}'
    with server.client() as mallory, server.client() as anybody, ThreadPoolExecutor(1) as beside:
        refused = beside.submit(lambda: [post(mallory, hostile, "/v1/boards/arcade/ranks") for _ in range(5)])
        waited_s = []
        while not refused.done():
            began = time.monotonic()
            assert anybody.get("/v1/boards/arcade/players/alice").status_code == 200
            waited_s.append(time.monotonic() - began)

    for answer in refused.result(WAIT_S):
        assert answer.status_code == 422
        assert len(answer.json()["errors"][0]["field"]) <= 80
    assert max(waited_s) < 1 * BUSY_MACHINE  # 3 s and more, when a name was masked before it was cut


def test_another_kind_of_body_is_refused(admin: httpx.Client) -> None:
    sent = {"Content-Type": "text/xml"}

    assert admin.post("/v1/scores", content=b"<score/>", headers=sent).status_code == 415
    assert (
        admin.post(
            "/v1/scores", content=b"{}", headers={"Content-Type": "application/json; charset=utf-16"}
        ).status_code
        == 415
    )


def test_a_method_that_is_not_taken_names_those_that_are(admin: httpx.Client) -> None:
    answer = admin.patch("/v1/boards/arcade", json={})

    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET, PUT"


PLAYERS = ("a/b", "a%2Fb", "?x", "#", "ä", "日本", " ", "a b", "a+b", "%", "a;b", "...", "👩‍🚀", "'\"<script>")


@pytest.mark.parametrize("player", PLAYERS)
def test_any_player_can_stand_in_a_path(admin: httpx.Client, player: str) -> None:
    assert admin.put("/v1/boards/any", json={}).status_code == 200
    sent: dict[str, Any] = {"board": "any", "player": player, "score": 5}
    assert admin.post("/v1/scores", json=sent).status_code == 200
    quoted = "".join(f"%{byte:02X}" for byte in player.encode())

    assert admin.get(f"/v1/boards/any/players/{quoted}").json()["player"] == player
    assert admin.get(f"/v1/boards/any/players/{quoted}/around").json()["player"]["player"] == player


@pytest.mark.parametrize(
    ("media", "body"),
    [
        (
            "application/x-ndjson",
            b'{"board":"arcade","player":"nd","score":4}\n\n{"board":"arcade","player":"nd2","score":3}\n',
        ),
        (
            "application/json",
            b'{"events":[{"board":"arcade","player":"nd","score":4},{"board":"arcade","player":"nd2","score":3}]}',
        ),
    ],
)
def test_batches_come_in_several_kinds(admin: httpx.Client, media: str, body: bytes) -> None:
    answer = admin.post("/v1/scores/batch", content=body, headers={"Content-Type": media})

    assert answer.status_code == 200, answer.text
    assert answer.json()["count"] == 2


def test_the_bad_line_of_a_batch_is_named(admin: httpx.Client) -> None:
    lines = [json.dumps({"board": "arcade", "player": f"p{index}", "score": index}) for index in range(5)]
    lines[3] = json.dumps({"board": "arcade", "player": "p3", "score": 3.5})
    answer = admin.post(
        "/v1/scores/batch", content="\n".join(lines).encode(), headers={"Content-Type": "application/x-ndjson"}
    )

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "events[3].score"


def connection(server: Serving) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def head(server: Serving, path: str, length: int | None) -> bytes:
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return (
        f"POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {server.admin_key}\r\n"
        f"Content-Type: application/json\r\n{size}\r\n\r\n"
    ).encode()

"""Live connections to a real server: what they say, how they are resumed, how they end."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.servers.load_bound import LoadBound
from tests.servers.waiting import join_all
from tests.timing import BUSY_MACHINE

from .impatient import HEARTBEAT_S, impatient_serving
from .live_clients import (
    WAIT_S,
    Event,
    EventStream,
    Socket,
    Table,
    Watching,
    entries_of,
    event_stream,
    wait_for,
    web_socket,
)
from .serving import Serving, serving

INTERVAL_MS = 50
CONFIG = f"""
[push]
push_interval_ms = {INTERVAL_MS}
[boards.arcade]
windows = ["all_time", "weekly"]
scopes = ["country"]
"""
KINDS = pytest.mark.parametrize("kind", ["sse", "ws"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with impatient_serving(tmp_path_factory.mktemp("streams") / "data", CONFIG) as running:
        yield running


@pytest.fixture
def admin(server: Serving) -> Iterator[httpx.Client]:
    """A board with three players, and whoever may do everything to it."""
    with server.client(server.admin_key) as client:
        client.delete("/v1/boards/arcade")
        fine(client.put("/v1/boards/arcade", json={"windows": ["all_time", "weekly"], "scopes": ["country"]}))
        for player, score in (("alice", 50), ("bob", 40), ("carol", 30)):
            submit(client, player, score)
        yield client


def fine(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def submit(client: httpx.Client, player: str, score: int, **more: Any) -> dict[str, Any]:
    return fine(client.post("/v1/scores", json={"board": "arcade", "player": player, "score": score, **more}))


@KINDS
def test_a_snapshot_comes_first_and_then_what_changes(server: Serving, admin: httpx.Client, kind: str) -> None:
    watching = Watching(server.url, kind, "top:arcade")
    snapshot = watching.next()
    read = fine(admin.get("/v1/boards/arcade/top"))
    assert snapshot.type == "snapshot"
    assert {**snapshot.data, "as_of": 0} == {**read, "as_of": 0}
    position = submit(admin, "dave", 70)["position"]
    change = watching.next()
    watching.link.close()

    assert change.type == "change"
    assert [entry["player"] for entry in change.data["set"]] == ["dave", "alice", "bob", "carol"]
    assert (change.data["gone"], change.data["total"], change.data["position"]) == ([], 4, position)
    assert watching.table.entries == entries_of(fine(admin.get("/v1/boards/arcade/top")))


@KINDS
def test_ids_are_an_epoch_and_an_offset_that_goes_up(server: Serving, admin: httpx.Client, kind: str) -> None:
    watching = Watching(server.url, kind, "top:arcade")
    ids = [watching.next().id]
    for score in (70, 80, 90):
        submit(admin, "dave", score)
        ids.append(watching.next().id)
    watching.link.close()

    assert all(re.fullmatch(r"[0-9a-f]{8}-[1-9][0-9]*", identity) for identity in ids)
    assert len({identity.rpartition("-")[0] for identity in ids}) == 1
    offsets = [int(identity.rpartition("-")[2]) for identity in ids]
    assert offsets == sorted(set(offsets))


@KINDS
def test_topics_show_what_their_reads_show(server: Serving, admin: httpx.Client, kind: str) -> None:
    submit(admin, "a:b@c/d", 45, attributes={"country": "BR"})
    fine(admin.put("/v1/players/bob/friends", json={"players": ["alice", "a:b@c/d"]}))
    odd = quote("a:b@c/d", safe="")
    reads = {
        "top:arcade@weekly": "/v1/boards/arcade/top?window=weekly",
        "top:arcade@weekly@country:BR": "/v1/boards/arcade/top?window=weekly&scope=country:BR",
        "top:arcade@@country:BR": "/v1/boards/arcade/top?scope=country:BR",
        "player:arcade:a:b@c/d": f"/v1/boards/arcade/players/{odd}",
        "friends:arcade:bob": "/v1/boards/arcade/players/bob/friends",
    }
    for topic, path in reads.items():
        watching = Watching(server.url, kind, topic, token=server.admin_key)
        snapshot = watching.next()
        watching.link.close()
        assert snapshot.topic == topic
        assert {**snapshot.data, "as_of": 0} == {**fine(admin.get(path)), "as_of": 0}


def test_one_stream_carries_several_topics(server: Serving, admin: httpx.Client) -> None:
    topics = ("top:arcade", "player:arcade:bob", "top:arcade@weekly")
    with event_stream(server.url, *topics) as stream:
        first = [stream.next() for _ in topics]
        assert {event.topic for event in first if event} == set(topics)
        submit(admin, "bob", 90)
        changes = [stream.next() for _ in topics]

    assert {(event.topic, event.type) for event in changes if event} == {(topic, "change") for topic in topics}


def test_a_socket_watches_and_leaves_topics_as_it_likes(server: Serving, admin: httpx.Client) -> None:
    with web_socket(server.url, "top:arcade", "player:arcade:bob") as link:
        assert [getattr(link.next(), "topic", None) for _ in range(2)] == ["top:arcade", "player:arcade:bob"]
        link.unsubscribe("top:arcade")
        link.subscribe("top:nowhere")
        error = link.next()
        assert error is not None
        assert (error.type, error.topic, error.data["status"]) == ("error", "top:nowhere", 404)
        submit(admin, "bob", 90)
        change = link.next()
        assert change is not None
        assert (change.topic, change.data["passed"]) == ("player:arcade:bob", ["alice"])
        assert link.next(3 * INTERVAL_MS / 1_000) is None


@KINDS
def test_a_client_that_comes_back_gets_what_it_missed(server: Serving, admin: httpx.Client, kind: str) -> None:
    watching = Watching(server.url, kind, "top:arcade")
    watching.next()
    watching.link.abort()
    submit(admin, "dave", 70)
    fine(admin.delete("/v1/boards/arcade/players/bob"))
    again = Watching(server.url, kind, "top:arcade", since=watching.table.last_id)
    again.table = watching.table
    first = again.next()
    again.until(lambda: again.table.entries == entries_of(fine(admin.get("/v1/boards/arcade/top"))))
    again.link.close()

    assert first.type == "change"
    assert set(again.table.entries) == {"alice", "carol", "dave"}


@KINDS
@pytest.mark.parametrize("since", ["00000000-1", "garbage", "-1", "'; DROP TABLE", "9" * 3_000])
def test_an_id_that_is_not_known_here_begins_anew(server: Serving, admin: httpx.Client, kind: str, since: str) -> None:
    watching = Watching(server.url, kind, "top:arcade", since=since)
    types = [watching.next().type, watching.next().type]
    watching.link.close()

    assert types == ["reset", "snapshot"]


@KINDS
def test_another_process_begins_anew(tmp_path: Path, kind: str) -> None:
    with serving(tmp_path / "data", config=CONFIG) as first:
        watching = Watching(first.url, kind, "top:arcade")
        since = watching.next().id
        watching.link.close()
        first.stop()
    with serving(tmp_path / "data", config=CONFIG) as second:
        again = Watching(second.url, kind, "top:arcade", since=since)
        assert [again.next().type, again.next().type] == ["reset", "snapshot"]
        again.link.close()


@KINDS
def test_however_fast_scores_come_the_interval_is_kept_and_the_newest_arrives(
    server: Serving, admin: httpx.Client, kind: str
) -> None:
    watching = Watching(server.url, kind, "top:arcade")
    watching.next()
    began, done = time.monotonic(), threading.Event()

    def send() -> None:
        with server.client(server.admin_key) as client:
            for score in range(100, 400):
                submit(client, "dave", score)
        done.set()

    sender = threading.Thread(target=send)
    sender.start()
    changes, bound = 0, LoadBound()
    while bound.take() and not (done.is_set() and watching.table.entries.get("dave", {}).get("score") == 399):
        changes += watching.next().type == "change"
    join_all([sender])
    took_ms = (time.monotonic() - began) * 1_000
    watching.link.close()

    assert 1 <= changes <= took_ms / INTERVAL_MS + 2
    assert changes < 300


@KINDS
def test_a_connection_may_ask_for_fewer_messages(server: Serving, admin: httpx.Client, kind: str) -> None:
    rest_ms = 500
    link: EventStream | Socket
    if kind == "sse":
        link = EventStream(server.url, "top:arcade", more=f"&interval_ms={rest_ms}")
    else:
        link = Socket(server.url, query=f"?interval_ms={rest_ms}")
        link.subscribe("top:arcade")
    assert link.next() is not None
    began, score, table = time.monotonic(), 100, Table()
    table.total = 0
    changes = 0
    while changes < 4:
        score += 1
        submit(admin, "dave", score)
        while (event := link.next(0)) is not None:
            table.apply(event)
            changes += 1
    took_ms = (time.monotonic() - began) * 1_000
    while table.entries["dave"]["score"] != score:
        event = link.next()
        assert event is not None
        table.apply(event)
    link.close()

    assert took_ms > 3 * rest_ms * 0.9


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 422),
        ("topic=nothing", 422),
        ("topic=top:nowhere", 404),
        ("topic=top:arcade@daily", 404),
        ("topic=top:arcade@weekly@clan:a", 404),
        ("topic=friends:arcade:bob", 401),
        ("topic=top:arcade&interval_ms=1", 422),
        ("topic=top:arcade&interval_ms=60001", 422),
        ("topic=top:arcade&topics=top:arcade", 422),
        ("&".join(f"topic=player:arcade:p{number}" for number in range(11)), 422),
        ("topic=top:arcade&ticket=rt_forged", 401),
    ],
)
def test_what_is_wrong_is_an_ordinary_problem(server: Serving, admin: httpx.Client, query: str, status: int) -> None:
    with server.client() as anybody:
        answer = anybody.get(f"/v1/stream?{query}")

    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text


@KINDS
def test_a_board_that_is_deleted_says_so_and_begins_anew_when_it_is_back(
    server: Serving, admin: httpx.Client, kind: str
) -> None:
    watching = Watching(server.url, kind, "top:arcade")
    watching.next()
    fine(admin.delete("/v1/boards/arcade"))
    ended = watching.next()
    assert (ended.type, ended.data["code"]) == ("reset", "board_unknown")
    fine(admin.put("/v1/boards/arcade", json={}))
    submit(admin, "erin", 5)
    watching.until(lambda: set(watching.table.entries) == {"erin"})
    watching.link.close()


@KINDS
def test_an_idle_connection_hears_that_the_server_is_there(server: Serving, admin: httpx.Client, kind: str) -> None:
    watching = Watching(server.url, kind, "top:arcade")
    watching.next()
    began = time.monotonic()
    wait_for(lambda: watching.link.next(0.05) is None and watching.link.heartbeats >= 3)
    took = time.monotonic() - began
    watching.link.close()

    assert took > 2 * HEARTBEAT_S


def test_a_stream_is_for_nobody_to_keep_and_is_not_compressed(server: Serving, admin: httpx.Client) -> None:
    with event_stream(server.url, "top:arcade") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in stream.headers


# The end


@pytest.mark.timed
def test_a_server_that_stops_ends_streams_and_does_not_wait_for_them(tmp_path: Path) -> None:
    with serving(tmp_path / "data", config=CONFIG) as server:
        watching = [Watching(server.url, kind, "top:arcade") for kind in ("sse", "ws") for _ in range(5)]
        for watcher in watching:
            watcher.next()
        resting = EventStream(server.url, "top:arcade", more="&interval_ms=60000").open()
        mute = EventStream(server.url, "top:arcade")
        codes: list[int] = []
        readers = [
            threading.Thread(target=lambda watcher=watcher: codes.append(watcher.end_code())) for watcher in watching
        ]
        for reader in readers:
            reader.start()
        began = time.monotonic()
        assert server.stop(signal.SIGTERM) == 0
        assert time.monotonic() - began < 5 * BUSY_MACHINE
        for reader in readers:
            reader.join(WAIT_S)
        assert codes == [1012] * len(watching)
        rest: list[Event] = []
        while (event := resting.next()) is not None:
            rest.append(event)
        assert rest[-1].type == "end"
        for link in (mute, resting, *(watcher.link for watcher in watching)):
            link.close()

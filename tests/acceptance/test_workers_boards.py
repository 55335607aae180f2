"""Workers that keep some boards only: whichever one is asked, the answer is that of one server."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.servers.waiting import WAIT_S, wait_until
from websockets.sync.client import unix_connect

from .workers_serving import WRITER, Workers, answered, running_workers

READER = 1
BOARDS: dict[str, dict[str, Any]] = {
    "clans": {"team": {"attribute": "clan", "by": "sum"}, "keep": "sum"},
    "arcade-clans": {"team": {"attribute": "clan", "by": "sum"}, "keep": "sum"},
    "arcade": {"keep": "sum", "windows": ["all_time", "daily"], "scopes": ["clan"], "feeds": ["clans"]},
    "words": {"keep": "sum", "windows": ["all_time", "daily"], "scopes": ["clan"], "feeds": ["arcade-clans"]},
}
PLAYERS = [f"p{number}" for number in range(8)]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    config = '[workers]\nboards = ["arcade*"]\n[push]\npush_interval_ms = 50\n'
    with running_workers(tmp_path_factory.mktemp("workers") / "data", config=config) as running:
        with running.admin(READER) as client:
            for board, definition in BOARDS.items():
                answered(client.put(f"/v1/boards/{board}", json=definition))
            play(client)
        yield running


def play(client: httpx.Client, score: int = 1) -> str:
    """Send scores of everybody to the boards that others are fed by; return the position."""
    events = [
        {"board": board, "player": player, "score": score + number, "attributes": {"clan": f"c{number % 2}"}}
        for board in ("arcade", "words")
        for number, player in enumerate(PLAYERS)
    ]
    return str(answered(client.post("/v1/scores/batch", json={"events": events}))["position"])


def entries_kept(workers: Workers, number: int) -> dict[str, float]:
    with workers.only(number) as client:
        text = client.get("/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("rankd_board_entries{") and f'"{number}"' in line]
    return {line.partition('board="')[2].partition('"')[0]: float(line.rpartition(" ")[2]) for line in lines}


READS = (
    "top?limit=5",
    "top?window=daily&scope=clan:c1",
    "range?first=2&last=4",
    "players/p3",
    "players/p3/around",
    "friends?player=p1&player=p2",
    "scores/3",
    "distribution",
    "players/p3/events",
    "",
)
WITH_POSITION = READS[:-2]


@pytest.mark.parametrize("board", BOARDS)
def test_every_read_is_answered_alike_by_every_worker(workers: Workers, board: str) -> None:
    with workers.admin(READER) as reader, workers.admin(WRITER) as writer:
        position = play(reader)
        for read in READS:
            path = f"/v1/boards/{board}/{read}".rstrip("/")
            if read in WITH_POSITION:
                path += f"{'&' if '?' in read else '?'}at_least={position}"
            written, read_here = (client.get(path) for client in (writer, reader))
            assert read_here.status_code == written.status_code, path
            assert shown(read_here) == shown(written), path
            for client in (writer, reader):
                head = client.head(path)
                assert (head.status_code, head.content) == (written.status_code, b"")
        ranks = [client.post(f"/v1/boards/{board}/ranks", json={"players": PLAYERS}) for client in (writer, reader)]
        assert shown(ranks[0]) == shown(ranks[1])


def shown(response: httpx.Response) -> Any:
    """Return an answer without when it was given."""
    body = response.json()
    for name in ("as_of", "request_id"):
        body.pop(name, None)
    return body


def test_a_worker_keeps_the_entries_of_its_boards_only(workers: Workers) -> None:
    wait_until(lambda: entries_kept(workers, READER).get("arcade-clans", 0) > 0)
    every, some = entries_kept(workers, WRITER), entries_kept(workers, READER)
    assert all(every[board] for board in BOARDS)
    assert some == {board: every[board] if board.startswith("arcade") else 0 for board in BOARDS}


def test_a_client_reads_what_it_wrote_to_any_board(workers: Workers) -> None:
    with workers.admin(READER) as client:
        for board in ("arcade", "words"):
            before = answered(client.get(f"/v1/boards/{board}/players/p0"))["score"]
            for more in range(1, 11):
                event = {"board": board, "player": "p0", "score": 1}
                assert answered(client.post("/v1/scores", json=event))["score"] == before + more
                assert answered(client.get(f"/v1/boards/{board}/players/p0"))["score"] == before + more


@pytest.mark.parametrize("topics", [["player:words:p0"], ["player:arcade:p0", "player:words:p0"]])
def test_a_stream_with_topics_of_other_boards_is_passed_through(workers: Workers, topics: list[str]) -> None:
    with workers.admin(READER) as client, workers.only(READER) as watching:
        before = answered(client.get("/v1/boards/words/players/p0"))["score"]
        with watching.stream("GET", "/v1/stream", params={"topic": topics}) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            for _ in topics:
                assert "words" in (data := next_data(lines)) or "arcade" in data
            answered(client.post("/v1/scores", json={"board": "words", "player": "p0", "score": 1}))
            assert f'"score":{before + 1}' in next_data(lines)
        assert watching.head("/v1/stream", params={"topic": topics}).status_code == 200
        refused = watching.get("/v1/stream", params={"topic": "player:words-unknown:p0"})
        assert (refused.status_code, refused.json()["code"]) == (404, "board_unknown")
    wait_until(lambda: streams_open(workers) == 0)  # the writer notices that the client has left


def next_data(lines: Iterator[str]) -> str:
    return next(line for line in lines if line.startswith("data:"))


def streams_open(workers: Workers) -> float:
    with workers.only(WRITER) as client:
        text = client.get("/metrics").text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("rankd_streams{"))


def test_a_ticket_opens_a_stream_of_another_board(workers: Workers) -> None:
    with workers.admin(READER) as client:
        ticket = answered(client.post("/v1/stream/tickets"))["ticket"]
    asked = {"topic": "top:words", "ticket": ticket}
    with workers.only(READER) as client, client.stream("GET", "/v1/stream", params=asked) as stream:
        assert stream.status_code == 200


def test_a_websocket_refuses_topics_of_other_boards_and_says_where_they_are(workers: Workers) -> None:
    path = str(workers.serving.folder / f"worker-{READER}.sock")
    with unix_connect(path, "ws://localhost/v1/ws") as connection:
        for topic, kind in (("top:words", "error"), ("top:arcade", "snapshot")):
            connection.send(json.dumps({"op": "subscribe", "topic": topic}))
            message = json.loads(connection.recv(WAIT_S))
            assert message["type"] == kind
            if kind == "error":
                assert message["problem"]["code"] == "ranks_unavailable"
                assert "/v1/stream" in message["problem"]["detail"]


def test_while_the_writer_is_away_the_boards_kept_are_read_and_streams_of_others_end(tmp_path: Path) -> None:
    config = '[workers]\nboards = ["arcade*"]\n'
    with running_workers(tmp_path / "data", config=config) as workers, workers.admin(READER) as client:
        for board, definition in BOARDS.items():
            answered(client.put(f"/v1/boards/{board}", json=definition))
        play(client)
        with client.stream("GET", "/v1/stream", params={"topic": "top:words"}) as stream:
            lines = stream.iter_lines()
            next_data(lines)
            os.kill(workers.supervisor, signal.SIGSTOP)  # so that nobody starts the writer again
            workers.kill(WRITER)
            assert not [line for line in lines if line.startswith("data:")]
        assert answered(client.get("/v1/boards/arcade/top"))["total"] == len(PLAYERS)
        for away in ("/v1/boards/words/top", "/v1/stream?topic=top:words"):
            refused = client.get(away)
            assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        os.kill(workers.supervisor, signal.SIGCONT)
        wait_until(lambda: client.get("/v1/boards/words/top").status_code == 200)

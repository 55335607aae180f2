"""`as_of` over HTTP: who may ask, what comes back, and that nobody else waits for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rankd.config.model import Config, RanksConfig
from rankd.ledger.port import Ledger
from rankd.node.open_embedded import embedded_of
from rankd.settings import Settings

from .in_process import InProcess, Reply, in_process

WAIT_S = 30
READS = (
    "/top?",
    "/range?from=1&to=2&",
    "/players/alice?",
    "/players/alice/around?",
    "/scores/5?",
    "/distribution?",
    "?",
)


def service_of(app: InProcess, *scopes: str, player: str | None = None) -> str:
    """Return the header of a new credential."""
    return f"Bearer {app.credentials.create('tester', list(scopes), player=player)[1]}"


async def before_and_after(app: InProcess) -> int:
    """Give alice 10 points and then 11, and return the instant between."""
    app.boards.define("arcade")
    app.boards.submit("arcade", "alice", 10)
    await asyncio.to_thread(time.sleep, 0.005)
    instant = time.time_ns() // 1_000_000
    await asyncio.to_thread(time.sleep, 0.005)
    app.boards.submit("arcade", "alice", 11)
    app.boards.submit("arcade", "bob", 12)
    return instant


async def post(app: InProcess, target: str, body: bytes, **headers: str) -> Reply:
    async def receive() -> Mapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return await app.ask("POST", target, receive, content_type="application/json", **headers)


def test_a_service_reads_the_board_as_it_was(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        instant = await before_and_after(app)
        service = service_of(app, "scores:write")
        reply = await app.get(f"/v1/boards/arcade/top?as_of={instant}", authorization=service)
        assert reply.status == 200
        answer = reply.json()
        assert [(entry["player"], entry["score"]) for entry in answer["entries"]] == [("alice", 10)]
        assert (answer["as_of"], answer["position"], answer["total"]) == (instant, "0-2", 1)
        assert reply.headers[b"cache-control"] == b"no-store"
        for read in READS:
            reply = await app.get(f"/v1/boards/arcade{read}as_of={instant}", authorization=service)
            assert reply.status == 200, (read, reply.body)
        for call in ("ranks", "friends"):
            reply = await post(
                app, f"/v1/boards/arcade/{call}?as_of={instant}", b'{"players":["bob","alice"]}', authorization=service
            )
            assert [entry["score"] for entry in reply.json()["entries"]] == [10]
        app.boards.set_friends("alice", ["bob"])
        reply = await app.get(f"/v1/boards/arcade/players/alice/friends?as_of={instant}", authorization=service)
        assert [entry["score"] for entry in reply.json()["entries"]] == [10]
        reply = await app.get(f"/v1/boards/arcade/players/bob?as_of={instant}", authorization=service)
        assert (reply.status, reply.json()["code"], reply.json()["as_of"]) == (404, "player_absent", instant)

    in_process(tmp_path, test)


def test_nobody_but_a_service_may(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        instant = await before_and_after(app)
        player = service_of(app, "read", player="alice")
        for headers in ({}, {"authorization": player}):
            reply = await app.get(f"/v1/boards/arcade/top?as_of={instant}", **headers)
            assert (reply.status, reply.json()["code"]) == (403, "forbidden")
            assert "services and administrators" in reply.json()["detail"]
        assert embedded_of(app.boards).past.computed == 0

    in_process(tmp_path, test)


def test_what_cannot_be_asked_names_the_field(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        await before_and_after(app)
        service = service_of(app, "boards:admin")
        for query, field in (
            ("as_of=soon", "as_of"),
            ("as_of=-1", "as_of"),
            ("as_of=7258118399999", "as_of"),
            ("as_of=99999999999999999999", "as_of"),
            ("as_of=1&at_least=0-1", "at_least"),
        ):
            reply = await app.get(f"/v1/boards/arcade/top?{query}", authorization=service)
            assert (reply.status, reply.json()["errors"][0]["field"]) == (422, field), query
        reply = await app.get("/v1/boards/arcade/top?as_of=1", authorization=service)
        assert (reply.status, reply.json()["code"]) == (404, "board_unknown")
        reply = await app.get("/v1/players/alice?as_of=1", authorization=service)
        assert reply.status == 422

    in_process(tmp_path, test)


@contextmanager
def held(app: InProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold every computation until the event is set."""
    may_go, states = threading.Event(), embedded_of(app.boards).past
    open_ledger = states._open_ledger

    @contextmanager
    def opened() -> Iterator[Ledger]:
        assert may_go.wait(WAIT_S)
        with open_ledger() as ledger:
            yield ledger

    monkeypatch.setattr(states, "_open_ledger", opened)
    try:
        yield may_go
    finally:
        may_go.set()


def test_while_it_is_worked_out_others_are_answered_and_who_waited_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(app: InProcess) -> None:
        instant = await before_and_after(app)
        target, service = f"/v1/boards/arcade/top?as_of={instant}", service_of(app, "scores:write")
        with held(app, monkeypatch) as may_go:
            waiting = [asyncio.create_task(app.get(target, authorization=service)) for _ in range(20)]
            for _ in range(50):
                assert (await app.get("/v1/boards/arcade/top?limit=500")).status == 200  # in a thread
                assert (await app.get("/v1/boards/arcade/distribution")).status == 200
            for reply in await asyncio.gather(*waiting):
                assert (reply.status, reply.json()["code"]) == (503, "behind")
                assert reply.headers[b"retry-after"] == b"1"
            may_go.set()
        deadline = time.monotonic() + WAIT_S
        while (reply := await app.get(target, authorization=service)).status == 503:
            assert time.monotonic() < deadline
        assert reply.json()["entries"][0]["score"] == 10

    in_process(tmp_path, test, Config(ranks=RanksConfig(as_of_wait_ms=200)))


def test_the_server_and_the_library_wait_equally_long() -> None:
    ranks, settings = RanksConfig(), Settings()
    assert (ranks.as_of_wait_ms, ranks.as_of_max) == (settings.as_of_wait_ms, settings.as_of_max)

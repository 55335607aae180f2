"""Bursts are spread over turns of the event loop, and what has ended leaves nothing for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from tests.unit.api.http.serving import RawClient, answering, eventually, run, serving

from rankd.api.http.connection import HttpConnection
from rankd.api.http.exchange import HttpExchange
from rankd.api.http.server import HttpServer
from rankd.api.http.turns import PER_TURN_MAX, TurnQueue
from rankd.api.http.websocket import WebSocketExchange

CLIENTS = 100
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
BEGUN = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 100000000\r\n\r\n"
HANDSHAKE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class TurnCounter:
    """Counts what happens in each turn of the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turn = 0
        self._next: asyncio.Handle = self._loop.call_soon(self._count)
        self.by_turn: Counter[int] = Counter()

    def _count(self) -> None:
        self._turn += 1
        self._next = self._loop.call_soon(self._count)

    def note(self) -> None:
        """Something happens in this turn."""
        self.by_turn[self._turn] += 1

    def stop(self) -> None:
        """Let the event loop rest again."""
        self._next.cancel()


async def connected(server: HttpServer) -> list[RawClient]:
    return [await RawClient.to(server) for _ in range(CLIENTS)]


def test_a_turn_does_no_more_than_its_share_in_order_of_arrival() -> None:
    async def test() -> None:
        turns, counter, done = TurnQueue(asyncio.get_running_loop()), TurnCounter(), list[int]()

        def work(number: int) -> None:
            counter.note()
            done.append(number)

        for number in range(CLIENTS):
            turns.add(partial(work, number))
        await eventually(lambda: len(done) == CLIENTS)
        counter.stop()
        assert done == list(range(CLIENTS))
        assert max(counter.by_turn.values()) == PER_TURN_MAX

    run(test)


def test_work_that_fails_is_logged_and_keeps_nothing_else_from_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        turns, done = TurnQueue(asyncio.get_running_loop()), list[bool]()
        turns.add(fail)
        turns.add(lambda: done.append(True))
        await eventually(lambda: bool(done))

    def fail() -> None:
        raise OSError("as a test wants it")

    run(test)
    assert "a connection failed" in caplog.text


def test_first_requests_of_many_connections_start_a_few_in_a_turn() -> None:
    async def test() -> None:
        counter = TurnCounter()
        answer = answering()

        async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Any) -> None:
            counter.note()
            await answer(scope, receive, send)

        async with serving(app) as server:
            clients = await connected(server)
            for client in clients:
                client.writer.write(GET)
            for client in clients:
                assert (await client.response())[0] == 200
                client.close()
        counter.stop()
        assert counter.by_turn.total() == CLIENTS
        assert max(counter.by_turn.values()) <= PER_TURN_MAX

    run(test)


def test_a_request_on_a_connection_that_was_answered_before_waits_for_no_others() -> None:
    async def test() -> None:
        started: list[bytes] = []
        answer = answering()

        async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Any) -> None:
            started.append(scope["raw_path"])
            await answer(scope, receive, send)

        async with serving(app) as server:
            known = await RawClient.to(server)
            await known.send(GET)
            await known.response()
            clients = await connected(server)
            for client in (*clients, known):  # the known one sends last
                client.writer.write(GET if client is not known else GET.replace(b"/ ", b"/known "))
            assert (await known.response())[0] == 200
            assert started.index(b"/known") < CLIENTS
            await eventually(lambda: len(started) == CLIENTS + 2)
            for client in (*clients, known):
                client.close()

    run(test)


def test_of_many_bodies_that_go_on_a_few_are_read_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        counter = TurnCounter()
        read = HttpConnection.buffer_updated
        begun: set[HttpConnection] = set()

        def counted(connection: HttpConnection, size: int) -> None:
            if (
                connection in begun
            ):  # what comes first, on all connections at once, cannot be distinguished from a request
                counter.note()
            begun.add(connection)
            read(connection, size)

        async def app(_scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], _send: Any) -> None:
            while (await receive()).get("more_body", False):
                pass

        monkeypatch.setattr(HttpConnection, "buffer_updated", counted)
        async with serving(app) as server:
            clients = await connected(server)
            for client in clients:
                client.writer.write(BEGUN + b" " * 200_000)
            await eventually(lambda: counter.by_turn.total() >= 5 * CLIENTS)
            for client in clients:
                client.close()
        counter.stop()
        assert max(counter.by_turn.values()) <= PER_TURN_MAX

    run(test)


def live_exchanges(*kinds: type) -> int:
    """How many objects of connections there are."""
    kinds = kinds or (HttpConnection, HttpExchange, WebSocketExchange)
    return sum(isinstance(thing, kinds) for thing in gc.get_objects())


async def _whole(client: RawClient) -> None:
    await client.send(GET)
    await client.response()


async def _refused(client: RawClient) -> None:
    await client.send(b"nonsense\r\n\r\n")


async def _handshake(client: RawClient) -> None:
    await client.send(HANDSHAKE)
    await client.reader.readuntil(b"\r\n\r\n")


ENDED: dict[str, Callable[[RawClient], Awaitable[None]]] = {
    "a request": _whole,
    "half a head": lambda client: client.send(GET[:-4]),
    "half a body": lambda client: client.send(BEGUN + b" " * 1_000),
    "a request that is left": lambda client: client.send(GET.replace(b"/ ", b"/slow ")),
    "nonsense": _refused,
    "a WebSocket": _handshake,
}


@pytest.mark.parametrize("kind", ENDED)
def test_a_connection_that_has_ended_is_freed_without_a_garbage_collection(kind: str) -> None:
    answer = answering()

    async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            while (await receive())["type"] != "websocket.disconnect":
                pass
        elif scope["path"] == "/slow":
            await asyncio.get_running_loop().create_future()
        else:
            await answer(scope, receive, send)

    async def test() -> None:
        async with serving(app) as server:
            for _ in range(3):
                client = await RawClient.to(server)
                await eventually(lambda: len(server.connections) == 1)
                await ENDED[kind](client)
                client.close()
                await eventually(lambda: not server.connections)
            await eventually(lambda: live_exchanges() <= before)

    gc.collect()
    before = live_exchanges()
    gc.disable()
    try:
        run(test)
    finally:
        gc.enable()


def test_a_connection_that_is_refused_keeps_no_body_while_its_client_still_sends() -> None:
    async def app(_scope: dict[str, Any], _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def test() -> None:
        async with serving(app) as server:
            client = await RawClient.to(server)
            await client.send(BEGUN + b" " * 30_000)
            assert (await client.response())[0] == 413
            await eventually(lambda: live_exchanges(HttpExchange) <= before)
            assert len(server.connections) == 1
            client.close()

    gc.collect()
    before = live_exchanges(HttpExchange)
    run(test)

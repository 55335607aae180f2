"""WebSocket connections: with another implementation's client, and with raw bytes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.api.http.serving import RawClient, eventually, run, serving
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from rankd.api.http.server import HttpServer
from rankd.api.http.websocket import WAITING_MESSAGES_MAX

HANDSHAKE = (
    b"GET /ws?a=b HTTP/1.1\r\nHost: here\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Echo:
    """Answers each text with the same; remembers how connections ended."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.going = asyncio.Event()
        self.going.set()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        assert scope["type"] == "websocket"
        assert (await receive())["type"] == "websocket.connect"
        if scope["path"] != "/ws":
            await send({"type": "websocket.close", "code": 1008, "reason": "not here"})
            return
        await send({"type": "websocket.accept"})
        while True:
            await self.going.wait()
            message = await receive()
            if message["type"] == "websocket.disconnect":
                self.ended.append(message["code"])
                return
            if message.get("text") == "bye":
                await send({"type": "websocket.close", "code": 4000, "reason": "as you wish"})
                return
            await send({"type": "websocket.send", "text": message.get("text") or "no text"})


def url(server: HttpServer, path: str = "/ws") -> str:
    return f"ws://127.0.0.1:{server.port}{path}"


async def opened(server: HttpServer) -> RawClient:
    client = await RawClient.to(server)
    await client.send(HANDSHAKE)
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
    return client


def masked(opcode: Opcode, payload: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, payload, fin).serialize(mask=True)


async def close_code_of(client: RawClient) -> int:
    """Return the code of the close frame that comes, whatever comes before it."""
    while True:
        first, second = await client.reader.readexactly(2)
        size = int.from_bytes(await client.reader.readexactly(2), "big") if second == 126 else second
        payload = await client.reader.readexactly(size)
        if first & 15 == Opcode.CLOSE:
            return int.from_bytes(payload[:2], "big")


def test_messages_pings_and_the_end_of_a_connection() -> None:
    async def test() -> None:
        echo = Echo()
        async with serving(echo) as server:
            async with connect(url(server)) as client:
                for size in (1, 125, 126, 4_096):
                    await client.send("x" * size)
                    assert await client.recv() == "x" * size
                await (await client.ping(b"here"))
            await eventually(lambda: echo.ended == [1000])
            async with connect(url(server)) as client:
                await client.send("bye")
                with pytest.raises(ConnectionClosed) as closed:
                    await client.recv()
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4000, "as you wish")
            with pytest.raises(InvalidStatus) as refused:
                await connect(url(server, "/other"))
            assert refused.value.response.status_code == 403
            assert refused.value.response.headers["x-content-type-options"] == "nosniff"

    run(test)


@pytest.mark.parametrize(
    ("status", "old", "new"),
    [
        (400, b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b""),
        (400, b"dGhlIHNhbXBsZSBub25jZQ==", b"c2hvcnQ="),
        (400, b"Sec-WebSocket-Version: 13\r\n", b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n"),
        (426, b"Version: 13", b"Version: 8"),
        (400, b"Host: here\r\n", b""),
    ],
)
def test_a_handshake_that_is_none_is_refused(status: int, old: bytes, new: bytes) -> None:
    async def test() -> None:
        async with serving(Echo()) as server:
            client = await RawClient.to(server)
            await client.send(HANDSHAKE.replace(old, new))
            assert (await client.until_closed()).startswith(b"HTTP/1.1 %d " % status)

    run(test)


BROKEN = {
    "a frame too large": (1009, b"\x82\xff" + (1 << 62).to_bytes(8, "big")),
    "no mask": (1002, b"\x81\x01a"),
    "no UTF-8": (1007, masked(Opcode.TEXT, b"\xff")),
    "a flood of pings": (1008, masked(Opcode.PING, b"") * 1_000),
    "a flood of fragments": (
        1008,
        masked(Opcode.TEXT, b"", fin=False) + masked(Opcode.CONT, b"", fin=False) * 1_000,
    ),
}


@pytest.mark.parametrize(("code", "data"), BROKEN.values(), ids=BROKEN)
def test_a_client_that_breaks_the_protocol_or_a_limit_gets_a_code_and_is_cut(code: int, data: bytes) -> None:
    async def test() -> None:
        echo = Echo()
        async with serving(echo) as server:
            client = await opened(server)
            await client.send(data)
            assert await close_code_of(client) == code
            client.close()
            await eventually(lambda: len(server.connections) == 0)
        assert echo.ended == [code]

    run(test)


def test_a_client_may_be_ahead_of_the_application_a_little() -> None:
    async def test() -> None:
        echo = Echo()
        async with serving(echo) as server, connect(url(server)) as client:
            echo.going.clear()
            count = 5 * WAITING_MESSAGES_MAX
            for number in range(count):
                await client.send(str(number))
            echo.going.set()
            assert [await client.recv() for _ in range(count)] == [str(number) for number in range(count)]

    run(test)


def test_a_client_far_ahead_of_the_application_waits() -> None:
    async def test() -> None:
        echo, held = Echo(), 0
        async with serving(echo) as server:
            client = await opened(server)
            echo.going.clear()
            count = 190
            sending = asyncio.create_task(client.send(masked(Opcode.TEXT, b"x" * 4_096) * count))
            await asyncio.wait([sending], timeout=0.3)
            held = max(connection.held_bytes for connection in server.connections)
            assert held <= 64 * 1024
            echo.going.set()
            for _ in range(count):
                assert len(await client.reader.readexactly(4 + 4_096)) == 4_100
            await sending
            client.close()

    run(test)


def test_a_client_that_ignores_the_close_frame_is_cut() -> None:
    async def test() -> None:
        async with serving(Echo()) as server:
            client = await opened(server)
            await client.send(b"\x81\x01a")
            assert await close_code_of(client) == 1002
            await eventually(lambda: len(server.connections) == 0)  # without another word of the client's
            client.close()

    run(test)


def test_a_client_that_vanishes_is_noticed() -> None:
    async def test() -> None:
        echo = Echo()
        async with serving(echo) as server:
            client = await opened(server)
            client.writer.transport.abort()
            await eventually(lambda: echo.ended == [1006])

    run(test)

"""A real server on loopback with an application that a test writes, and a client of raw bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from rankd.api.http.server import Application, HttpServer
from rankd.config.model import Config, LimitsConfig, ServerConfig

DEADLINE_S = 60.0
POLL_S = 0.005


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test on the event loop that the server has in production."""

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await test()

    uvloop.run(bounded())


@asynccontextmanager
async def serving(app: Application, limits: LimitsConfig | None = None, **options: Any) -> AsyncIterator[HttpServer]:
    server = HttpServer(app, Config(server=ServerConfig(port=0), limits=limits or LimitsConfig()), **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class RawClient:
    """A connection on which a test sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, server: HttpServer) -> RawClient:
        return cls(*await asyncio.open_connection("127.0.0.1", server.port))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_closed(self) -> bytes:
        try:
            return await self.reader.read(-1)
        except ConnectionResetError:
            return b""
        finally:
            self.close()

    async def response(self) -> tuple[int, dict[bytes, bytes], bytes]:
        """Read one response that says its length."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        status, *lines = head[:-4].split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines)
        body = await self.reader.readexactly(int(headers.get(b"content-length", b"0")))
        return int(status.split()[1]), headers, body

    def close(self) -> None:
        self.writer.close()


async def exchange(server: HttpServer, data: bytes) -> bytes:
    """Send bytes on a connection of their own, and return all that comes until the server closes it."""
    client = await RawClient.to(server)
    await client.send(data)
    return await client.until_closed()


def answering(body: bytes = b"hello") -> Application:
    """Return an application that reads the request and answers with the same each time."""

    async def app(_scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        while (await receive()).get("more_body", False):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": body})

    return app


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so; the test's own deadline bounds it."""
    while not condition():
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=POLL_S)

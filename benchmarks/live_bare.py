"""The least a server of events can do: streams that all get the same bytes.

GET opens a stream, which begins with as many bytes as a snapshot has; POST sends its body to every stream.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from benchmarks.bare_server import run_bare
from benchmarks.live_config import REQUESTS_MAX
from rankd.config.model import Config, LimitsConfig, ServerConfig

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
EVENTS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


class BareLive(msgspec.Struct, frozen=True):
    """Where to listen, and how long a stream's first event is."""

    port: int
    first_bytes: int


class Streams:
    """Every open stream waits for the next event."""

    def __init__(self, first_bytes: int) -> None:
        self._first = b"data: " + b"x" * max(0, first_bytes - 8) + b"\n\n"
        self._next: asyncio.Future[bytes] | None = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            message = await receive()
            self._tell(message["body"])
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})
        elif scope["path"] == "/":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})
        else:
            await self._stream(receive, send)

    def _tell(self, body: bytes) -> None:
        waiting, self._next = self._next, None
        if waiting is not None:
            waiting.set_result(body)

    async def _stream(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
        gone = asyncio.create_task(_until_gone(receive))
        frame = self._first
        while not gone.done():
            await send({"type": "http.response.body", "body": frame, "more_body": True})
            if self._next is None:
                self._next = asyncio.get_running_loop().create_future()
            frame = await asyncio.shield(self._next)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.argv[1], type=BareLive)
    config = Config(server=ServerConfig(port=asked.port), limits=LimitsConfig(requests_max=REQUESTS_MAX))
    run_bare(Streams(asked.first_bytes), config, "granian")

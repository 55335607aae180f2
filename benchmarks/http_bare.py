"""The least a server can do: the same HTTP server with the same settings, and a handler that knows its answer.

GET is answered with as many bytes as a rank has; POST with the same, once its body has been read.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec
import uvloop

from rankd import serving
from rankd.api.app import App
from rankd.config.model import Config, Server

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Bare(msgspec.Struct, frozen=True):
    """Where to listen, and how long the answer is."""

    port: int
    body_bytes: int


def bare_app(body_bytes: int) -> Callable[[dict[str, Any], Receive, Send], Awaitable[None]]:
    body = b"x" * body_bytes
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % body_bytes)]

    async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            while (await receive()).get("more_body", False):
                pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


async def _serve(asked: Bare) -> None:
    app = cast("App", bare_app(asked.body_bytes))
    server = serving._make_server(app, Config(server=Server(port=asked.port)))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    listening = asyncio.create_task(server.serve())
    await stop.wait()
    server.stop()  # type: ignore[no-untyped-call]
    await listening


if __name__ == "__main__":
    sys.setswitchinterval(serving.SWITCH_INTERVAL_S)
    uvloop.run(_serve(msgspec.json.decode(sys.argv[1], type=Bare)))

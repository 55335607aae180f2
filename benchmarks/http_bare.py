"""The least a server can do: a handler that knows its answer.

GET is answered with as many bytes as a rank has; POST with the same, once its body has been read.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from benchmarks.bare_server import ServerName, run_bare
from rankd.config.model import Config, ServerConfig

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Bare(msgspec.Struct, frozen=True):
    """Where to listen, and how long the answer is."""

    port: int
    body_bytes: int
    server: ServerName


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


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.argv[1], type=Bare)
    run_bare(bare_app(asked.body_bytes), Config(server=ServerConfig(port=asked.port)), asked.server)

"""The real application in this process, on an event loop of its own: requests without a network, and what they cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import rankd
from rankd.api.app import App
from rankd.api.auth.authentication import Authenticator
from rankd.api.auth.signing import Signatures
from rankd.api.service import Service
from rankd.clock import SystemClock
from rankd.config.model import Config, LimitsConfig, ServerConfig
from rankd.registry.credentials import Scope
from rankd.registry.sqlite.credentials import SqliteCredentials

DEADLINE_S = 60.0
CONFIG = Config(server=ServerConfig(trusted_proxies=("192.0.2.0/24",)), limits=LimitsConfig(player_writes_per_s=0))
PEER = ("192.0.2.1", 40_000)


class Answer(NamedTuple):
    """What came back, and what it took: processor time of the event loop's thread, and of all threads."""

    status: int
    body: bytes
    loop_s: float
    process_s: float

    @property
    def problem(self) -> dict[str, Any]:
        problem: dict[str, Any] = msgspec.json.decode(self.body)
        return problem


class InProcess:
    """An application whose loop runs while it is asked something."""

    def __init__(self, runner: asyncio.Runner, app: App, boards: rankd.Boards, keys: Mapping[str, str]) -> None:
        self._runner = runner
        self._app = app
        self.boards = boards
        self.keys = keys

    def ask(
        self,
        method: str,
        path: str | bytes,
        *,
        who: str | None = None,
        query: bytes = b"",
        headers: Mapping[str, bytes] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Make one request by HTTP; `who` is one of the keys."""
        raw_path = path if isinstance(path, bytes) else path.encode()
        scope = self._scope("http", raw_path, query, {} if headers is None else headers, who) | {"method": method}
        received: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[dict[str, Any]] = []
        loop_s, process_s = self._run(scope, received, {"type": "http.disconnect"}, sent)
        status = next(message["status"] for message in sent if message["type"] == "http.response.start")
        return Answer(status, b"".join(message["body"] for message in sent if "body" in message), loop_s, process_s)

    def converse(self, frames: list[str], query: bytes = b"") -> tuple[list[dict[str, Any]], float]:
        """Open a WebSocket connection, say these frames and go; return what was sent, and the loop's time."""
        received = [{"type": "websocket.connect"}, *({"type": "websocket.receive", "text": frame} for frame in frames)]
        sent: list[dict[str, Any]] = []
        scope = self._scope("websocket", b"/v1/ws", query, {}, None)
        loop_s, _ = self._run(scope, received, {"type": "websocket.disconnect"}, sent)
        return sent, loop_s

    def _scope(
        self, kind: str, path: bytes, query: bytes, headers: Mapping[str, bytes], who: str | None
    ) -> dict[str, Any]:
        listed = [(name.encode(), value) for name, value in headers.items()]
        if who is not None:
            listed.append((b"authorization", f"Bearer {self.keys[who]}".encode()))
        return {
            "type": kind,
            "path": path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
            "headers": listed,
            "client": PEER,
        }

    def _run(
        self, scope: dict[str, Any], received: list[dict[str, Any]], last: dict[str, Any], sent: list[dict[str, Any]]
    ) -> tuple[float, float]:
        async def receive() -> dict[str, Any]:
            await asyncio.to_thread(lambda: None)  # others have their turn
            return received.pop(0) if received else last

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async def ask() -> tuple[float, float]:
            loop_began_s, began_s = time.thread_time(), time.process_time()
            await asyncio.wait_for(self._app(scope, receive, send), DEADLINE_S)
            return time.thread_time() - loop_began_s, time.process_time() - began_s

        return self._runner.run(ask())


@contextmanager
def in_process(folder: Path) -> Iterator[InProcess]:
    """Open boards and an application over them, with a key for an administrator and one for the player `mallory`."""
    with (
        rankd.open(folder) as boards,
        SqliteCredentials(folder, SystemClock()) as credentials,
        asyncio.Runner() as loop,
    ):
        keys = {
            "admin": credentials.create("admin", scopes=list(Scope))[1],
            "mallory": credentials.create("mallory", scopes=[], player="mallory")[1],
        }

        async def start() -> tuple[App, Service]:
            clock = SystemClock()
            service = Service(boards, CONFIG, Authenticator(credentials, None, clock), Signatures(credentials, clock))
            app = App(CONFIG)
            app.start(service)
            service.go_live()
            return app, service

        app, service = loop.run(start())
        try:
            yield InProcess(loop, app, boards, keys)
        finally:

            async def stop() -> None:
                if service.live is not None:
                    service.live.stop()
                await asyncio.to_thread(service.stop)

            loop.run(stop())

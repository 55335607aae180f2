"""The application over boards of its own, asked without a socket: a request is a task, and can be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import rankd
from rankd import Boards
from rankd.api.app import App
from rankd.api.auth.authentication import Authenticator
from rankd.api.auth.signing import Signatures
from rankd.api.http.request import Receive
from rankd.api.service import Service
from rankd.clock import SystemClock
from rankd.config.model import Config
from rankd.registry.sqlite.credentials import SqliteCredentials

DEADLINE_S = 60


class Reply(NamedTuple):
    """What was answered."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class InProcess:
    """An application that answers."""

    def __init__(self, boards: Boards, service: Service, app: App, credentials: SqliteCredentials) -> None:
        self.boards = boards
        self.credentials = credentials
        self.service = service
        self.app = app

    async def get(self, target: str, **headers: str) -> Reply:
        """Read, and wait for the answer; `accept_encoding="gzip"` is a header."""

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b""}

        return await self.ask("GET", target, receive, **headers)

    async def ask(self, method: str, target: str, receive: Receive, **headers: str) -> Reply:
        """Make a request whose body `receive` gives out, and wait for the answer."""
        path, _, query = target.partition("?")
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
        }
        await self.app(scope, receive, send)
        return Reply(sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"])


def in_process(folder: Path, test: Callable[[InProcess], Awaitable[Any]], config: Config | None = None) -> Any:
    """Run a test with an application, and stop it as the server does."""
    chosen = Config() if config is None else config

    async def run(boards: Boards) -> Any:
        clock = SystemClock()
        with SqliteCredentials(folder, clock) as credentials:
            service = Service(boards, chosen, Authenticator(credentials, None, clock), Signatures(credentials, clock))
            app = App(chosen)
            app.start(service)
            try:
                return await asyncio.wait_for(test(InProcess(boards, service, app, credentials)), DEADLINE_S)
            finally:
                await asyncio.to_thread(service.stop)

    with rankd.open(folder) as boards:
        return asyncio.run(run(boards))

"""Both clients against a server that follows a script, called in the same way."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import pytest

from rankd.client import AsyncClient, Client
from rankd.client.retries import Retries

from .scripted import ScriptedServer

Connect = Callable[..., Any]


class Waited:
    """An AsyncClient whose verbs are waited for, so that a test is written once for both clients."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            made = method(*args, **kwargs)
            if inspect.isasyncgen(made):
                return self._runner.run(_collected(made))
            return self._runner.run(made)

        return call


async def _collected(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture(params=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest, server: ScriptedServer) -> Iterator[Connect]:
    """Make clients of one kind or the other, which hardly pause between attempts unless a test asks for it."""
    made: list[Any] = []
    with asyncio.Runner() as runner:

        def make(url: str | None = None, token: str | None = None, **options: Any) -> Any:
            kind = Client if request.param == "Client" else AsyncClient
            client = kind(server.url if url is None else url, token, **options)
            retries = client._connection.retries
            hasty = Retries(retries_max=retries.retries_max, total_s=retries.total_s, backoff_s=0.001)
            client._connection = msgspec.structs.replace(client._connection, retries=hasty)
            made.append(client if isinstance(client, Client) else Waited(client, runner))
            return made[-1]

        yield make
        for client in made:
            client.close()


@pytest.fixture
def client(connect: Connect) -> Any:
    return connect()

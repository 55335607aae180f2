"""TLS: a connection counts from the moment it is accepted, long before its handshake is over."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.servers.tls import Authority
from tests.unit.api.http.serving import RawClient, answering, eventually, run

from rankd.api.http import tls
from rankd.api.http.server import HttpServer
from rankd.config.model import Config, LimitsConfig, ServerConfig

GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


@asynccontextmanager
async def secured(folder: Path, limits: LimitsConfig | None = None) -> AsyncIterator[tuple[HttpServer, ssl.SSLContext]]:
    authority = Authority(folder)
    certificate, key = authority.sign("server")
    config = Config(
        server=ServerConfig(port=0, tls_cert=str(certificate), tls_key=str(key)),
        limits=limits or LimitsConfig(),
    )
    server = HttpServer(answering(), config)
    await server.start()
    try:
        yield server, ssl.create_default_context(cafile=authority.certificate)
    finally:
        await server.stop()


async def client_of(server: HttpServer, context: ssl.SSLContext) -> RawClient:
    return RawClient(*await asyncio.open_connection("127.0.0.1", server.port, ssl=context))


async def ask(server: HttpServer, context: ssl.SSLContext) -> tuple[RawClient, int]:
    client = await client_of(server, context)
    await client.send(GET)
    return client, (await client.response())[0]


def test_requests_are_answered_one_after_the_other(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as (server, context):
            client, status = await ask(server, context)
            assert status == 200
            await client.send(GET)
            assert (await client.response())[2] == b"hello"
            client.close()
            await eventually(lambda: not server._connections)

    run(test)


def test_a_handshake_that_does_not_end_counts_as_a_connection_of_its_address(tmp_path: Path) -> None:
    async def test() -> None:
        limits = LimitsConfig(connections_per_address_max=2)
        async with secured(tmp_path, limits) as (server, context):
            silent = [await RawClient.to(server) for _ in range(4)]
            # Each of the last two took the place of the one that had waited longest.
            assert [await client.until_closed() for client in silent[:2]] == [b"", b""]
            assert len(server._connections) == 2
            client, status = await ask(server, context)
            assert status == 200
            assert await silent[2].until_closed() == b""
            assert len(server._connections) == 2
            client.close()
            silent[3].close()

    run(test)


def test_a_connection_that_is_one_too_many_is_cut_before_its_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with secured(tmp_path) as (server, context):
            monkeypatch.setattr(server, "admit", lambda _connection: False)
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await client_of(server, context)

    run(test)


def test_a_handshake_that_takes_too_long_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_S", 0.2)

    async def test() -> None:
        async with secured(tmp_path) as (server, _):
            client = await RawClient.to(server)
            await eventually(lambda: len(server._connections) == 1)
            assert await client.until_closed() == b""
            await eventually(lambda: len(server._connections) == 0)

    run(test)


def test_a_client_that_speaks_no_tls_is_cut_and_counts_no_longer(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as (server, _):
            client = await RawClient.to(server)
            await client.send(GET)
            assert not (await client.until_closed()).startswith(b"HTTP")
            await eventually(lambda: len(server._connections) == 0)

    run(test)

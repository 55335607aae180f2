"""Listens, and holds what all connections share: limits, deadlines, and the end of all of them."""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from email.utils import formatdate
from typing import Any

from rankd.api.http.connection import HttpConnection
from rankd.config.model import Config
from rankd.errors import AddressTaken

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

BACKLOG = 1_024
READ_BYTES_MAX = 32 * 1024  # taken from one connection at a time
SWEEP_EVERY_S = 1.0
TLS_HANDSHAKE_S = 10.0
SPARE_FILES = 256  # beside those of connections: the ledger, snapshots, logs


class HttpServer:
    """An HTTP/1.1 and WebSocket server for one ASGI application; on one event loop."""

    def __init__(
        self, app: Application, config: Config, count_malformed: Callable[[int], None] = lambda _status: None
    ) -> None:
        """`count_malformed` hears of requests that were refused before they could be read."""
        server, limits = config.server, config.limits
        self.app = app
        self.count_malformed = count_malformed
        self.header_bytes_max = limits.header_bytes_max
        self.header_read_s = limits.header_read_ms / 1_000
        self.keep_alive_s = limits.keep_alive_ms / 1_000
        self.is_stopping = False
        self.date_line = _date_line()
        self.read_buffer = memoryview(bytearray(READ_BYTES_MAX))
        self._host, self._port = server.host, server.port
        self._tls = _tls_context(server.tls_cert, server.tls_key) if server.tls_cert else None
        self.scheme = "https" if self._tls else "http"
        self._connections_max = limits.requests_max
        self._connections: dict[HttpConnection, None] = {}  # the oldest first
        self._listener: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self.loop: asyncio.AbstractEventLoop

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._listener is None:
            return self._port
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Begin to listen; AddressTaken where somebody else does."""
        self.loop = asyncio.get_running_loop()
        _raise_file_limit(self._connections_max + SPARE_FILES)
        try:
            self._listener = await self.loop.create_server(
                lambda: HttpConnection(self),
                self._host,
                self._port,
                backlog=BACKLOG,
                ssl=self._tls,
                ssl_handshake_timeout=TLS_HANDSHAKE_S if self._tls else None,
            )
        except OSError as problem:
            raise AddressTaken(
                f"server.host, server.port: cannot listen on {self._host} port {self._port}: {problem.strerror}"
            ) from None
        self._sweeping = self.loop.create_task(self._sweep())

    def admit(self, connection: HttpConnection) -> bool:
        """Take a connection, in place of an idle one where there are as many as there may be."""
        if self.is_stopping:
            return False
        if len(self._connections) >= self._connections_max:
            idle = next((one for one in self._connections if one.deadline), None)
            if idle is None:
                return False
            del self._connections[idle]
            idle.abort()
        self._connections[connection] = None
        return True

    def forget(self, connection: HttpConnection) -> None:
        """A connection has ended."""
        self._connections.pop(connection, None)

    @property
    def connections(self) -> Collection[HttpConnection]:
        """All open connections."""
        return self._connections.keys()

    async def _sweep(self) -> None:
        """Cut those who take too long to send a request's head, or to send another one."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            self.date_line = _date_line()
            now = self.loop.time()
            for connection in [one for one in self._connections if 0 < one.deadline <= now]:
                connection.time_out()

    def stop_listening(self) -> None:
        """Take no more connections, close those that are idle, and let each other one end with its answer."""
        self.is_stopping = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close_if_idle()

    async def stop(self) -> None:
        """Cut whatever is left."""
        self.stop_listening()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # the event loop closes what was cut


def _date_line() -> bytes:
    return f"date: {formatdate(usegmt=True)}\r\n".encode()


def _tls_context(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key or None)
    return context


def _raise_file_limit(files: int) -> None:
    """Let the process have a file for each connection, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (files if hard == resource.RLIM_INFINITY else min(files, hard), hard)
        )

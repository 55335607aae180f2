"""Listens, and holds what all connections share: limits, deadlines, and the end of all of them."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Awaitable, Callable, Hashable, Mapping
from email.utils import formatdate
from functools import partial
from typing import Any

from rankd.api.addresses import Addresses, limited_as
from rankd.api.http.connection import READ_BYTES_MAX, HttpConnection
from rankd.api.http.tls import TlsHandshake, TlsListener, tls_context
from rankd.api.http.turns import TurnQueue
from rankd.config.model import Config
from rankd.errors import AddressTaken

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

Connection = HttpConnection | TlsHandshake

BACKLOG = 1_024
LAST_ACCEPTED_S = 0.1  # after the end has begun
SWEEP_EVERY_S = 1.0
_log = logging.getLogger("rankd")
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
        self._tls = tls_context(server.tls_cert, server.tls_key) if server.tls_cert else None
        self.scheme = "https" if self._tls else "http"
        self._connections_max = limits.requests_max
        self._connections: dict[Connection, Hashable] = {}  # with the address that counts; the oldest first
        self._by_address: dict[Hashable, int] = {}
        self._per_address_max = limits.connections_per_address_max
        self._addresses = Addresses(server.trusted_proxies)
        self._listener: asyncio.Server | TlsListener | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self.loop: asyncio.AbstractEventLoop
        self.turns: TurnQueue

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
        self.turns = TurnQueue(self.loop)
        files = _raise_file_limit(self._connections_max + SPARE_FILES)
        if files < self._connections_max + SPARE_FILES:
            self._connections_max = max(1, files - SPARE_FILES)
            _log.warning(
                "%d files may be open: %d connections are taken, fewer than limits.requests_max; raise ulimit -n",
                files,
                self._connections_max,
            )
        try:
            if self._tls is not None:
                self._listener = TlsListener(self, self._tls)
                await self._listener.listen(self._host, self._port, BACKLOG)
            else:  # one connection is accepted in a turn of the event loop
                self._listener = await self.loop.create_server(
                    lambda: HttpConnection(self), self._host, self._port, backlog=BACKLOG
                )
        except OSError as problem:
            raise AddressTaken(
                f"server.host, server.port: cannot listen on {self._host} port {self._port}: {problem.strerror}"
            ) from None
        self._sweeping = self.loop.create_task(self._sweep())

    def admit(self, connection: Connection) -> bool:
        """Take a connection, in place of an idle one where there are as many as there may be."""
        if self.is_stopping:
            return False
        address = limited_as(connection.address) if connection.address else None
        if self._addresses.is_proxy(connection.address):
            address = None
        if address is not None and self._by_address.get(address, 0) >= self._per_address_max:
            if not self._evict(address):
                return False
        elif len(self._connections) >= self._connections_max and not self._evict(None):
            return False
        self._connections[connection] = address
        if address is not None:
            self._by_address[address] = self._by_address.get(address, 0) + 1
        return True

    def _evict(self, address: Hashable) -> bool:
        """Cut the connection that has been open longest of those that are idle, of an address or of all."""
        for connection, other in self._connections.items():
            if connection.deadline and not connection.has_unsent and address in (None, other):
                self.forget(connection)
                connection.abort()
                return True
        return False

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        address = self._connections.pop(connection, None)
        if address is not None:
            left = self._by_address[address] - 1
            if left:
                self._by_address[address] = left
            else:
                del self._by_address[address]

    @property
    def connections(self) -> list[HttpConnection]:
        """All open connections that speak HTTP."""
        return [connection for connection in self._connections if isinstance(connection, HttpConnection)]

    @property
    def open_connections(self) -> int:
        """How many connections count against the limits, those in a TLS handshake too."""
        return len(self._connections)

    async def _sweep(self) -> None:
        """Cut those who take too long to send a request's head, or to send another one."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            self.date_line = _date_line()
            now = self.loop.time()
            for connection in self._connections:
                if 0 < connection.deadline <= now:
                    self.turns.add(partial(self._time_out, connection))

    def _time_out(self, connection: Connection) -> None:
        try:
            connection.time_out()
        except Exception:
            _log.exception("a connection cannot be ended")
            connection.abort()

    def stop_listening(self) -> None:
        """Take no more requests: close connections that are idle, and let each other one end with its answer.

        Connections that the system has taken for us are still accepted, and told to come again.
        """
        self.is_stopping = True
        self.loop.call_later(LAST_ACCEPTED_S, self._close_listener)
        for connection in list(self._connections):
            connection.close_if_idle()

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def stop(self) -> None:
        """Cut whatever is left."""
        self.is_stopping = True
        self._close_listener()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # the event loop closes what was cut


def _date_line() -> bytes:
    return f"date: {formatdate(usegmt=True)}\r\n".encode()


def _raise_file_limit(files: int) -> int:
    """Let the process have a file for each connection, as far as it may; return how many it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < files:
        soft = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return files if soft == resource.RLIM_INFINITY else soft

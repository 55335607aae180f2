"""Listen, and hold what all connections share: limits, deadlines and shutdown."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Awaitable, Callable, Hashable, Sequence
from email.utils import formatdate
from functools import partial
from typing import Any

from rankd.api.http.addresses import Addresses, limited_as
from rankd.api.http.connection import READ_BYTES_MAX, HttpConnection
from rankd.api.http.listening import BACKLOG, address_taken
from rankd.api.http.request import Receive, Send
from rankd.api.http.tls import TlsHandshake, TlsListener, tls_context
from rankd.api.http.turns import TurnQueue
from rankd.config.model import Config

Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

ServerConnection = HttpConnection | TlsHandshake

LAST_ACCEPTED_S = 0.1  # after the shutdown has begun
SWEEP_EVERY_S = 1.0
_log = logging.getLogger("rankd")
SPARE_FILES = 256  # besides those of connections: the ledger, snapshots, logs


class HttpServer:
    """An HTTP/1.1 and WebSocket server for one ASGI application; on one event loop."""

    def __init__(
        self,
        app: Application,
        config: Config,
        count_malformed: Callable[[int], None] = lambda _status: None,
        sockets: Sequence[socket.socket] = (),
    ) -> None:
        """`count_malformed` is called for requests that were refused before they could be parsed.

        `sockets` are bound, possibly to an address that others share; without them it binds to the configured one.
        """
        server, limits = config.server, config.limits
        self.app = app
        self.count_malformed = count_malformed
        self.header_bytes_max = limits.header_bytes_max
        self.header_read_s = limits.header_read_ms / 1_000
        self.keep_alive_s = limits.keep_alive_ms / 1_000
        self.is_stopping = False
        self.date_line = _date_line()
        self.last_host: bytes | None = None  # that was checked; most clients send the same
        self.read_buffer = memoryview(bytearray(READ_BYTES_MAX))
        self._host, self._port = server.host, server.port
        self._tls = tls_context(server.tls_cert, server.tls_key) if server.tls_cert else None
        self.scheme = "https" if self._tls else "http"
        self._connections_max = limits.requests_max
        self._connections: dict[ServerConnection, Hashable] = {}  # with the address for the limits; the oldest first
        self._by_address: dict[Hashable, int] = {}
        self._per_address_max = limits.connections_per_address_max
        self._addresses = Addresses(server.trusted_proxies)
        self._sockets = sockets
        self._listeners: list[asyncio.Server | TlsListener] = []
        self._sweeping: asyncio.Task[None] | None = None
        self.loop: asyncio.AbstractEventLoop
        self.turns: TurnQueue

    @property
    def port(self) -> int:
        """The port in use."""
        if not self._listeners:
            return self._port
        port: int = self._listeners[0].sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Start to listen; raises AddressTaken."""
        self.loop = asyncio.get_running_loop()
        self.turns = TurnQueue(self.loop)
        files = _raise_file_limit(self._connections_max + SPARE_FILES)
        if files < self._connections_max + SPARE_FILES:
            self._connections_max = max(1, files - SPARE_FILES)
            _log.warning(
                "%d files may be open: at most %d connections, fewer than limits.requests_max; raise ulimit -n",
                files,
                self._connections_max,
            )
        try:
            await self._listen()
        except OSError as problem:
            raise address_taken(self._host, self._port, problem) from None
        self._sweeping = self.loop.create_task(self._sweep())

    async def _listen(self) -> None:
        if self._tls is not None:
            listener = TlsListener(self, self._tls)
            self._listeners.append(listener)
            if self._sockets:
                listener.accept_on(self._sockets, BACKLOG)
            else:
                await listener.listen(self._host, self._port, BACKLOG)
            return
        # One connection is accepted in a turn of the event loop.
        if not self._sockets:
            self._listeners.append(
                await self.loop.create_server(self._connection, self._host, self._port, backlog=BACKLOG)
            )
        for listening in self._sockets:
            create = self.loop.create_unix_server if listening.family == socket.AF_UNIX else self.loop.create_server
            self._listeners.append(await create(self._connection, sock=listening, backlog=BACKLOG))

    def _connection(self) -> HttpConnection:
        return HttpConnection(self)

    def admit(self, connection: ServerConnection) -> bool:
        """Accept a connection, in place of an idle one at the limit."""
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
        """Abort the idle connection that has been open longest, of an address or of all."""
        for connection, other in self._connections.items():
            if connection.deadline and not connection.has_unsent and address in (None, other):
                self.forget(connection)
                connection.abort()
                return True
        return False

    def forget(self, connection: ServerConnection) -> None:
        """Remove a connection that has ended."""
        address = self._connections.pop(connection, None)
        if address is not None:
            left = self._by_address[address] - 1
            if left:
                self._by_address[address] = left
            else:
                del self._by_address[address]

    @property
    def connections(self) -> list[HttpConnection]:
        """All open HTTP connections."""
        return [connection for connection in self._connections if isinstance(connection, HttpConnection)]

    async def _sweep(self) -> None:
        """Abort clients that send a request's head too slowly, or stay idle too long."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            self.date_line = _date_line()
            now = self.loop.time()
            for connection in self._connections:
                if 0 < connection.deadline <= now:
                    self.turns.add(partial(self._time_out, connection))

    def _time_out(self, connection: ServerConnection) -> None:
        try:
            connection.time_out()
        except Exception:
            _log.exception("a connection cannot be ended")
            connection.abort()

    def stop_listening(self) -> None:
        """Accept no more requests: close idle connections, and each other one after its answer.

        Connections in the system's backlog are still accepted, and answered with a request to retry.
        """
        self.is_stopping = True
        self.loop.call_later(LAST_ACCEPTED_S, self._close_listeners)
        for connection in list(self._connections):
            connection.close_if_idle()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()

    async def stop(self) -> None:
        """Abort the remaining connections."""
        self.is_stopping = True
        self._close_listeners()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # the event loop closes the aborted ones


def _date_line() -> bytes:
    return f"date: {formatdate(usegmt=True)}\r\n".encode()


def _raise_file_limit(files: int) -> int:
    """Raise the process's limit of open files as far as it may; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < files:
        soft = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return files if soft == resource.RLIM_INFINITY else soft

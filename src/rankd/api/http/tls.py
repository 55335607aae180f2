"""TLS: a connection counts against the limits from its accept, not from the end of its handshake.

listening socket → TlsHandshake (counted, has a deadline) → HttpConnection in its place
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rankd.api.http.connection import HttpConnection
from rankd.api.http.listening import bound_sockets
from rankd.errors import InvalidValue

if TYPE_CHECKING:
    from rankd.api.http.server import HttpServer

HANDSHAKE_S = 10.0
ACCEPT_RETRY_S = 0.1  # where the system has no free file


class TlsHandshake:
    """A connection before the end of its handshake."""

    has_unsent = False

    def __init__(self, link: socket.socket, address: str, ends_at: float) -> None:
        """`ends_at` is its deadline, by the event loop's time."""
        self._link = link
        self.address = address
        self.deadline = ends_at
        self.is_gone = False

    def abort(self) -> None:
        """Abort it: the handshake raises an error."""
        with suppress(OSError):  # the client has closed it
            self._link.shutdown(socket.SHUT_RDWR)

    def time_out(self) -> None:
        """Abort it after its deadline."""
        self.abort()

    def close_if_idle(self) -> None:
        """Keep it: its first request may be on its way."""


class _SecuredConnection(HttpConnection):
    """A connection after its handshake, which it replaces."""

    def __init__(self, server: HttpServer, take_place: Callable[[], None]) -> None:
        super().__init__(server)
        self._take_place = take_place

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._take_place()
        super().connection_made(transport)


class TlsListener:
    """Accepts connections, one in a turn of the event loop, and runs their handshakes."""

    def __init__(self, server: HttpServer, context: ssl.SSLContext) -> None:
        """`server` decides which connections are accepted."""
        self._server = server
        self._context = context
        self._accepting: list[asyncio.Task[None]] = []
        self._shaking: set[asyncio.Task[None]] = set()
        self.sockets: list[socket.socket] = []

    async def listen(self, host: str, port: int, backlog: int) -> None:
        """Start to listen; raises OSError where the address is taken."""
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        self.accept_on(bound_sockets(addresses), backlog)

    def accept_on(self, sockets: Sequence[socket.socket], backlog: int) -> None:
        """Accept connections on sockets that are bound."""
        loop = asyncio.get_running_loop()
        self.sockets = [*sockets]
        for listening in sockets:
            listening.listen(backlog)
        self._accepting = [loop.create_task(self._accept(listening)) for listening in sockets]

    def close(self) -> None:
        """Accept no more; running handshakes continue."""
        for task in self._accepting:
            task.cancel()
        for listening in self.sockets:
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                link, peer = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            handshake = TlsHandshake(link, str(peer[0]), loop.time() + HANDSHAKE_S)
            if self._server.admit(handshake):
                task = loop.create_task(self._shake_hands(handshake, link))
                self._shaking.add(task)
                task.add_done_callback(self._shaking.discard)
            else:
                link.close()  # sending a reason would need a handshake first

    async def _shake_hands(self, handshake: TlsHandshake, link: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        leave = partial(self._server.forget, handshake)
        with suppress(OSError):  # errors in a handshake are the client's
            await loop.connect_accepted_socket(
                lambda: _SecuredConnection(self._server, leave),
                link,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S,
            )
        leave()


def tls_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return the TLS context of a certificate and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(Path(certificate).expanduser(), Path(key).expanduser() if key else None)
    except (OSError, ssl.SSLError) as problem:
        raise InvalidValue("server.tls_cert, server.tls_key", f"cannot be used: {problem}") from None
    return context

"""TLS: connections are accepted here, and count from then on, not from the end of their handshake.

listening socket → TlsHandshake (counted, has a deadline) → HttpConnection in its place
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rankd.api.http.connection import HttpConnection
from rankd.errors import InvalidValue

if TYPE_CHECKING:
    from rankd.api.http.server import HttpServer

HANDSHAKE_S = 10.0
ACCEPT_AGAIN_S = 0.1  # where the system has no file left


class TlsHandshake:
    """A connection that is not encrypted yet; what the server asks of every connection."""

    has_unsent = False

    def __init__(self, link: socket.socket, address: str, ends_at: float) -> None:
        """`ends_at` is when it is cut, by the event loop's time."""
        self._link = link
        self.address = address
        self.deadline = ends_at
        self.is_gone = False

    def abort(self) -> None:
        """Cut it: whoever waits for its end gets an error."""
        with suppress(OSError):  # the client was faster
            self._link.shutdown(socket.SHUT_RDWR)

    def time_out(self) -> None:
        """End it; its deadline has passed."""
        self.abort()

    def close_if_idle(self) -> None:
        """Let it go on: its first request may be on its way."""


class _SecuredConnection(HttpConnection):
    """A connection after its handshake, whose place it takes."""

    def __init__(self, server: HttpServer, take_place: Callable[[], None]) -> None:
        super().__init__(server)
        self._take_place = take_place

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._take_place()
        super().connection_made(transport)


class TlsListener:
    """Accepts connections, one in a turn of the event loop, and shakes hands with each."""

    def __init__(self, server: HttpServer, context: ssl.SSLContext) -> None:
        """The server says which connections it takes."""
        self._server = server
        self._context = context
        self._accepting: list[asyncio.Task[None]] = []
        self._shaking: set[asyncio.Task[None]] = set()
        self.sockets: list[socket.socket] = []

    async def listen(self, host: str, port: int, backlog: int) -> None:
        """Begin; OSError where the address is taken."""
        loop = asyncio.get_running_loop()
        try:
            for family, kind, protocol, _, address in await loop.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ):
                listening = socket.socket(family, kind, protocol)
                self.sockets.append(listening)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind(address)
                listening.listen(backlog)
                listening.setblocking(False)
        except OSError:
            self.close()
            raise
        self._accepting = [loop.create_task(self._accept(listening)) for listening in self.sockets]

    def close(self) -> None:
        """Accept no more; handshakes go on."""
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
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            handshake = TlsHandshake(link, str(peer[0]), loop.time() + HANDSHAKE_S)
            if self._server.admit(handshake):
                task = loop.create_task(self._shake_hands(handshake, link))
                self._shaking.add(task)
                task.add_done_callback(self._shaking.discard)
            else:
                link.close()  # to be told why, it would have to be served first

    async def _shake_hands(self, handshake: TlsHandshake, link: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        leave = partial(self._server.forget, handshake)
        with suppress(OSError):  # what goes wrong in a handshake is its client's business
            await loop.connect_accepted_socket(
                lambda: _SecuredConnection(self._server, leave),
                link,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S,
            )
        leave()


def tls_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return what a certificate and its key are used by."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(Path(certificate).expanduser(), Path(key).expanduser() if key else None)
    except (OSError, ssl.SSLError) as problem:
        raise InvalidValue("server.tls_cert, server.tls_key", f"cannot be used: {problem}") from None
    return context

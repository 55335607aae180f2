"""Requests from one worker to another, over the local socket of that one.

    LocalClient → worker-<n>.sock → LocalApp of the worker

A connection is reused, unless its answer is a stream. One that is lost while it waits for an answer is not retried,
since the request may have taken effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from weakref import WeakSet

import httptools

from rankd.api.http.request import Disconnected, Header, Receive

LOST = "the connection to the worker was lost"
STREAM_BUFFER_BYTES_MAX = 64 * 1024  # of an answer that goes on, and that the client has not read


class LocalAnswer(NamedTuple):
    """The answer of another worker."""

    status: int
    headers: list[Header]
    body: bytes


class NotConnected(Exception):
    """The other worker is not there: nothing was sent."""


class ConnectionLost(Exception):
    """The other worker went away before it answered: the request may have taken effect."""


class LocalConnection(asyncio.Protocol):
    """One connection to another worker; one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[Header] = []
        self._body = bytearray()
        self._answered: asyncio.Future[LocalAnswer] = self._loop.create_future()
        self._writable: asyncio.Future[None] | None = None  # while the other worker reads too slowly
        self.is_open = True

    async def ask(self, head: bytes, receive: Receive | None = None, *, is_chunked: bool = False) -> LocalAnswer:
        """Send a request, with a body where `receive` returns one, and return its answer."""
        self._answered = self._loop.create_future()
        try:
            if not self.is_open:
                raise ConnectionLost(LOST)
            is_sent = True
            if receive is None:
                self._transport.write(head)
            else:
                is_sent = await self._send_body(head, receive, _framed if is_chunked else _plain)
            answer = await self._answered
        except BaseException:
            self.close()
            raise
        if not (is_sent and self._parser.should_keep_alive()):
            self.close()
        self._parser = httptools.HttpResponseParser(self)
        return answer

    async def _send_body(self, head: bytes, receive: Receive, framed: Callable[[bytes, bool], bytes]) -> bool:
        """Send head and body, piece by piece; return whether all of it was sent before the answer came."""
        piece, is_last = _piece(await receive())
        self._transport.write(head + framed(piece, is_last))
        while not is_last:
            if self._writable is not None:
                await asyncio.wait((self._writable, self._answered), return_when=asyncio.FIRST_COMPLETED)
            receiving = asyncio.ensure_future(receive())
            try:
                await asyncio.wait((receiving, self._answered), return_when=asyncio.FIRST_COMPLETED)
                if self._answered.done():
                    return False
                piece, is_last = _piece(receiving.result())
            finally:
                receiving.cancel()
            self._transport.write(framed(piece, is_last))
        return True

    def close(self) -> None:
        """Close the connection."""
        self.is_open = False
        self._transport.abort()

    # From the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it

    def connection_lost(self, _error: Exception | None) -> None:
        """Fail the request that waits for its answer."""
        self.is_open = False
        if not self._answered.done():
            self._answered.set_exception(ConnectionLost(LOST))
            self._answered.exception()  # nobody may wait for it
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse bytes of the answer."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def pause_writing(self) -> None:
        """Note that the other worker reads more slowly than it is sent."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Resume after it has read."""
        writable, self._writable = self._writable, None
        if writable is not None:
            writable.set_result(None)

    # From the parser

    def on_message_begin(self) -> None:
        """Begin an answer."""
        self._headers, self._body = [], bytearray()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        self._headers.append((name.lower(), value))

    def on_body(self, piece: bytes) -> None:
        """Add a piece of the body."""
        self._body += piece

    def on_message_complete(self) -> None:
        """End an answer."""
        if not self._answered.done():
            self._answered.set_result(LocalAnswer(self._parser.get_status_code(), self._headers, bytes(self._body)))


class LocalStream(LocalConnection):
    """One connection to another worker, for an answer that goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._has_more = asyncio.Event()
        self._is_complete = False

    async def open(self, head: bytes) -> LocalAnswer:
        """Send a request, and return the head of its answer."""
        self._transport.write(head)
        try:
            return await self._answered
        except BaseException:
            self.close()
            raise

    async def piece(self) -> bytes:
        """Return more of the body, as soon as there is some; nothing at its end."""
        while not self._body and self.is_open and not self._is_complete:
            self._has_more.clear()
            await self._has_more.wait()
        piece, self._body = bytes(self._body), bytearray()
        if self.is_open:
            self._transport.resume_reading()
        return piece

    def connection_lost(self, error: Exception | None) -> None:
        """End the answer."""
        super().connection_lost(error)
        self._has_more.set()

    def on_headers_complete(self) -> None:
        """Begin the answer."""
        self._answered.set_result(LocalAnswer(self._parser.get_status_code(), self._headers, b""))

    def on_body(self, piece: bytes) -> None:
        """Add a piece of the body; the other worker waits where the client does not read."""
        super().on_body(piece)
        if len(self._body) > STREAM_BUFFER_BYTES_MAX:
            self._transport.pause_reading()
        self._has_more.set()

    def on_message_complete(self) -> None:
        """End the answer."""
        self._is_complete = True
        self._has_more.set()


ConnectionType = TypeVar("ConnectionType", bound=LocalConnection)


class LocalClient:
    """The connections of this worker to another one; on the event loop."""

    def __init__(self, path: Path) -> None:
        """`path` is the other worker's local socket."""
        self._path = str(path)
        self._idle: list[LocalConnection] = []
        self._streams: WeakSet[LocalStream] = WeakSet()

    async def ask(self, head: bytes, receive: Receive | None = None, *, is_chunked: bool = False) -> LocalAnswer:
        """Send a request and return its answer; raises NotConnected or ConnectionLost."""
        connection = await self._connection()
        answer = await connection.ask(head, receive, is_chunked=is_chunked)
        if connection.is_open:
            self._idle.append(connection)
        return answer

    async def stream(self, head: bytes) -> tuple[LocalAnswer, LocalStream]:
        """Send a request whose answer goes on, on a connection of its own, which the caller closes.

        Raises NotConnected or ConnectionLost.
        """
        stream = await self._connect(LocalStream)
        self._streams.add(stream)
        return await stream.open(head), stream

    async def get(self, path: str) -> LocalAnswer:
        """Ask for what only workers ask each other for."""
        return await self.ask(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())

    async def is_there(self) -> bool:
        """Return whether the other worker answers connections."""
        with suppress(NotConnected):
            self._idle.append(await self._connection())
            return True
        return False

    async def _connection(self) -> LocalConnection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return await self._connect(LocalConnection)

    async def _connect(self, kind: Callable[[], ConnectionType]) -> ConnectionType:
        try:
            _, connection = await asyncio.get_running_loop().create_unix_connection(kind, self._path)
        except OSError as problem:
            raise NotConnected(str(problem)) from None
        return connection

    def close(self) -> None:
        """Close the idle connections, and end the streams."""
        while self._idle:
            self._idle.pop().close()
        for stream in list(self._streams):
            stream.close()


def _piece(message: Mapping[str, Any]) -> tuple[bytes, bool]:
    if message["type"] != "http.request":
        raise Disconnected
    return message.get("body", b""), not message.get("more_body", False)


def _plain(piece: bytes, _is_last: bool) -> bytes:
    return piece


def _framed(piece: bytes, is_last: bool) -> bytes:
    chunk = b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
    return chunk + b"0\r\n\r\n" if is_last else chunk

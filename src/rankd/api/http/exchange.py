"""One request and its response on a connection: the ASGI `receive` and `send` of an HTTP call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

from rankd.api.request import Header

BODY_BUFFER_BYTES_MAX = 64 * 1024  # received and not yet asked for; reading pauses above it
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = b"connection: close\r\n"
_CHUNKED = b"transfer-encoding: chunked\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


class Link(Protocol):
    """What an exchange needs of the connection it happens on."""

    is_gone: bool
    is_write_paused: bool

    @property
    def date_line(self) -> bytes:
        """The header `date` of this second, with its line end."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes."""
        ...

    async def drain(self) -> None:
        """Wait until the client has read enough of what was sent."""
        ...

    def pause_body(self) -> None:
        """Read no more of the request's body for now."""
        ...

    def resume_body(self) -> None:
        """Read the body on."""
        ...


class HttpExchange:
    """One request on a connection, and how far its body and its response have come."""

    __slots__ = (
        "_body",
        "_expects_continue",
        "_head",
        "_is_chunked",
        "_is_end_received",
        "_link",
        "_waiter",
        "framing_bytes",
        "is_aborted",
        "is_body_complete",
        "is_response_complete",
        "is_response_started",
        "keep_alive",
        "received_bytes",
        "scope",
        "task",
    )

    def __init__(self, link: Link, scope: dict[str, Any], *, keep_alive: bool, expects_continue: bool) -> None:
        """The head of the request has been read; its body comes by `add` and `complete`."""
        self._link = link
        self.scope = scope
        self.keep_alive = keep_alive
        self.task: asyncio.Task[None] | None = None
        self.is_body_complete = False
        self.is_response_started = False
        self.is_response_complete = False
        self.received_bytes = 0  # of its body
        self.framing_bytes = 0  # around the pieces of its body
        self._expects_continue = expects_continue
        self._body: bytes | bytearray = b""  # received, and not asked for yet
        self._is_end_received = False  # the application has been given the last piece
        self._waiter: asyncio.Future[None] | None = None
        self._head: tuple[int, list[Header]] | None = None  # held back until the first piece of the body
        self._is_chunked = False
        self.is_aborted = False  # its body cannot be read to its end

    # The request's body, from the connection

    def add(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self.received_bytes += len(piece)
        if not self._body:
            self._body = piece
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += piece
        if len(self._body) > BODY_BUFFER_BYTES_MAX:
            self._link.pause_body()
        self._wake()

    def complete(self) -> None:
        """Take the end of the body."""
        self.is_body_complete = True
        self._wake()

    def abort_body(self) -> None:
        """The body cannot be read to its end: the application learns that it does not come."""
        self._body = b""
        self.is_aborted = True
        self._wake()

    def disconnect(self) -> None:
        """The client is gone: `receive` says so, and work that nobody waits for any more is cancelled."""
        self._body = b""
        if self._waiter is not None:
            self._wake()
        elif self.task is not None:
            self.task.cancel()
            self.task = None  # it may have no turn any more in which it would let this go

    def _wake(self) -> None:
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
            self._waiter = None

    # The application's side

    async def receive(self) -> Mapping[str, Any]:
        """Return the next piece of the body, or that the client is gone."""
        while not (self._link.is_gone or self.is_aborted):
            if self._body:
                body, self._body = bytes(self._body), b""
                if len(body) > BODY_BUFFER_BYTES_MAX:
                    self._link.resume_body()
                self._is_end_received = self.is_body_complete
                return {"type": "http.request", "body": body, "more_body": not self.is_body_complete}
            if self.is_body_complete and not self._is_end_received:
                self._is_end_received = True
                return {"type": "http.request", "body": b"", "more_body": False}
            if self._expects_continue and not self.is_response_started:
                self._expects_continue = False
                self._link.write(_CONTINUE)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send the head of the response with the first piece of its body, then piece by piece."""
        if message["type"] == "http.response.start":
            self._head = (message["status"], message["headers"])
            return
        if self._link.is_gone or self.is_aborted or self.is_response_complete:
            return
        body: bytes = message.get("body", b"")
        is_last = not message.get("more_body", False)
        if self.scope["method"] == "HEAD":
            body, is_last = b"", True
        if self._head is not None:
            head = self._head_bytes(*self._head, None if not is_last else len(body))
            self._head = None
            self.is_response_started = True
            self._link.write(head + (self._framed(body, is_last=is_last) if self._is_chunked else body))
        elif body or is_last:
            self._link.write(self._framed(body, is_last=is_last) if self._is_chunked else body)
        self.is_response_complete = is_last
        if self._link.is_write_paused and not is_last:
            await self._link.drain()

    def whole(self, status: int, headers: list[Header], body: bytes) -> bytes:
        """Return a whole response."""
        return self._head_bytes(status, headers, len(body)) + body

    def _head_bytes(self, status: int, headers: list[Header], length: int | None) -> bytes:
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        has_length = False
        for name, value in headers:
            lines.append(b"%b: %b\r\n" % (name, value))
            if name == b"content-length":
                has_length = True
        if not has_length and status not in (204, 304):
            if length is not None:
                lines.append(b"content-length: %d\r\n" % length)
            elif self.scope["http_version"] == "1.1":
                self._is_chunked = True
                lines.append(_CHUNKED)
            else:
                self.keep_alive = False  # the end of the connection is the end of the body
        if not (self.keep_alive and self.is_body_complete):
            self.keep_alive = False  # what is left of the body would have to be read first
            lines.append(_CLOSE)
        lines.append(self._link.date_line)
        lines.append(b"\r\n")
        return b"".join(lines)

    @staticmethod
    def _framed(body: bytes, *, is_last: bool) -> bytes:
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return chunk + _LAST_CHUNK if is_last else chunk

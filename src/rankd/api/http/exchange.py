"""One request and its response on a connection: the ASGI `receive` and `send` of an HTTP call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

from rankd.api.http.request import Header

BODY_BUFFER_BYTES_MAX = 64 * 1024  # received and not yet read by the application; reading pauses above it
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode() for status in HTTPStatus}
_HEADER = b": "  # between name and value
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LENGTH = b"content-length"
_CLOSE = b"connection: close"
_CHUNKED = b"transfer-encoding: chunked"
_LAST_CHUNK = b"0\r\n\r\n"


class Link(Protocol):
    """The part of a connection that an exchange needs."""

    is_gone: bool
    is_write_paused: bool

    @property
    def date_line(self) -> bytes:
        """The header `date` of this second, with its line end."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    async def drain(self) -> None:
        """Wait until the client has read enough."""

    def pause_body(self) -> None:
        """Pause reading."""

    def resume_body(self) -> None:
        """Resume reading."""


class HttpExchange:
    """One request on a connection: the state of its body and its response."""

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
        "is_started",
        "keep_alive",
        "received_bytes",
        "scope",
        "task",
    )

    def __init__(self, link: Link, scope: dict[str, Any], *, keep_alive: bool, expects_continue: bool) -> None:
        """Its head has been parsed; `add` and `complete` bring the body."""
        self._link = link
        self.scope = scope
        self.keep_alive = keep_alive
        self.task: asyncio.Task[None] | None = None
        self.is_started = False  # the application runs, or has run
        self.is_body_complete = False
        self.is_response_started = False
        self.is_response_complete = False
        self.received_bytes = 0  # of its body
        self.framing_bytes = 0  # around the pieces of its body
        self._expects_continue = expects_continue
        self._body: bytes | bytearray = b""  # received, and not yet read by the application
        self._is_end_received = False  # the application has read the last piece
        self._waiter: asyncio.Future[None] | None = None
        self._head: tuple[int, list[Header]] | None = None  # held back until the first piece of the body
        self._is_chunked = False
        self.is_aborted = False  # its body cannot be read completely

    # The request's body, from the connection

    def add(self, piece: bytes) -> None:
        """Add a piece of the body."""
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
        """End the body."""
        self.is_body_complete = True
        self._wake()

    def abort_body(self) -> None:
        """Mark a body that cannot be read completely: the application sees a disconnect."""
        self._body = b""
        self.is_aborted = True
        self._wake()

    def disconnect(self) -> None:
        """Mark that the client left: `receive` returns a disconnect, and the task is cancelled."""
        self._body = b""
        if self._waiter is not None:
            self._wake()
        elif self.task is not None:
            self.task.cancel()
            self.task = None  # it may not run again to release this

    def _wake(self) -> None:
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
            self._waiter = None

    # The application's side

    async def receive(self) -> Mapping[str, Any]:
        """Return the next piece of the body, or a disconnect."""
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
        link = self._link
        if link.is_gone or self.is_aborted or self.is_response_complete:
            return
        body: bytes = message.get("body", b"")
        is_last = not message.get("more_body", False)
        if self.scope["method"] == "HEAD":
            body, is_last = b"", True
        if self._head is not None:
            head = self._head_bytes(*self._head, len(body) if is_last else None)
            self._head = None
            self.is_response_started = True
            link.write(head + (self._framed(body, is_last=is_last) if self._is_chunked else body))
        elif body or is_last:
            link.write(self._framed(body, is_last=is_last) if self._is_chunked else body)
        self.is_response_complete = is_last
        if not is_last and link.is_write_paused:
            await link.drain()

    def _head_bytes(self, status: int, headers: list[Header], length: int | None) -> bytes:
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d " % status, *map(_HEADER.join, headers)]
        is_complete = bool(headers) and headers[-1][0] == _LENGTH  # where our application puts it
        if not is_complete and status not in (204, 304) and _LENGTH not in dict(headers):
            if length is not None:
                lines.append(b"content-length: %d" % length)
            elif self.scope["http_version"] == "1.1":
                self._is_chunked = True
                lines.append(_CHUNKED)
            else:
                self.keep_alive = False  # the end of the connection is the end of the body
        if not (self.keep_alive and self.is_body_complete):
            self.keep_alive = False  # the rest of the body would have to be read first
            lines.append(_CLOSE)
        lines.append(self._link.date_line)
        lines.append(b"")
        return b"\r\n".join(lines)

    @staticmethod
    def _framed(body: bytes, *, is_last: bool) -> bytes:
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return chunk + _LAST_CHUNK if is_last else chunk

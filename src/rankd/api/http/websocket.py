"""A WebSocket connection: its handshake, and its ASGI `receive` and `send`.

While `WAITING_MESSAGES_MAX` messages wait for the application, reading pauses. Of pings that cannot be answered because
the client does not read, only the last one is kept, as RFC 6455 allows.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Mapping
from hashlib import sha1
from http import HTTPStatus
from typing import Any

from rankd.api.http.exchange import Link
from rankd.api.http.frames import (
    BINARY,
    CLOSE,
    NO_CODE,
    PING,
    PONG,
    TEXT,
    FrameError,
    FrameReader,
    close_code,
    close_frame,
    frame,
)
from rankd.api.http.head import RefusedHead
from rankd.api.http.request import EVERY_ANSWER, Header

WAITING_MESSAGES_MAX = 8
CLOSE_WAIT_S = 2.0  # for the client's close frame, after ours
VERSION = b"13"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES = 16
_FRAMING = (b"content-length", b"transfer-encoding")
_ABNORMAL = 1006
_TEXT = (b"content-type", b"text/plain; charset=utf-8")


def accept_of(scope: Mapping[str, Any]) -> bytes:
    """Return Sec-WebSocket-Accept for a handshake; raises RefusedHead for a malformed one."""
    headers: list[Header] = scope["headers"]
    if scope["http_version"] != "1.1" or any(name in _FRAMING for name, _ in headers):
        raise RefusedHead(400, "a WebSocket handshake must be HTTP/1.1 and have no body")
    sent: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in (b"sec-websocket-key", b"sec-websocket-version") and sent.setdefault(name, value) is not value:
            raise RefusedHead(400, f"{name.decode()}: must be sent once")
    if sent.get(b"sec-websocket-version") != VERSION:
        raise RefusedHead(426, "sec-websocket-version: must be 13")
    key = sent.get(b"sec-websocket-key", b"")
    try:
        is_key = len(b64decode(key, validate=True)) == _KEY_BYTES
    except binascii.Error:
        is_key = False
    if not is_key:
        raise RefusedHead(400, "sec-websocket-key: must be 16 bytes in base 64")
    return b64encode(sha1(key + _GUID, usedforsecurity=False).digest())


class WebSocketExchange:
    """One WebSocket connection, from its handshake to its end; on the event loop."""

    def __init__(self, link: Link, transport: asyncio.Transport, scope: dict[str, Any], accept: bytes) -> None:
        """The application accepts or refuses the handshake."""
        self._link = link
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._accept = accept
        self.scope = {**scope, "subprotocols": [], "extensions": {"websocket.http.response": {}}}
        self.task: asyncio.Task[None] | None = None
        self._reader = FrameReader(self._loop.time)
        self._messages: deque[Mapping[str, Any]] = deque([{"type": "websocket.connect"}])
        self._waiter: asyncio.Future[None] | None = None
        self._is_accepted = False
        self._is_refused = False
        self._refused_head: tuple[int, list[Header]] = (403, [])
        self._is_closing = False  # a close frame has been sent
        self._is_over = False  # the application has received the disconnect
        self._unanswered_ping: bytes | None = None

    @property
    def held_bytes(self) -> int:
        """How many bytes of the client are held."""
        waiting = sum(len(message.get("encoded") or message.get("bytes") or b"") for message in self._messages)
        return self._reader.held_bytes + waiting

    # From the connection

    def feed(self, data: bytes) -> None:
        """Parse bytes of the client."""
        if not self._is_accepted:
            self._transport.abort()  # a client must wait for the answer to its handshake
            return
        if self._is_closing:
            self._expect_close(data)
            return
        try:
            for incoming in self._reader.feed(data):
                if not self._take(incoming.opcode, incoming.payload):
                    return
                if len(self._messages) >= WAITING_MESSAGES_MAX:
                    self._link.pause_body()
                    return
        except FrameError as problem:
            self._end(problem.code, problem.reason)

    def _take(self, opcode: int, payload: bytes) -> bool:
        """Handle a message or a control frame; return whether others may follow."""
        if opcode == PING:
            if self._link.is_write_paused:
                self._unanswered_ping = payload
            else:
                self._link.write(frame(PONG, payload))
        elif opcode == CLOSE:
            code = close_code(payload)
            self._is_closing = True
            self._link.write(close_frame(code) if code != NO_CODE else frame(CLOSE, b""))
            self._transport.close()
            self._loop.call_later(CLOSE_WAIT_S, self._transport.abort)  # the client may not read
            self._deliver_end(code)
        elif opcode == TEXT:
            try:
                payload.decode()
            except UnicodeDecodeError:
                raise FrameError(1007, "a text message must be UTF-8") from None
            self._deliver({"type": "websocket.receive", "encoded": payload})  # decoded text may take four times as much
        elif opcode == BINARY:
            self._deliver({"type": "websocket.receive", "bytes": payload})
        return opcode != CLOSE

    def _deliver(self, message: Mapping[str, Any]) -> None:
        self._messages.append(message)
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
            self._waiter = None

    def _deliver_end(self, code: int) -> None:
        """Queue a disconnect in place of unread messages; the first reason counts."""
        if not self._is_over:
            self._is_over = True
            self._messages.clear()
            self._deliver({"type": "websocket.disconnect", "code": code})

    def _end(self, code: int, reason: str) -> None:
        """Send a close frame; the connection ends with the client's own, or after a while."""
        self._close(code, reason)
        self._deliver_end(code)

    def _close(self, code: int, reason: str) -> None:
        self._is_closing = True
        self._unanswered_ping = None
        self._link.write(close_frame(code, reason))
        # Bytes that arrive meanwhile are dropped, so the client may still read what was sent before.
        self._loop.call_later(CLOSE_WAIT_S, self._transport.abort)

    def _expect_close(self, data: bytes) -> None:
        try:
            if any(incoming.opcode == CLOSE for incoming in self._reader.feed(data)):
                self._transport.close()
        except FrameError:
            self._transport.abort()

    def resumed_writing(self) -> None:
        """Answer the last ping once the client reads again."""
        if self._unanswered_ping is not None and not self._is_closing:
            self._link.write(frame(PONG, self._unanswered_ping))
            self._unanswered_ping = None

    def disconnect(self) -> None:
        """Mark the connection as lost."""
        self._deliver_end(_ABNORMAL)

    def finish(self) -> None:
        """End the connection after the application."""
        if not self._is_accepted and not self._is_refused:
            self._refuse(500, [_TEXT, *EVERY_ANSWER], b"a fault of the server; its log tells more")
        elif self._is_accepted and not self._is_closing:
            self._close(1011, "a fault of the server")

    def _refuse(self, status: int, headers: list[Header], body: bytes) -> None:
        """Refuse a handshake, and close the connection."""
        self._is_refused = True
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self._link.write(
            b"HTTP/1.1 %d %b\r\n%bcontent-length: %d\r\nconnection: close\r\n%b\r\n%b"
            % (status, HTTPStatus(status).phrase.encode(), lines, len(body), self._link.date_line, body)
        )
        self._transport.close()
        self._loop.call_later(CLOSE_WAIT_S, self._transport.abort)

    # The application's side

    async def receive(self) -> Mapping[str, Any]:
        """Return the client's next message."""
        if self._messages:
            await asyncio.sleep(0)  # other tasks run between two messages of one client
        while not self._messages:
            self._waiter = self._loop.create_future()
            await self._waiter
        message = self._messages.popleft()
        if message["type"] == "websocket.disconnect":
            self._messages.append(message)  # for further calls
        elif not self._messages and self._is_accepted and not self._is_closing:
            self._link.resume_body()
            self.feed(b"")  # the bytes left when reading paused
        encoded = message.get("encoded")
        return message if encoded is None else {"type": "websocket.receive", "text": encoded.decode()}

    async def send(self, message: Mapping[str, Any]) -> None:
        """Accept, send a message, or close."""
        kind = message["type"]
        if self._link.is_gone:
            return
        if kind == "websocket.accept":
            self._is_accepted = True
            self._link.write(
                b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
                b"sec-websocket-accept: %b\r\n%b\r\n" % (self._accept, self._link.date_line)
            )
        elif kind == "websocket.close" and not self._is_accepted:
            self._refuse(403, [_TEXT, *EVERY_ANSWER], str(message.get("reason") or "refused").encode())
        elif kind == "websocket.http.response.start":
            self._refused_head = (message["status"], message["headers"])
        elif kind == "websocket.http.response.body":
            self._refuse(*self._refused_head, message["body"])
        elif self._is_closing:
            return
        elif kind == "websocket.close":
            self._close(message.get("code", 1000), message.get("reason") or "")
        else:
            text = message.get("text")
            payload = frame(TEXT, text.encode()) if text is not None else frame(BINARY, message["bytes"])
            self._link.write(payload)
            if self._link.is_write_paused:
                await self._link.drain()

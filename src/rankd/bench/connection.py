"""One connection of the load generator: the part of HTTP/1.1 that a rankd server uses.

An answer must have a Content-Length. Its body is counted, not kept, except for the beginning of an error.
"""

from __future__ import annotations

import asyncio
import re
from typing import Protocol, cast

from rankd.bench.load import RequestKind

HEAD_BYTES_MAX = 65_536
ERROR_BYTES_KEPT = 300
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: |\r)")
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]{1,18}) *\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close *\r\n", re.IGNORECASE)
_WITHOUT_BODY = (204, 304)


class Owner(Protocol):
    """Counts the answers of a connection."""

    def answered(self, connection: LoadConnection, kind: RequestKind, status: int, error: bytes) -> None:
        """Count an answer; `error` is the beginning of an error's body."""

    def lost(self, connection: LoadConnection, why: str) -> None:
        """Count a lost connection with its open request."""


class LoadConnection(asyncio.Protocol):
    """Sends one request at a time and reports its answer."""

    __slots__ = (
        "_closes",
        "_error",
        "_head",
        "_missing",
        "_owner",
        "_status",
        "_transport",
        "due",
        "kind",
        "sent",
        "why",
    )

    def __init__(self, owner: Owner) -> None:
        """It calls its owner from the event loop."""
        self._owner = owner
        self._transport: asyncio.Transport  # once connected
        self._head = b""  # of an answer that came in parts
        self._missing = 0  # bytes of the body still to come
        self._status = 0
        self._error = b""
        self._closes = False
        self.kind: RequestKind | None = None  # of the open request
        self.due = 0.0
        self.sent = 0.0
        self.why = "connection lost"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes, kind: RequestKind, due: float, sent: float) -> None:
        """Send a request; the one before was answered."""
        self.kind, self.due, self.sent = kind, due, sent
        self._transport.write(request)

    def abort(self, why: str) -> None:
        """Give up the open request; the owner's `lost` is called."""
        self.why = why
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read a part of an answer."""
        if self._missing:
            self._missing -= len(data)
            if self._missing < 0:
                self.abort("unreadable answer")
            elif self._missing == 0:
                self._done()
            return
        if self._head:
            data = self._head + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._head = data
            if len(data) > HEAD_BYTES_MAX:
                self.abort("unreadable answer")
            return
        self._head = b""
        self._read(data, end + 2)

    def _read(self, data: bytes, end: int) -> None:
        """Read the head of an answer, whose last line ends at `end`, and the part of the body that came with it."""
        status = _STATUS.match(data)
        length = _LENGTH.search(data, 0, end)
        if status is None:
            self.abort("unreadable answer")
            return
        self._status = int(status[1])
        if length is None and self._status not in _WITHOUT_BODY:
            self.abort("unreadable answer")
            return
        begin = end + 2
        self._closes = _CLOSE.search(data, 0, end) is not None
        self._missing = (0 if length is None else int(length[1])) - (len(data) - begin)
        self._error = data[begin : begin + ERROR_BYTES_KEPT] if self._status >= 300 else b""
        if self._missing < 0:
            self.abort("unreadable answer")
        elif self._missing == 0:
            self._done()

    def _done(self) -> None:
        kind, self.kind = self.kind, None
        if self._closes:
            self._transport.close()
        if kind is None:
            self.abort("unreadable answer")  # without a request
        else:
            self._owner.answered(self, kind, self._status, self._error)

    @property
    def is_closing(self) -> bool:
        """Whether no further request can be sent."""
        return self._closes or self._transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the owner."""
        self._owner.lost(self, self.why)

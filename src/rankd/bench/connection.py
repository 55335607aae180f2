"""One connection of the load generator: as much of HTTP/1.1 as a rankd server answers with, and no more.

An answer must say its length. Its body is counted, not kept, but for the beginning of an error.
"""

from __future__ import annotations

import asyncio
import re
from typing import Protocol, cast

from rankd.bench.load import Kind

HEAD_BYTES_MAX = 65_536
ERROR_BYTES_KEPT = 300
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: |\r)")
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]{1,18}) *\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close *\r\n", re.IGNORECASE)
_WITHOUT_BODY = (204, 304)


class Owner(Protocol):
    """Who is told what becomes of a request."""

    def answered(self, connection: Connection, kind: Kind, status: int, said: bytes) -> None:
        """Take a whole answer; `said` is the beginning of its body where it is an error."""

    def lost(self, connection: Connection, why: str) -> None:
        """Notice that the connection is gone, and with it whatever was asked on it."""


class Connection(asyncio.Protocol):
    """Sends one request at a time and reports its answer."""

    __slots__ = (
        "_closes",
        "_head",
        "_missing",
        "_owner",
        "_said",
        "_status",
        "_transport",
        "due",
        "kind",
        "sent",
        "why",
    )

    def __init__(self, owner: Owner) -> None:
        """It reports to its owner from the event loop."""
        self._owner = owner
        self._transport: asyncio.Transport  # from when the connection is made
        self._head = b""  # of an answer that came in parts
        self._missing = 0  # bytes of the body still to come
        self._status = 0
        self._said = b""
        self._closes = False
        self.kind: Kind | None = None  # of the request that is open
        self.due = 0.0
        self.sent = 0.0
        self.why = "connection lost"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready to send."""
        self._transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes, kind: Kind, due: float, sent: float) -> None:
        """Send a request; the one before has been answered."""
        self.kind, self.due, self.sent = kind, due, sent
        self._transport.write(request)

    def abort(self, why: str) -> None:
        """Give up what is open; the owner is told that the connection is lost."""
        self.why = why
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take some bytes of an answer."""
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
        """Read the head of an answer, whose last line ends at `end`, and what came with it of the body."""
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
        self._said = data[begin : begin + ERROR_BYTES_KEPT] if self._status >= 300 else b""
        if self._missing < 0:
            self.abort("unreadable answer")
        elif self._missing == 0:
            self._done()

    def _done(self) -> None:
        kind, self.kind = self.kind, None
        if self._closes:
            self._transport.close()
        if kind is None:
            self.abort("unreadable answer")  # to a question nobody asked
        else:
            self._owner.answered(self, kind, self._status, self._said)

    @property
    def is_closing(self) -> bool:
        """Tell that no further request can be sent on it."""
        return self._closes or self._transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner."""
        self._owner.lost(self, self.why)

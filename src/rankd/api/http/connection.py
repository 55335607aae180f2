"""One client's connection: parses requests strictly, and answers one after the other.

    bytes → httptools (llhttp, strict) → HttpExchange → the application, a task each → response
                                       └ Upgrade: websocket → WebSocketExchange

When the client leaves, its request is cancelled: a closed sending side counts as left. The memory of a connection is
bounded: its head by `limits.header_bytes_max`, a body by `BODY_BUFFER_BYTES_MAX` until the application reads it,
pipelined requests by `PIPELINED_BYTES_MAX`, unread answers by one and `WRITE_BUFFER_BYTES_MAX`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from rankd.api.http import head
from rankd.api.http.eager import run_eagerly
from rankd.api.http.exchange import HttpExchange
from rankd.api.http.refusal import refusal
from rankd.api.http.websocket import WebSocketExchange, accept_of

if TYPE_CHECKING:
    from rankd.api.http.server import HttpServer

HEADERS_MAX = 100
HEAD_SLICE_BYTES = 4_096  # parsed at a time, so that pipelined requests are few
READ_BYTES_MAX = 32 * 1024  # from one connection at a time
WRITE_BUFFER_BYTES_MAX = 64 * 1024  # sent and not yet read by the client; writers wait above it
FRAMING_MAX = 8  # bytes of chunk sizes, extensions and trailers for each byte of a body
PIPELINED_BYTES_MAX = 256 * 1024  # of requests that wait for the answers before them
UNASKED_BYTES_MAX = 64 * 1024  # of a body that no call of its method reads
STALLED_S = 30.0  # a client that reads nothing of its answer for so long is aborted
LINGER_S = 2.0  # how long a client that still sends may read its answer
LINGER_BYTES_MAX = 16 * 1024 * 1024
_BODILESS = ("GET", "HEAD")
_log = logging.getLogger("rankd")


class HttpConnection(asyncio.BufferedProtocol):
    """A connection to one client; on the event loop. CPython reads up to 30 attributes faster than more."""

    def __init__(self, server: HttpServer) -> None:
        """`server` has what all connections share."""
        self._server = server
        self._loop = server.loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._client: tuple[str, int] | None = None
        self.is_gone = False
        self.is_write_paused = False
        self.deadline = 0.0  # of the loop's time, when it is aborted; 0 while it is answered
        self._writable: list[asyncio.Future[None]] = []
        self._url = b""
        self._line = b""  # the data being parsed, with the first line of a request
        self._headers: list[tuple[bytes, bytes]] = []
        self._server_headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._is_in_head = False
        self._reading: HttpExchange | None = None  # whose body is being read
        self._current: HttpExchange | None = None  # being answered
        self._waiting: deque[HttpExchange] = deque()  # pipelined
        self._upgrading: HttpExchange | None = None
        self._unparsed = b""
        self._is_paused = False  # by the application
        self._is_resting = False  # until its turn to be read
        self._is_unfinished = False  # the last read did not end a request
        self._refusal: tuple[int, str] | None = None  # sent after the answers before it
        self._websocket: WebSocketExchange | None = None
        self._is_used = False  # a request has been started on it
        self._is_lingering = False
        self._lingered_bytes = 0
        self._unsent_bytes = 0  # at the last check

    # From the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register a new connection."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it
        peer = transport.get_extra_info("peername")
        self._client = peer[:2] if isinstance(peer, tuple) else None
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        self.deadline = self._loop.time() + self._server.header_read_s
        if not self._server.admit(self):
            self._refuse(503, "the server has as many connections as it takes; try again in a moment")

    def connection_lost(self, error: Exception | None) -> None:
        """Clean up after the client left or was aborted."""
        self.is_gone = True
        self._server.forget(self)
        self._waiting.clear()
        self._unparsed = b""
        self.resume_writing()
        if self._websocket is not None:
            self._websocket.disconnect()
        elif self._current is not None:
            self._current.disconnect()
        # They refer to this connection: without them it is freed at once, without a garbage collection.
        del self._parser
        self._reading = self._upgrading = self._current = self._websocket = None

    def get_buffer(self, _size_hint: int) -> memoryview:
        """Return the buffer for the next bytes: one for all connections, since each copies them at once."""
        return self._server.read_buffer

    def buffer_updated(self, size: int) -> None:
        """Parse bytes of the client."""
        data = self._server.read_buffer[:size].tobytes()
        if self._websocket is not None:
            self._websocket.feed(data)
        elif self._is_lingering:
            self._lingered_bytes += size
            if self._lingered_bytes > LINGER_BYTES_MAX:
                self._transport.abort()
        elif self._refusal is None:
            self._parse(self._unparsed + data if self._unparsed else data)
            if self._is_used and (current := self._current) is not None and not current.is_started:
                self._run(current)
        was_unfinished = self._is_unfinished
        self._is_unfinished = self._reading is not None or self._is_in_head or self._is_lingering
        is_slow = self._is_unfinished and (was_unfinished or not self._is_used)
        if is_slow or size == READ_BYTES_MAX or self._websocket is not None:
            self._rest()

    def _rest(self) -> None:
        """Resume reading in a later turn: libuv would empty a full socket, and each of a thousand, in one turn."""
        if not (self._is_resting or self._transport.is_closing()):
            self._is_resting = True
            self._transport.pause_reading()
            self._server.turns.add(self._rested)

    def _rested(self) -> None:
        self._is_resting = False
        if not (self._is_paused or self._transport.is_closing()):
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Note that the client reads more slowly than it is sent."""
        self.is_write_paused = True

    def resume_writing(self) -> None:
        """Resume after the client has read."""
        self.is_write_paused = False
        for waiter in self._writable:
            if not waiter.done():
                waiter.set_result(None)
        self._writable.clear()
        if self.is_gone:
            return
        if self._websocket is not None:
            self._websocket.resumed_writing()
        elif self._current is None and not (self._is_lingering or self._transport.is_closing()):
            self._advance()

    # For exchanges

    @property
    def date_line(self) -> bytes:
        """The header `date` of this second."""
        return self._server.date_line

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        if self.is_write_paused:
            waiter = self._loop.create_future()
            self._writable.append(waiter)
            await waiter

    def pause_body(self) -> None:
        """Pause reading until the application reads."""
        if not self._is_paused:
            self._is_paused = True
            if not self._is_resting:
                self._transport.pause_reading()

    def resume_body(self) -> None:
        """Resume reading."""
        if self._is_paused:
            self._is_paused = False
            if not self._is_resting:
                self._transport.resume_reading()

    # Parsing

    def _parse(self, data: bytes) -> None:
        self._unparsed = b""
        offset = 0
        while offset < len(data):
            if self._waiting:  # at most one slice ahead of the answers
                # Reading continues: a paused transport does not notice that the client left.
                self._unparsed = data[offset:]
                if len(self._unparsed) > PIPELINED_BYTES_MAX:
                    self._refuse(400, f"{PIPELINED_BYTES_MAX} bytes of requests wait for their answers; send fewer")
                return
            size = READ_BYTES_MAX if self._reading is not None else HEAD_SLICE_BYTES
            piece = data if offset == 0 and len(data) <= size else data[offset : offset + size]
            reading = self._reading
            received_bytes = 0 if reading is None else reading.received_bytes
            self._line += piece
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserUpgrade as upgrade:
                self._line = b""
                self._upgrade(data[offset + upgrade.args[0] :])
                return
            except httptools.HttpParserError as problem:
                cause = problem.__context__
                if isinstance(cause, head.RefusedHead):
                    self._refuse(cause.status, str(cause))
                else:
                    self._refuse(400, f"the request is not HTTP/1.1: {str(problem)[:80]}")
                return
            offset += len(piece)
            if self._headers or not self._is_in_head:
                self._line = b""
            if reading is not None and reading is self._reading:
                reading.framing_bytes += len(piece) - (reading.received_bytes - received_bytes)
                if reading.framing_bytes > self._server.header_bytes_max + FRAMING_MAX * reading.received_bytes:
                    self._refuse(431, "the body has more chunk extensions and trailers than anybody needs")
                    return
            if self._is_in_head:
                self._head_bytes += len(piece)
                if self._head_bytes > self._server.header_bytes_max:
                    self._refuse(431, f"the head of a request may have {self._server.header_bytes_max} bytes")
                    return

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url = b""
        self._headers = []
        self._server_headers.clear()
        self._head_bytes = 0
        self._is_in_head = True
        if self._current is None:
            self.deadline = self._loop.time() + self._server.header_read_s

    def on_url(self, url: bytes) -> None:
        """Append a part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers after a chunked body are ignored."""
        if self._reading is not None:
            return
        if len(self._headers) >= HEADERS_MAX:
            raise head.RefusedHead(431, f"a request may have {HEADERS_MAX} headers")
        name = name.lower()
        if name in head.SERVER_HEADERS:
            if name == b"host" and value != self._server.last_host:
                head.check_host(value)
                self._server.last_host = value
            self._server_headers.append((name, value))
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Start the application after the head, or queue the request."""
        self._is_in_head = False
        parser = self._parser
        version = parser.get_http_version()
        method = parser.get_method().decode()
        if b" RTSP/" in self._line or method == "SOURCE":
            head.check_protocol(self._line, method.encode(), self._url)
        keep_alive = parser.should_keep_alive() and version == "1.1"
        expects_continue = is_websocket = False
        if len(self._server_headers) != 1 or self._server_headers[0][0] != b"host":
            expects_continue, is_websocket = head.read_server_headers(self._server_headers, version)
        elif version not in head.VERSIONS:
            raise head.RefusedHead(505, "this server speaks HTTP/1.1; use that")
        scope = head.http_scope(
            method, version, self._server.scheme, self._url, headers=self._headers, client=self._client
        )
        exchange = HttpExchange(
            self,
            scope,
            keep_alive=keep_alive and not self._server.is_stopping,
            expects_continue=expects_continue,
        )
        if parser.should_upgrade():  # the parser stops after the head
            if method == "CONNECT":
                raise head.RefusedHead(405, "this server is not a proxy; send requests to it directly")
            self._reading = self._upgrading = exchange
            if is_websocket and method == "GET":
                exchange.scope["type"] = "websocket"
            return
        self._reading = exchange
        if self._current is None and not self.is_write_paused:
            self._start(exchange)
        else:
            self._waiting.append(exchange)

    def on_body(self, piece: bytes) -> None:
        """Add a piece of the body; of a method without a body it is dropped, up to a limit."""
        reading = self._reading
        if reading is None:
            return
        if reading.scope["method"] not in _BODILESS:
            reading.add(piece)
            return
        reading.received_bytes += len(piece)
        if reading.received_bytes > UNASKED_BYTES_MAX:
            raise head.RefusedHead(413, f"a {reading.scope['method']} has no body")

    def on_message_complete(self) -> None:
        """End a request's body."""
        exchange, self._reading = self._reading, None
        if exchange is not None:
            exchange.complete()

    # Answering

    def _start(self, exchange: HttpExchange) -> None:
        self._current = exchange
        self.deadline = 0.0
        if not self._is_used:
            self._server.turns.add(lambda: self._start_first(exchange))

    def _run(self, exchange: HttpExchange) -> None:
        """Run the application, once all that was received is parsed; in a task if the body is not complete."""
        if exchange.is_started or self.is_gone:
            return
        exchange.is_started = True
        if exchange.is_body_complete:
            exchange.task = run_eagerly(self._answer(exchange), self._loop)
        else:
            exchange.task = self._loop.create_task(self._answer(exchange))

    def _start_first(self, exchange: HttpExchange | WebSocketExchange) -> None:
        """Start the first request of a connection in its turn: hundreds of connections may begin at once."""
        self._is_used = True
        if self.is_gone:
            return
        if isinstance(exchange, WebSocketExchange):
            exchange.task = self._loop.create_task(self._run_websocket(exchange))
        elif exchange.is_aborted:
            self._current = None
            self._finish(exchange)
        else:
            self._run(exchange)

    async def _answer(self, exchange: HttpExchange) -> None:
        try:
            await self._server.app(exchange.scope, exchange.receive, exchange.send)
        except Exception:
            _log.exception("a request failed")
        finally:
            self._current = None
            self._finish(exchange)

    def _finish(self, exchange: HttpExchange) -> None:
        """Continue with the next request after an answer."""
        if self.is_gone:
            return
        if not exchange.is_response_complete:
            if exchange.is_response_started:  # an interrupted answer must not look complete
                self._transport.abort()
            elif self._refusal is not None:
                self._answer_and_close(*self._refusal)
            else:
                self._answer_and_close(500, "a fault of the server; its log tells more")
        elif not exchange.keep_alive:
            self._close()
        else:
            self._advance()

    def _advance(self) -> None:
        """Continue with the next waiting request, once the client has read enough of the answers before it."""
        if self.is_write_paused:
            self.deadline = self._loop.time() + STALLED_S
        elif self._waiting:
            self._start(self._waiting.popleft())
            self._parse_on()
        elif self._refusal is not None:
            self._answer_and_close(*self._refusal)
        elif self._server.is_stopping:
            self._close()
        else:
            self.deadline = self._loop.time() + self._server.keep_alive_s
            if self._unparsed or self._is_paused:
                self._parse_on()

    def _parse_on(self) -> None:
        """Parse the bytes after pipelined requests, and resume reading."""
        if self._unparsed:
            self._parse(self._unparsed)
        if self._current is not None:
            self._loop.call_soon(self._run, self._current)
        self.resume_body()

    def _refuse(self, status: int, problem: str) -> None:
        """Answer a malformed request, after the answers before it, and read no more."""
        self._refusal = (status, problem)
        self._unparsed = b""
        self._is_in_head = False
        self._server.count_malformed(status)
        reading, self._reading = self._reading, None
        if reading is not None and reading in self._waiting:
            self._waiting.remove(reading)
        if self._current is None:
            self._answer_and_close(status, problem)
        elif reading is self._current:
            reading.abort_body()
            if status == 413 and reading.task is not None:
                reading.task.cancel()

    def _answer_and_close(self, status: int, problem: str) -> None:
        self.write(refusal(status, problem, self.date_line))
        self._close()

    def _close(self) -> None:
        """Close the connection after an answer; unread bytes would make the system reset it before."""
        self._is_in_head = False
        if self._refusal is None and self._reading is None and not self._unparsed:
            self.deadline = self._loop.time() + STALLED_S
            self._transport.close()
            return
        self._is_lingering, self._unparsed, self._reading = True, b"", None
        self.deadline = self._loop.time() + LINGER_S
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.resume_body()

    def _upgrade(self, rest: bytes) -> None:
        """Switch protocols: the parser has stopped after a request with Upgrade."""
        exchange, self._upgrading = self._upgrading, None
        if exchange is None:
            return
        if exchange.scope["type"] != "websocket":
            self._reading = None
            self._parser = httptools.HttpRequestParser(self)
            self._parse(head.head_without_upgrade(exchange.scope, self._url) + rest)
            return
        try:
            accept = accept_of(exchange.scope)
        except head.RefusedHead as problem:
            self._refuse(problem.status, str(problem))
            return
        if self._current is not None:
            self._refuse(400, "a WebSocket handshake must not be pipelined")
            return
        scope = dict(exchange.scope)
        scope["scheme"] = "wss" if self._server.scheme == "https" else "ws"
        del scope["method"]
        websocket = self._websocket = WebSocketExchange(self, self._transport, scope, accept)
        self.deadline = 0.0
        self._server.turns.add(lambda: self._start_first(websocket))
        if rest:
            websocket.feed(rest)

    async def _run_websocket(self, websocket: WebSocketExchange) -> None:
        try:
            await self._server.app(websocket.scope, websocket.receive, websocket.send)
        except Exception:
            _log.exception("a WebSocket connection failed")
        finally:
            if not self.is_gone:
                websocket.finish()

    @property
    def address(self) -> str:
        """The client's address; empty for a socket without one."""
        return self._client[0] if self._client is not None else ""

    @property
    def held_bytes(self) -> int:
        """How many bytes of the client are held, besides the body of a request."""
        return len(self._unparsed) + (self._websocket.held_bytes if self._websocket is not None else 0)

    def close_if_idle(self) -> None:
        """Close an idle connection; a new one may still send its first request."""
        if self._is_used and self._current is None and self._websocket is None and not self.is_gone:
            self._transport.close()

    @property
    def has_unsent(self) -> bool:
        """Whether the client has not read all of its answer."""
        return self._transport.get_write_buffer_size() > 0

    def time_out(self) -> None:
        """Abort a connection after its deadline; a client that still reads its answer gets more time."""
        if self.is_gone or not 0 < self.deadline <= self._loop.time():  # it continued meanwhile
            return
        unsent_bytes, before = self._transport.get_write_buffer_size(), self._unsent_bytes
        self._unsent_bytes = unsent_bytes
        if unsent_bytes and (not before or unsent_bytes < before):
            self.deadline = self._loop.time() + STALLED_S
        elif self._is_in_head and not unsent_bytes:
            self._refuse(408, "the head of the request was not sent to its end in time")
        else:
            self.abort()

    def abort(self) -> None:
        """Abort the connection."""
        self._transport.abort()

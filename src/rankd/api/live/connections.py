"""Live connections: server-sent events and WebSocket, over one hub.

GET /v1/stream?topic=… → Streams (admission) → Hub (watched topics) → frames, until one side ends it
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from rankd.api.auth.access import require_own, require_reader, sees_everybody
from rankd.api.auth.identity import Identity, require_identity
from rankd.api.auth.tickets import Tickets
from rankd.api.http.frames import MESSAGE_BYTES_MAX
from rankd.api.http.problems import closing_reason, problem_body
from rankd.api.http.request import Header, Receive, Request, Send, read_integer_text
from rankd.api.live.streams import TOO_SLOW, TOPICS_PER_STREAM_MAX, Ending, Stream, Streams, parse_since
from rankd.domain.board_selection import EVERY_BOARD
from rankd.errors import InvalidValue, RankdError, RanksUnavailable, RateExceeded, Unavailable
from rankd.push.hub import Hub
from rankd.push.messages import NO_OFFSET
from rankd.push.topics import Topic, TopicKind, parse_topic
from rankd.shortening import quote, shorten

CountRead = Callable[[Identity | None, str], None]  # the sender and its address
INTERVAL_MS_MAX = 60_000
SSE_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_BEAT = b": still here\n\n"
_BEAT_TEXT = '{"type":"heartbeat"}'
TOO_LARGE = Ending(1009, f"a message may have {MESSAGE_BYTES_MAX} bytes")
NO_TEXT = Ending(1003, "frames are JSON text")
FAULT = Ending(1011, "a fault of the server; its log has more")
GOODBYE = Ending(1000, "")
TOO_SLOW_NOTICE_S = 1.0  # how long a client that does not read may take to receive the reason
_log = logging.getLogger("rankd")


class ClientFrame(msgspec.Struct, forbid_unknown_fields=True):
    """A frame from a client."""

    op: str
    topic: str
    since: str | None = None


_decode = msgspec.json.Decoder(ClientFrame).decode


class Live:
    """Serves live connections; on the event loop."""

    def __init__(
        self,
        hub: Hub,
        streams: Streams,
        tickets: Tickets,
        count_read: CountRead,
        *,
        public_read: bool,
        interval_ms: int,
    ) -> None:
        """`count_read` raises RateExceeded; `interval_ms` is the least time between two messages of a topic."""
        self.hub = hub
        self.streams = streams
        self.tickets = tickets
        self.kept = EVERY_BOARD  # the boards whose topics are here
        self._count_read = count_read
        self._public_read = public_read
        self._interval_ms = interval_ms
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the hub and the checks of streams."""
        self._running = [asyncio.create_task(self.hub.run()), asyncio.create_task(self.streams.run())]

    def stop(self) -> None:
        """Stop them."""
        for task in self._running:
            task.cancel()

    def topic_for(self, identity: Identity | None, text: str) -> Topic:
        """Return a topic as the sender may watch it; raise Forbidden where it may not."""
        topic, is_public = parse_topic(text), self._public_read
        if not self.kept.keeps(topic.board):
            raise RanksUnavailable(
                f"{topic.board} is not kept by the worker that answers this connection; watch it by "
                "GET /v1/stream, which every worker answers"
            )
        if topic.kind is TopicKind.FRIENDS:
            require_own(identity, topic.player)
        else:
            require_reader(identity, topic.player if topic.kind is TopicKind.PLAYER else None, is_public=is_public)
        return topic._replace(only_mutual=not sees_everybody(identity, is_public=is_public))

    def interval_s(self, query: Mapping[str, str]) -> float:
        """Return the least time between two messages of a connection."""
        text = query.get("interval_ms")
        if text is None:
            return 0.0
        interval_ms = read_integer_text("interval_ms", text)
        if not self._interval_ms <= interval_ms <= INTERVAL_MS_MAX:
            raise InvalidValue("interval_ms", f"must be from {self._interval_ms} to {INTERVAL_MS_MAX}")
        return interval_ms / 1_000

    def open(self, request: Request) -> Stream:
        """Admit a WebSocket connection, or let it end at once with the reason; `close` removes it."""
        try:
            self._count_read(request.identity, request.address)
            if not self._public_read:
                require_identity(request.identity)
            return self._open(request)
        except RankdError as problem:
            # Before the handshake is accepted, a browser would not see the code.
            stream = Stream(self.hub, request.address, request.identity, 0.0)
            code = 1013 if isinstance(problem, Unavailable | RateExceeded) else 1008
            stream.end(Ending(code, closing_reason(problem)))
            return stream

    def _open(self, request: Request) -> Stream:
        stream = Stream(self.hub, request.address, request.identity, self.interval_s(request.query))
        self.streams.add(stream)
        ticket = request.query.get("ticket")
        if ticket is not None:  # after admission: a client that is refused for now may use it again
            try:
                self.tickets.use(ticket)
            except RankdError:
                self.streams.remove(stream)
                raise
        return stream

    def close(self, stream: Stream) -> None:
        """Remove a connection and its topics."""
        stream.leave()
        self.streams.remove(stream)

    # Server-sent events

    async def open_sse(self, request: Request) -> Stream:
        """Watch the topics of a stream before anything is sent, so that an error is an ordinary problem."""
        stream = self._open(request)
        try:
            last_event_id = request.headers.get(b"last-event-id")
            await self._watch(stream, request.query, None if last_event_id is None else last_event_id.decode("latin-1"))
        except BaseException:
            self.close(stream)
            raise
        return stream

    async def _watch(self, stream: Stream, query: Mapping[str, str], since: str | None) -> None:
        topics = query["topic"].split("\n") if "topic" in query else []
        if not topics:
            raise InvalidValue("topic", "is missing; send one such as topic=top:arcade")
        if len(topics) > TOPICS_PER_STREAM_MAX:
            raise InvalidValue("topic", f"must be at most {TOPICS_PER_STREAM_MAX} a connection; open another one")
        parsed = [self.topic_for(stream.identity, text) for text in topics]
        offset = parse_since(since, self.hub.epoch)
        stream.sent_upto = max(NO_OFFSET, offset or NO_OFFSET)
        for topic in parsed:
            await stream.watch(topic, offset)

    async def sse(self, stream: Stream, headers: list[Header], receive: Receive, send: Send) -> None:
        """Send events until the client leaves, or the stream ends."""
        await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *headers]})
        listening = asyncio.create_task(_listen_safely(stream, lambda: _until_gone(receive, stream)))
        stream.is_beating = True  # the first bytes show proxies and pages that it is open
        stream.wake()
        try:
            while stream.ending is None:
                await stream.wait()
                frames = stream.take_events()
                if not frames and stream.is_beating:
                    frames = _BEAT
                stream.is_beating = False
                if frames:
                    await _sending(stream, send({"type": "http.response.body", "body": frames, "more_body": True}))
            if stream.ending is not GOODBYE:
                reason = msgspec.json.encode({"code": stream.ending.code, "reason": stream.ending.reason})
                last = b"event: end\ndata: %s\n\n" % reason
                await _sending(stream, send({"type": "http.response.body", "body": last}))
        finally:
            listening.cancel()

    # WebSocket

    async def websocket(self, stream: Stream, receive: Receive, send: Send) -> None:
        """Exchange frames until one side ends the connection, which has been accepted."""
        listening = asyncio.create_task(_listen_safely(stream, lambda: self._listen(stream, receive, send)))
        try:
            try:
                await self._send_frames(stream, send)
            finally:
                # The HTTP server sends no close frame while a task waits in receive().
                listening.cancel()
                await asyncio.wait([listening])
            if stream.ending is not None and stream.ending is not GOODBYE:
                await _sending(stream, send(_close(stream.ending)))
        except asyncio.CancelledError:
            if stream.ending is TOO_SLOW:
                with suppress(Exception):  # including TimeoutError
                    async with asyncio.timeout(TOO_SLOW_NOTICE_S):
                        await send(_close(TOO_SLOW))
            raise

    async def _send_frames(self, stream: Stream, send: Send) -> None:
        epoch = self.hub.epoch
        while stream.ending is None:
            await stream.wait()
            for message in stream.take():
                await _sending(stream, send({"type": "websocket.send", "text": message.text(epoch)}))
            if stream.is_beating:
                stream.is_beating = False
                await _sending(stream, send({"type": "websocket.send", "text": _BEAT_TEXT}))

    async def _listen(self, stream: Stream, receive: Receive, send: Send) -> None:
        while stream.ending is None:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                stream.end(GOODBYE)
            elif message["type"] == "websocket.receive":
                text = message.get("text")
                if text is None:
                    stream.end(NO_TEXT)
                elif len(text) > MESSAGE_BYTES_MAX:  # under another ASGI server than rankd's
                    stream.end(TOO_LARGE)
                else:
                    await self._handle_frame(stream, text, send)

    async def _handle_frame(self, stream: Stream, text: str, send: Send) -> None:
        topic = None
        try:
            frame = _read(text)
            topic = frame.topic
            if frame.op == "subscribe":
                self._count_read(stream.identity, stream.address)
                parsed = self.topic_for(stream.identity, frame.topic)
                await stream.watch(parsed, parse_since(frame.since, self.hub.epoch))
            else:
                stream.unwatch(parse_topic(frame.topic).text)
        except RankdError as problem:
            error = msgspec.json.encode({"type": "error", "topic": topic, "problem": problem_body(problem)})
            with suppress(Exception):  # the client does not read
                await _sending(stream, send({"type": "websocket.send", "text": error.decode()}))


async def _sending(stream: Stream, sent: Awaitable[None]) -> None:
    stream.sending_since = asyncio.get_running_loop().time()
    try:
        await sent
    finally:
        stream.sending_since = None


async def _listen_safely(stream: Stream, listen: Callable[[], Awaitable[None]]) -> None:
    """Listen to a client; a fault ends the connection, which would otherwise stay open for ever."""
    try:
        await listen()
    except Exception:
        _log.exception("a live connection failed")
        stream.end(FAULT)


def _close(ending: Ending) -> dict[str, Any]:
    return {"type": "websocket.close", "code": ending.code, "reason": ending.reason}


async def _until_gone(receive: Receive, stream: Stream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.end(GOODBYE)


def _read(text: str) -> ClientFrame:
    try:
        frame = _decode(text)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidValue(
            "frame", f'must be such as {{"op": "subscribe", "topic": "top:arcade"}}: {shorten(str(problem))}'
        ) from None
    if frame.op not in ("subscribe", "unsubscribe"):
        raise InvalidValue("op", f"must be subscribe or unsubscribe; got {quote(frame.op)}")
    return frame

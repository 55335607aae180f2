"""Live connections: server-sent events and WebSocket, over one hub.

GET /v1/stream?topic=… → Streams (a place) → Hub (what is watched) → frames, until one side ends it
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from rankd.api.access import require_own, require_reader, sees_everybody
from rankd.api.http.frames import MESSAGE_BYTES_MAX
from rankd.api.identity import Identity, require_identity
from rankd.api.problems import closing_reason, problem_body
from rankd.api.request import Header, Receive, Request, read_integer_text
from rankd.api.streams import TOO_SLOW, TOPICS_PER_STREAM_MAX, Ending, Stream, Streams, parse_since
from rankd.api.tickets import Tickets
from rankd.errors import InvalidValue, RankdError, RateExceeded, Unavailable
from rankd.push.hub import Hub
from rankd.push.messages import NO_OFFSET
from rankd.push.topics import Kind, Topic, parse_topic
from rankd.shortening import quote, shorten

Send = Callable[[dict[str, Any]], Awaitable[None]]
CountRead = Callable[[Identity | None, str], None]  # who reads, and from which address
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
FAULT = Ending(1011, "a fault of the server; its log tells more")
GOODBYE = Ending(1000, "")
TOLD_TOO_SLOW_S = 1.0  # how long somebody who does not read may take to be told so
_log = logging.getLogger("rankd")


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """A frame of a client."""

    op: str
    topic: str
    since: str | None = None


_decode = msgspec.json.Decoder(Asked).decode


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
        """`count_read` raises RateExceeded; `interval_ms` is the shortest there is between two messages of a topic."""
        self.hub = hub
        self.streams = streams
        self.tickets = tickets
        self._count_read = count_read
        self._public_read = public_read
        self._interval_ms = interval_ms
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to look at what is watched."""
        self._running = [asyncio.create_task(self.hub.run()), asyncio.create_task(self.streams.run())]

    def stop(self) -> None:
        """Look no more."""
        for task in self._running:
            task.cancel()

    def topic_for(self, identity: Identity | None, text: str) -> Topic:
        """Return a topic as somebody may watch it; refuse what they may not read."""
        topic, is_public = parse_topic(text), self._public_read
        if topic.kind is Kind.FRIENDS:
            require_own(identity, topic.player)
        else:
            require_reader(identity, topic.player if topic.kind is Kind.PLAYER else None, is_public=is_public)
        return topic._replace(only_mutual=not sees_everybody(identity, is_public=is_public))

    def interval_s(self, query: Mapping[str, str]) -> float:
        """Return how long a connection rests between two messages: as asked for, if that is longer than usual."""
        text = query.get("interval_ms")
        if text is None:
            return 0.0
        interval_ms = read_integer_text("interval_ms", text)
        if not self._interval_ms <= interval_ms <= INTERVAL_MS_MAX:
            raise InvalidValue("interval_ms", f"must be from {self._interval_ms} to {INTERVAL_MS_MAX}")
        return interval_ms / 1_000

    def open(self, request: Request) -> Stream:
        """Give a WebSocket connection its place, or let it end at once and say why; `close` gives the place back."""
        try:
            self._count_read(request.identity, request.address)
            if not self._public_read:
                require_identity(request.identity)
            return self._open(request)
        except RankdError as problem:
            # Refused before it is accepted, a browser would not learn the code.
            stream = Stream(self.hub, request.address, request.identity, 0.0)
            code = 1013 if isinstance(problem, Unavailable | RateExceeded) else 1008
            stream.end(Ending(code, closing_reason(problem)))
            return stream

    def _open(self, request: Request) -> Stream:
        stream = Stream(self.hub, request.address, request.identity, self.interval_s(request.query))
        self.streams.add(stream)
        ticket = request.query.get("ticket")
        if ticket is not None:  # not before: whoever is refused for now comes again with it
            try:
                self.tickets.use(ticket)
            except RankdError:
                self.streams.remove(stream)
                raise
        return stream

    def close(self, stream: Stream) -> None:
        """Let a connection's topics and its place go."""
        stream.leave()
        self.streams.remove(stream)

    # Server-sent events

    async def open_sse(self, request: Request) -> Stream:
        """Watch what a stream asks for before anything is answered: what is wrong is an ordinary problem."""
        stream = self._open(request)
        try:
            seen = request.headers.get(b"last-event-id")
            await self._watch(stream, request.query, None if seen is None else seen.decode("latin-1"))
        except BaseException:
            self.close(stream)
            raise
        return stream

    async def _watch(self, stream: Stream, query: Mapping[str, str], since: str | None) -> None:
        topics = query["topic"].split("\n") if "topic" in query else []
        if not topics:
            raise InvalidValue("topic", "must be given, such as topic=top:arcade")
        if len(topics) > TOPICS_PER_STREAM_MAX:
            raise InvalidValue("topic", f"must be at most {TOPICS_PER_STREAM_MAX} a connection; open another one")
        parsed = [self.topic_for(stream.identity, text) for text in topics]
        offset = parse_since(since, self.hub.epoch)
        stream.seen = max(NO_OFFSET, offset or NO_OFFSET)
        for topic in parsed:
            await stream.watch(topic, offset)

    async def sse(self, stream: Stream, headers: list[Header], receive: Receive, send: Send) -> None:
        """Send events until the client goes, or has to."""
        await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *headers]})
        listening = asyncio.create_task(_hearing(stream, lambda: _until_gone(receive, stream)))
        stream.is_beating = True  # the first bytes tell proxies and pages that it is open
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
                said = msgspec.json.encode({"code": stream.ending.code, "reason": stream.ending.reason})
                last = b"event: end\ndata: %s\n\n" % said
                await _sending(stream, send({"type": "http.response.body", "body": last}))
        finally:
            listening.cancel()

    # WebSocket

    async def websocket(self, stream: Stream, receive: Receive, send: Send) -> None:
        """Exchange frames until one side ends it; the connection has been accepted."""
        listening = asyncio.create_task(_hearing(stream, lambda: self._listen(stream, receive, send)))
        try:
            try:
                await self._send_frames(stream, send)
            finally:
                # The server underneath sends no close frame while somebody waits for what the client says.
                listening.cancel()
                await asyncio.wait([listening])
            if stream.ending is not None and stream.ending is not GOODBYE:
                await _sending(stream, send(_close(stream.ending)))
        except asyncio.CancelledError:
            if stream.ending is TOO_SLOW:
                with suppress(Exception):  # TimeoutError among them
                    async with asyncio.timeout(TOLD_TOO_SLOW_S):
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
                elif len(text) > MESSAGE_BYTES_MAX:  # where another server than rankd's runs the application
                    stream.end(TOO_LARGE)
                else:
                    await self._obey(stream, text, send)

    async def _obey(self, stream: Stream, text: str, send: Send) -> None:
        topic = None
        try:
            asked = _read(text)
            topic = asked.topic
            if asked.op == "subscribe":
                self._count_read(stream.identity, stream.address)
                parsed = self.topic_for(stream.identity, asked.topic)
                await stream.watch(parsed, parse_since(asked.since, self.hub.epoch))
            else:
                stream.unwatch(parse_topic(asked.topic).text)
        except RankdError as problem:
            said = msgspec.json.encode({"type": "error", "topic": topic, "problem": problem_body(problem)})
            with suppress(Exception):  # whoever does not read does not get it
                await _sending(stream, send({"type": "websocket.send", "text": said.decode()}))


async def _sending(stream: Stream, sent: Awaitable[None]) -> None:
    stream.sending_since = asyncio.get_running_loop().time()
    try:
        await sent
    finally:
        stream.sending_since = None


async def _hearing(stream: Stream, hear: Callable[[], Awaitable[None]]) -> None:
    """Hear what a client says; a connection that cannot be heard any more must not keep its place."""
    try:
        await hear()
    except Exception:
        _log.exception("a live connection failed")
        stream.end(FAULT)


def _close(ending: Ending) -> dict[str, Any]:
    return {"type": "websocket.close", "code": ending.code, "reason": ending.reason}


async def _until_gone(receive: Receive, stream: Stream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.end(GOODBYE)


def _read(text: str) -> Asked:
    try:
        asked = _decode(text)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidValue(
            "frame", f'must be such as {{"op": "subscribe", "topic": "top:arcade"}}: {shorten(str(problem))}'
        ) from None
    if asked.op not in ("subscribe", "unsubscribe"):
        raise InvalidValue("op", f"must be subscribe or unsubscribe; got {quote(asked.op)}")
    return asked

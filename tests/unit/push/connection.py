"""A connection without a network: what a client sends, and what it takes, when the test lets it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from rankd.api.auth.identity import Identity, identity_of_key
from rankd.api.auth.tickets import Tickets
from rankd.api.http.request import Request
from rankd.api.live.connections import CountRead, Live
from rankd.api.live.streams import Stream, Streams
from rankd.push.hub import Hub
from rankd.registry.credentials import Credential, Scope

from .conftest import until

NOW_S = 1_000_000.0
OVER_S = 10.0


class Connection:
    """The two sides of an ASGI connection."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.reads = asyncio.Event()  # cleared: the client takes nothing
        self.reads.set()
        self.waiting = 0  # sends that wait for the client
        self._received: asyncio.Queue[dict[str, Any] | Exception] = asyncio.Queue()

    def says(self, text: str | bytes) -> None:
        kind = "bytes" if isinstance(text, bytes) else "text"
        self._received.put_nowait({"type": "websocket.receive", kind: text})

    def asks(self, op: str, topic: str, **more: str) -> None:
        self.says(msgspec.json.encode({"op": op, "topic": topic, **more}).decode())

    def goes(self, kind: str = "websocket.disconnect") -> None:
        self._received.put_nowait({"type": kind})

    def breaks(self) -> None:
        self._received.put_nowait(RuntimeError("the server underneath failed"))

    async def receive(self) -> Mapping[str, Any]:
        message = await self._received.get()
        if isinstance(message, Exception):
            raise message
        return message

    async def send(self, message: dict[str, Any]) -> None:
        self.waiting += 1
        await self.reads.wait()
        self.waiting -= 1
        self.sent.append(message)

    @property
    def frames(self) -> list[dict[str, Any]]:
        """What came by WebSocket."""
        texts = [message["text"] for message in self.sent if message["type"] == "websocket.send"]
        return [msgspec.json.decode(text) for text in texts]

    @property
    def close_code(self) -> int | None:
        codes = [message["code"] for message in self.sent if message["type"] == "websocket.close"]
        return codes[-1] if codes else None

    @property
    def body(self) -> bytes:
        """What came by server-sent events."""
        return b"".join(message.get("body", b"") for message in self.sent)

    async def frame(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Wait for so many frames of a type; return the last."""
        await until(lambda: len(self._of(kind)) >= count)
        return self._of(kind)[count - 1]

    async def event(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Wait for so many server-sent events of a type; return what the last one holds."""
        await until(lambda: len(self._events(kind)) >= count)
        return self._events(kind)[count - 1]

    def _events(self, kind: str) -> list[dict[str, Any]]:
        events = [dict(line.split(": ", 1) for line in text.splitlines()) for text in self.body.decode().split("\n\n")]
        return [msgspec.json.decode(event["data"]) for event in events if event.get("event") == kind]

    def _of(self, kind: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame["type"] == kind]


def live_over(
    hub: Hub,
    *,
    streams_max: int = 10,
    public_read: bool = True,
    heartbeat_s: float | None = None,
    stalled_s: float | None = None,
    count_read: CountRead = lambda _identity, _address: None,
) -> Live:
    streams = Streams(streams_max, streams_max, lambda: NOW_S, heartbeat_s=heartbeat_s, stalled_s=stalled_s)
    tickets = Tickets(lambda: NOW_S, lambda _identity: None)
    return Live(hub, streams, tickets, count_read, public_read=public_read, interval_ms=500)


def asked(query: Mapping[str, str] | None = None, identity: Identity | None = None, **headers: bytes) -> Request:
    sent = {name.replace("_", "-").encode(): value for name, value in headers.items()}

    async def nothing() -> Mapping[str, Any]:
        return {"type": "http.disconnect"}

    request = Request(sent, nothing, "id")
    request.query = query or {}
    request.identity = identity
    request.address = "192.0.2.1"
    return request


def player(name: str, *scopes: Scope, expires_at_s: int | None = None) -> Identity:
    expires_at = None if expires_at_s is None else expires_at_s * 1_000
    return identity_of_key(Credential("id", "name", frozenset(scopes), name, 0, expires_at))


def service(*scopes: Scope) -> Identity:
    return identity_of_key(Credential("id", "name", frozenset(scopes or (Scope.SCORES_WRITE,)), None, 0, None))


class Open:
    """A connection that is served, as the application does it."""

    def __init__(self, live: Live, request: Request, *, sse: bool = False) -> None:
        self.live = live
        self.connection = Connection()
        self.stream: Stream | None = None
        self._request = request
        self.served = asyncio.create_task(self._sse() if sse else self._websocket())

    async def _sse(self) -> None:
        stream = self.stream = await self.live.open_sse(self._request)
        stream.task = asyncio.current_task()
        try:
            await self.live.sse(stream, [], self.connection.receive, self.connection.send)
        except asyncio.CancelledError:
            if stream.ending is None:
                raise
        finally:
            self.live.close(stream)

    async def _websocket(self) -> None:
        stream = self.stream = self.live.open(self._request)
        stream.task = asyncio.current_task()
        try:
            await self.live.websocket(stream, self.connection.receive, self.connection.send)
        except asyncio.CancelledError:
            if stream.ending is None:
                raise
        finally:
            self.live.close(stream)

    async def over(self) -> None:
        done, _ = await asyncio.wait([self.served], timeout=OVER_S)
        assert done, "the connection does not end"
        await self.served
        assert len(self.live.streams) == 0

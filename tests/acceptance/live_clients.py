"""Clients of live connections: server-sent events over a bare socket, WebSocket, and what a client makes of either."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

WAIT_S = 60.0
POLL_S = 0.005
RECV_BYTES = 65_536


class Event(NamedTuple):
    """A message, however it came."""

    id: str
    type: str
    topic: str
    data: dict[str, Any]


class EventStream:
    """A stream of server-sent events."""

    def __init__(
        self,
        url: str,
        *topics: str,
        token: str | None = None,
        since: str | None = None,
        more: str = "",
        receive_bytes: int | None = None,
    ) -> None:
        """`more` stands behind the topics in the query; `receive_bytes` is how much the system takes in for us."""
        parts = urlsplit(url)
        self._link = socket.socket()
        if receive_bytes is not None:
            self._link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._link.settimeout(WAIT_S)
        self._link.connect((parts.hostname or "", parts.port or 80))
        query = "&".join(f"topic={quote(topic)}" for topic in topics) + more
        head = [f"GET /v1/stream?{query} HTTP/1.1", "Host: rankd", "Accept: text/event-stream"]
        head += [] if token is None else [f"Authorization: Bearer {token}"]
        head += [] if since is None else [f"Last-Event-ID: {since}"]
        self._link.sendall("\r\n".join([*head, "", ""]).encode())
        self._raw = b""
        self._text = b""
        self.is_over = False
        self.heartbeats = 0
        self.last_id = since
        self.status = 0
        self.headers: dict[str, str] = {}

    def open(self) -> EventStream:
        """Read the head of the answer."""
        while b"\r\n\r\n" not in self._raw:
            piece = self._link.recv(RECV_BYTES)
            assert piece, "the server ended the connection before it answered"
            self._raw += piece
        head, _, self._raw = self._raw.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = dict(line.lower().split(": ", 1) for line in lines)
        return self

    def next(self, timeout_s: float = WAIT_S) -> Event | None:
        """Return the next event, None where none comes in time or it is over."""
        deadline = time.monotonic() + timeout_s
        if not self.status:
            self.open()
        while True:
            while b"\n\n" in self._text:
                event, _, self._text = self._text.partition(b"\n\n")
                parsed = self._event(event.decode())
                if parsed is not None:
                    return parsed
            if self.is_over or not self._read(max(0.0, deadline - time.monotonic())):
                return None

    def _read(self, timeout_s: float) -> bool:
        """Take in what is there, or comes in time."""
        if not self._dechunk():
            ready, _, _ = select.select([self._link], [], [], timeout_s)
            if not ready:
                return False
            try:
                piece = self._link.recv(RECV_BYTES)
            except OSError:
                piece = b""
            if not piece:
                self.is_over = True
                return False
            self._raw += piece
            self._dechunk()
        return True

    def _dechunk(self) -> bool:
        """Move whole chunks from what came to what it says; tell whether there were any."""
        moved = False
        while b"\r\n" in self._raw:
            size, _, rest = self._raw.partition(b"\r\n")
            length = int(size, 16)
            if len(rest) < length + 2:
                break
            self._text += rest[:length]
            self._raw = rest[length + 2 :]
            moved = True
            if length == 0:
                self.is_over = True
                break
        return moved

    def _event(self, text: str) -> Event | None:
        if text.startswith(":"):
            self.heartbeats += 1
            return None
        fields = dict(line.split(": ", 1) for line in text.split("\n"))
        data = json.loads(fields["data"])
        self.last_id = fields.get("id", self.last_id)
        return Event(fields.get("id", ""), fields["event"], data.pop("topic", ""), data)

    def body(self) -> bytes:
        """Return the rest of an answer that is no stream."""
        length = int(self.headers["content-length"])
        while len(self._raw) < length:
            self._raw += self._link.recv(RECV_BYTES)
        return self._raw[:length]

    def close(self) -> None:
        self._link.close()

    def abort(self) -> None:
        """Vanish: the server gets a reset, and no goodbye."""
        self._link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._link.close()


class Socket:
    """A WebSocket connection."""

    def __init__(
        self, url: str, token: str | None = None, query: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        sent = {**({} if token is None else {"Authorization": f"Bearer {token}"}), **(headers or {})}
        address = f"{url.replace('http', 'ws', 1)}/v1/ws{query}"
        self._opened = ExitStack()
        self.connection: ClientConnection = self._opened.enter_context(
            connect(address, additional_headers=sent, compression=None, proxy=None)
        )
        self.heartbeats = 0

    def subscribe(self, topic: str, since: str | None = None) -> None:
        self.send({"op": "subscribe", "topic": topic, **({} if since is None else {"since": since})})

    def unsubscribe(self, topic: str) -> None:
        self.send({"op": "unsubscribe", "topic": topic})

    def send(self, frame: dict[str, Any]) -> None:
        self.connection.send(json.dumps(frame))

    def next(self, timeout_s: float = WAIT_S) -> Event | None:
        """Return the next message, None where none comes in time or it is over."""
        while True:
            try:
                frame = json.loads(self.connection.recv(timeout_s))
            except (TimeoutError, ConnectionClosed):
                return None
            if frame["type"] == "heartbeat":
                self.heartbeats += 1
                continue
            data = frame["problem"] if frame["type"] == "error" else frame["data"]
            return Event(frame.get("id", ""), frame["type"], frame["topic"], data)

    @property
    def close_code(self) -> int | None:
        """Read until the end, and return why it is over."""
        deadline = time.monotonic() + WAIT_S
        while self.next(0.1) is not None or self.connection.close_code is None:
            assert time.monotonic() < deadline, "the server does not end the connection"
        return self.connection.close_code

    def close(self) -> None:
        self._opened.close()

    def abort(self) -> None:
        """Vanish without a goodbye."""
        link = self.connection.socket
        with suppress(OSError):  # the server may have ended it
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            link.shutdown(socket.SHUT_RDWR)  # somebody reads from it
        link.close()


@contextmanager
def event_stream(url: str, *topics: str, **more: Any) -> Iterator[EventStream]:
    stream = EventStream(url, *topics, **more)
    try:
        yield stream.open()
    finally:
        stream.close()


@contextmanager
def web_socket(url: str, *topics: str, token: str | None = None, query: str = "") -> Iterator[Socket]:
    link = Socket(url, token, query)
    try:
        for topic in topics:
            link.subscribe(topic)
        yield link
    finally:
        link.close()


ENTRY = ("rank", "player", "score", "reached_at", "tiebreak", "name", "avatar_url", "country", "metadata")


class Table:
    """What a client knows of a topic: it applies messages, and asks nobody."""

    def __init__(self, *, skips_repeats: bool = False) -> None:
        """`skips_repeats`: for a client that subscribes again on an open WebSocket."""
        self._skips_repeats = skips_repeats
        self.entries: dict[str, dict[str, Any]] = {}
        self.total: int | None = None  # None: it waits for a snapshot
        self.window: str | None = None
        self.last_id: str | None = None

    def apply(self, event: Event) -> None:
        data = event.data
        if event.type == "change" and self._skips_repeats and self._is_repeated(event.id):
            return
        self.last_id = event.id
        if event.type == "reset":
            self.entries, self.total, self.window = {}, None, None
        elif event.type == "snapshot":
            self.entries = entries_of(data)
            self.total, self.window = data["total"], data["window"]
        else:
            assert self.total is not None, f"a change came before any snapshot: {event}"
            for player in data["gone"]:
                self.entries.pop(player, None)
            self.entries.update({entry["player"]: entry_of(entry) for entry in data["set"]})
            self.total = data["total"]

    def _is_repeated(self, event_id: str) -> bool:
        """Whether a change was applied before; those under way when a client resubscribes come a second time."""
        epoch, _, offset = event_id.rpartition("-")
        last_epoch, _, last_offset = (self.last_id or "-0").rpartition("-")
        return epoch == last_epoch and int(offset) <= int(last_offset)


def entries_of(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The entries of a read, or of a snapshot, by player."""
    entries = answer.get("entries", [answer] if answer.get("rank") is not None else [])
    return {entry["player"]: entry_of(entry) for entry in entries}


def entry_of(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in (*ENTRY, "global_rank") if entry.get(name) is not None}


def wait_for(holds: Callable[[], bool], why: str = "the condition did not come true in time") -> None:
    """Return when a condition holds; it is asked again and again."""
    deadline, pause = time.monotonic() + WAIT_S, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, why
        pause.wait(POLL_S)


class Watching:
    """A client of either kind that watches one topic, and what it knows."""

    def __init__(self, url: str, kind: str, topic: str, since: str | None = None, token: str | None = None) -> None:
        self.table = Table()
        self.kind = kind
        self.link: EventStream | Socket
        if kind == "sse":
            self.link = EventStream(url, topic, since=since, token=token)
        else:
            self.link = Socket(url, token)
            self.link.subscribe(topic, since)

    def next(self, timeout_s: float = WAIT_S) -> Event:
        event = self.link.next(timeout_s)
        assert event is not None, "nothing came"
        if event.type in ("snapshot", "change", "reset"):
            self.table.apply(event)
        return event

    def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.next()

    def end_code(self) -> int:
        """Wait for the server to end it, and return why."""
        if isinstance(self.link, Socket):
            return self.link.close_code or 0
        while (event := self.link.next()) is not None:
            if event.type == "end":
                assert self.link.next() is None
                assert self.link.is_over
                return int(event.data["code"])
        return 0

"""A real server on a socket that does what a test tells it to: it answers, drops, dribbles, or is silent."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.servers.load_bound import LoadBound

WAIT_S = 60
Step = Callable[[socket.socket], bool]  # whether the connection goes on


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it arrived."""

    method: str
    target: str
    headers: Mapping[str, str]  # by names in small letters
    body: bytes

    @property
    def sent(self) -> Any:
        return json.loads(self.body)

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")


def answer(body: object = None, status: int = 200, headers: Mapping[str, str] | None = None) -> Step:
    """Answer with JSON, or with bytes as they are."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    def step(connection: socket.socket) -> bool:
        connection.sendall(_head(status, len(raw), headers or {}) + raw)
        return True

    return step


def problem(status: int, code: str, detail: str = "it failed", **more: Any) -> Step:
    """Answer with problem details; `headers` among the rest are headers."""
    headers = more.pop("headers", {})
    body = {"type": f"/docs#{code}", "title": "A problem", "status": status, "detail": detail, "code": code, **more}
    return answer(body, status, {"Content-Type": "application/problem+json", **headers})


def drop(connection: socket.socket) -> bool:
    """Close the connection once the request is read, as a server does that is killed."""
    return False


def truncated(connection: socket.socket) -> bool:
    """Promise more than is sent."""
    connection.sendall(_head(200, 1_000, {}) + b'{"position":')
    return False


def not_http(connection: socket.socket) -> bool:
    """Answer in another protocol."""
    connection.sendall(b"-ERR unknown command\r\n\r\n")
    return False


class ScriptedServer:
    """Takes the steps of a script one after the other, one for each request, and remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[ReceivedRequest] = []
        self.script: list[Step] = []
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def does(self, *steps: Step) -> None:
        self.script.extend(steps)

    def silent(self, connection: socket.socket) -> bool:
        """Read the request and say nothing until the test is over."""
        self.stopped.wait(WAIT_S)
        return False

    def dribble(self, connection: socket.socket) -> bool:
        """Answer a byte at a time, quickly enough for each but never to the end."""
        connection.sendall(_head(200, 1_000_000, {}))
        bound = LoadBound()
        try:
            while bound.take() and not self.stopped.wait(0.02):
                connection.sendall(b" ")
        except OSError:
            pass  # the client has gone
        return False

    def close(self) -> None:
        self.stopped.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):  # closed already
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a connection of the scripted server does not end"
        assert not self.script, "not every step of the script was taken"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._connections.append(connection)
                self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as incoming:
                while line := incoming.readline():
                    method, target, _ = line.decode().split(" ")
                    headers = {}
                    while (line := incoming.readline()) not in (b"\r\n", b""):
                        name, _, value = line.decode().partition(":")
                        headers[name.lower()] = value.strip()
                    body = incoming.read(int(headers.get("content-length", 0)))
                    with self._lock:
                        self.seen.append(ReceivedRequest(method, target, headers, body))
                        step = self.script.pop(0) if self.script else answer({"detail": "no step is left"}, 599)
                    if not step(connection):
                        return
        except OSError:
            pass  # the client has gone


def wait_until(holds: Callable[[], bool]) -> None:
    """Return when a condition holds; fail when it does not in time."""
    deadline_s, pause = time.monotonic() + WAIT_S, threading.Event()
    while not holds():
        assert time.monotonic() < deadline_s, "the condition did not come true in time"
        pause.wait(0.001)


def _head(status: int, length: int, headers: Mapping[str, str]) -> bytes:
    lines = {"Content-Type": "application/json", "Content-Length": str(length), **headers}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Scripted\r\n{text}\r\n".encode()

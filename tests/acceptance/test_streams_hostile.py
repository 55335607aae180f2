"""Live connections meant to hurt: memory stays bounded, places come back, and others are served meanwhile.

Every test runs beside somebody who asks for /healthz again and again: 99 of 100 answers come within 250 ms. By how much
the server's memory grew is printed with each test, and may not be more than the test allows.
"""

from __future__ import annotations

import base64
import os
import random
import resource
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from tests.servers.load_bound import REQUESTS_MAX, LoadBound
from tests.timing import BUSY_MACHINE

from .impatient import impatient_serving
from .live_clients import EventStream, wait_for
from .serving import Serving

pytestmark = pytest.mark.timed
CLIENTS = 1_000
PLACES = 1_100  # so that a thousand that are not given back are missed
HEALTHZ_P99_S = 0.25 * BUSY_MACHINE
MIB = 1024 * 1024
CONFIG = f"""
[push]
push_interval_ms = 100
streams_max = {PLACES}
streams_per_address_max = {PLACES}
[limits]
requests_max = 8192
header_read_ms = 1500
[boards.arcade]
keep = "latest"
"""
FILES_WANTED = 8_192
UPGRADE = (
    *("GET /v1/ws HTTP/1.1", "Host: rankd", "Upgrade: websocket", "Connection: Upgrade"),
    "Sec-WebSocket-Version: 13",
)
SUBSCRIBE = b'{"op":"subscribe","topic":"top:arcade"}'


@pytest.fixture(scope="module", autouse=True)
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if wanted < 2 * CLIENTS + 500:
        assert os.environ.get("CI") != "true", f"only {hard} files may be open: raise ulimit -Hn"
        pytest.skip(f"a thousand connections need more files than the {hard} this system allows: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, many_files: None) -> Iterator[Serving]:
    with impatient_serving(tmp_path_factory.mktemp("hostile") / "data", CONFIG, heartbeat_s=2.0) as running:
        with running.client(running.admin_key) as admin:
            send_scores(admin, 0)
        yield running


def send_scores(admin: httpx.Client, number: int, players: int = 10, prefix: str = "p") -> None:
    rng = random.Random(number)
    events = [
        {"board": "arcade", "player": f"{prefix}{index}", "score": rng.randrange(10**9)} for index in range(players)
    ]
    assert admin.post("/v1/scores/batch", json={"events": events}).status_code == 200


class Beside:
    """Somebody else, who wants to be served; and how much memory the server has."""

    def __init__(self, server: Serving) -> None:
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._latencies: list[float] = []
        self._before = self._resident_bytes()
        self.peak = self._before

    def _resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self._server.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def _ask(self) -> None:
        bound = LoadBound(REQUESTS_MAX)
        with self._server.client(timeout_s=30) as anybody:
            while not self._stop.is_set() and bound.take():
                began = time.monotonic()
                assert anybody.get("/healthz").status_code == 200
                self._latencies.append(time.monotonic() - began)
                self.peak = max(self.peak, self._resident_bytes())
                self._stop.wait(0.005)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        wait_for(lambda: len(self._latencies) >= 100 or not self._thread.is_alive())
        self._stop.set()
        self._thread.join(20)

    @property
    def p99_s(self) -> float:
        return sorted(self._latencies)[len(self._latencies) * 99 // 100]

    @property
    def grown_bytes(self) -> int:
        return self.peak - self._before


@pytest.fixture
def growth_bytes_max() -> int:
    return 160 * MIB


@pytest.fixture(autouse=True)
def beside(server: Serving, growth_bytes_max: int) -> Iterator[Beside]:
    somebody = Beside(server)
    somebody.start()
    yield somebody
    somebody.stop()
    sys.stdout.write(
        f"healthz p99 {somebody.p99_s * 1_000:.1f} ms; memory grew by {somebody.grown_bytes / MIB:.1f} MiB at most\n"
    )
    assert server.process.poll() is None
    assert somebody.p99_s < HEALTHZ_P99_S
    assert somebody.grown_bytes < growth_bytes_max
    assert "Traceback" not in server.log.read_text()


def address(server: Serving) -> tuple[str, int]:
    return ("127.0.0.1", int(server.url.rpartition(":")[2]))


def connected(server: Serving, receive_bytes: int | None = None) -> socket.socket:
    link = socket.socket()
    if receive_bytes is not None:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    link.settimeout(20)
    link.connect(address(server))
    return link


def upgraded(server: Serving, receive_bytes: int | None = None, token: str | None = None) -> socket.socket:
    """Open a WebSocket connection by hand."""
    link = connected(server, receive_bytes)
    head = [*UPGRADE, f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}"]
    head += [] if token is None else [f"Authorization: Bearer {token}"]
    link.sendall("\r\n".join([*head, "", ""]).encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += link.recv(1)
    assert b" 101 " in answer
    return link


def frame(payload: bytes, first: int = 0x81, claimed: int | None = None) -> bytes:
    """Return a masked frame; the mask is zeros, which leaves the payload as it is."""
    length = len(payload) if claimed is None else claimed
    if length < 126:
        size = bytes([0x80 | length])
    elif length < 65_536:
        size = bytes([0x80 | 126]) + struct.pack(">H", length)
    else:
        size = bytes([0x80 | 127]) + struct.pack(">Q", length)
    return bytes([first]) + size + b"\0\0\0\0" + payload


def abort(link: socket.socket) -> None:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


def read_to_the_end(link: socket.socket) -> bytes:
    """Read until the server ends it, or there is nothing for long; return the last of it."""
    last = b""
    while True:
        try:
            piece = link.recv(1_000_000)
        except OSError:
            return last
        if not piece:
            return last
        last = (last + piece)[-2_000:]


def places_are_free(server: Serving, count: int) -> bool:
    """Tell whether so many connections are taken at the same time."""
    with ExitStack() as opened:
        links = []
        for _ in range(count):
            link = opened.enter_context(connected(server))
            link.sendall(b"GET /v1/stream?topic=top:arcade HTTP/1.1\r\nHost: rankd\r\n\r\n")
            links.append(link)
        return all(b" 200 " in link.recv(20) for link in links)


def test_a_thousand_clients_that_never_read(server: Serving) -> None:
    with ExitStack() as opened:
        for number in range(CLIENTS):
            if number % 2:
                link = opened.enter_context(upgraded(server, receive_bytes=4_096))
                link.sendall(frame(SUBSCRIBE))
            else:
                link = opened.enter_context(connected(server, receive_bytes=4_096))
                link.sendall(b"GET /v1/stream?topic=top:arcade HTTP/1.1\r\nHost: rankd\r\n\r\n")
        with server.client(server.admin_key) as admin:
            deadline = time.monotonic() + 4
            number = 0
            while time.monotonic() < deadline:
                number += 1
                send_scores(admin, number)
    wait_for(lambda: places_are_free(server, CLIENTS))


def test_a_thousand_clients_that_vanish_without_a_word(server: Serving) -> None:
    rng = random.Random(7)
    for _ in range(2):
        links = []
        for number in range(CLIENTS):
            if number % 2:
                link = upgraded(server)
                link.sendall(frame(SUBSCRIBE))
            else:
                link = connected(server)
                link.sendall(b"GET /v1/stream?topic=top:arcade HTTP/1.1\r\nHost: rankd\r\n\r\n")
            if rng.random() < 0.5:
                link.recv(100)
            links.append(link)
        for link in links:
            abort(link)
        wait_for(lambda: places_are_free(server, CLIENTS))


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Serving]:
    """A server with four places, whose messages are large: each tells of a thousand friends."""
    config = """
    [push]
    push_interval_ms = 20
    streams_per_address_max = 4
    [boards.arcade]
    keep = "latest"
    """
    with impatient_serving(tmp_path / "data", config) as running:
        with running.client(running.admin_key) as admin:
            friends = [f"f{number}" for number in range(1_000)]
            assert admin.put("/v1/players/f0/friends", json={"players": friends}).status_code == 200
        yield running


def test_clients_that_stop_reading_are_sent_away(narrow: Serving) -> None:
    """What the system buffers for a connection is not ours to bound; what comes after it is."""
    topic, key = "friends:arcade:f0", narrow.admin_key
    streams = [EventStream(narrow.url, topic, token=key, receive_bytes=4_096).open() for _ in range(2)]
    sockets = [upgraded(narrow, receive_bytes=4_096, token=key) for _ in range(2)]
    for link in sockets:
        link.sendall(frame(b'{"op":"subscribe","topic":"%s"}' % topic.encode()))
    rounds = 0

    def is_taken() -> bool:
        nonlocal rounds
        rounds += 1
        send_scores(admin, rounds, players=1_000, prefix="f")
        return places_are_free(narrow, 4)

    with narrow.client(key, timeout_s=30) as admin:
        wait_for(is_taken, "nobody was sent away")
    for stream in streams:
        events = 0
        while stream.next() is not None:
            events += 1
        assert stream.is_over
        assert events < rounds
        stream.close()
    for link in sockets:
        read_to_the_end(link)
        link.close()


def test_headers_that_take_for_ever(server: Serving) -> None:
    links = [connected(server) for _ in range(300)]
    for link in links:
        link.sendall(b"GET /v1/stream?topic=top:arcade HTTP/1.1\r\nHost: rankd\r\nX-Slow: ")
    began = time.monotonic()
    for link in links:
        assert b" 200 " not in read_to_the_end(link)
        link.close()
    assert time.monotonic() - began < 10 * BUSY_MACHINE


def test_frames_of_many_megabytes(server: Serving) -> None:
    payload = b"x" * (8 * MIB)
    links = [upgraded(server) for _ in range(4)]
    threads = [threading.Thread(target=send_all, args=(link, frame(payload))) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [struct.pack(">H", 1009) in read_to_the_end(link) for link in links] == [True] * 4
    for link in links:
        link.close()


def send_all(link: socket.socket, sent: bytes) -> None:
    with suppress(OSError):  # it may be ended before all was sent
        link.sendall(sent)


@pytest.mark.parametrize("growth_bytes_max", [32 * MIB])
def test_frames_that_say_they_are_larger_than_anything(server: Serving) -> None:
    for claimed in (20 * MIB, 2**40, 2**62):
        links = [upgraded(server) for _ in range(20)]
        for link in links:
            link.sendall(frame(b"x" * 1_000, claimed=claimed))
        for link in links:
            link.settimeout(5)
            read_to_the_end(link)
            link.close()


def test_frames_of_garbage(server: Serving) -> None:
    rng = random.Random(9)
    endings = [
        b"\x81\x05hello",  # not masked
        frame(b"x", first=0xF1),  # bits that mean nothing
        frame(b"x", first=0x8F),  # a kind that is none
        frame(b"\xff\xfe", first=0x81),  # text that is none
        frame(b"x" * 200, first=0x89),  # a ping that is too long
        frame(b"x", first=0x80),  # the rest of nothing
        frame(b"\x03", first=0x88),  # half a close code
        frame(struct.pack(">H", 5), first=0x88),  # a close code that is none
        b"GET / HTTP/1.1\r\n\r\n",
    ]
    for number in range(300):
        link = upgraded(server)
        link.sendall(endings[number] if number < len(endings) else rng.randbytes(rng.randrange(1, 2_000)))
        abort(link) if number % 2 else link.close()
    with ExitStack() as opened:
        link = opened.enter_context(upgraded(server))
        link.sendall(frame(b"ping", first=0x89) * 190)  # as many as may come at once
        link.sendall(frame(SUBSCRIBE))
        seen = b""
        while b"snapshot" not in seen:
            piece = link.recv(65_536)
            assert piece
            seen = (seen + piece)[-70_000:]
    wait_for(lambda: places_are_free(server, CLIENTS))


@pytest.mark.parametrize("growth_bytes_max", [64 * MIB])
def test_ten_thousand_topics_asked_for_and_left(server: Serving) -> None:
    for turn in range(10):
        with ExitStack() as opened:
            links = [opened.enter_context(upgraded(server)) for _ in range(10)]
            for number in range(95):  # as many frames as a connection may send at once
                for index, link in enumerate(links):
                    topic = f"player:arcade:q{turn}-{index}-{number}" if number % 2 else "top:arcade"
                    for op in ("subscribe", "unsubscribe"):
                        link.sendall(frame(f'{{"op":"{op}","topic":"{topic}","since":"x-1"}}'.encode()))
            for link in links:
                link.sendall(frame(b'{"op":"subscribe","topic":"player:arcade:last"}'))
            for link in links:
                seen = b""
                while b"player:arcade:last" not in seen:
                    piece = link.recv(65_536)
                    assert piece
                    seen = (seen + piece)[-70_000:]

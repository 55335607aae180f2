"""Places of live connections: so many in all, so many from one address, and given back however a connection ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.servers.processes import killed_at_the_end
from tests.timing import BUSY_MACHINE

from .live_clients import WAIT_S, EventStream, Socket, event_stream, wait_for, web_socket
from .serving import Serving, serving

PLACES = 5  # of one address
PLACES_IN_ALL = 8
CONFIG = f"""
[push]
push_interval_ms = 50
streams_max = {PLACES_IN_ALL}
streams_per_address_max = {PLACES}
[boards.arcade]
keep = "best"
"""
TOPIC = "top:arcade"
CLIENT = """
import socket, sys
links = []
while len(links) < int(sys.argv[2]):
    link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    link.sendall(b"GET /v1/stream?topic=top:arcade HTTP/1.1\\r\\nHost: rankd\\r\\n\\r\\n")
    if b" 200 " in link.recv(1000):
        links.append(link)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("places") / "data", config=CONFIG) as running:
        yield running


@pytest.fixture(autouse=True)
def all_places_are_free(server: Serving) -> Iterator[None]:
    yield
    wait_for(lambda: free_places(server) == PLACES, "places were not given back")


def free_places(server: Serving) -> int:
    """Take every place there is, count them, and give them back."""
    with ExitStack() as opened:
        for number in range(PLACES + 1):
            if opened.enter_context(event_stream(server.url, TOPIC)).status != 200:
                return number
    return PLACES + 1


def taken(server: Serving, *topics: str, more: str = "") -> EventStream:
    """Take a place, as soon as there is one: the server notices a moment later that somebody has gone."""
    deadline = time.monotonic() + WAIT_S
    while True:
        stream = EventStream(server.url, *(topics or [TOPIC]), more=more).open()
        if stream.status == 200:
            return stream
        stream.close()
        assert time.monotonic() < deadline, "there is no place"


def taken_by_socket(server: Serving) -> Socket:
    deadline = time.monotonic() + WAIT_S
    while True:
        link = Socket(server.url)
        link.subscribe(TOPIC)
        if link.next() is not None:
            return link
        link.close()
        assert time.monotonic() < deadline, "there is no place"


def port_of(server: Serving) -> int:
    return int(server.url.rpartition(":")[2])


def raw(server: Serving, method: str = "GET", query: str = f"topic={TOPIC}", more: str = "") -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port_of(server)), timeout=10)
    link.sendall(f"{method} /v1/stream?{query} HTTP/1.1\r\nHost: rankd\r\n{more}\r\n".encode())
    assert link.recv(1_000)
    return link


def test_the_place_after_the_last_is_refused_with_when_to_come_again(server: Serving) -> None:
    with ExitStack() as opened:
        for _ in range(PLACES):
            opened.callback(taken(server).close)
        refused = opened.enter_context(event_stream(server.url, TOPIC))
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert b"overloaded" in refused.body()
        link = opened.enter_context(web_socket(server.url))
        assert link.close_code == 1013
        with server.client() as anybody:
            assert anybody.get("/v1/boards/arcade/top").status_code == 200


def test_one_address_leaves_places_to_others_but_there_are_so_many_in_all(server: Serving) -> None:
    with ExitStack() as opened:
        for _ in range(PLACES):
            opened.callback(taken_by_socket(server).close)
        others = []
        for _ in range(PLACES_IN_ALL - PLACES + 1):
            link = opened.enter_context(
                socket.create_connection(("127.0.0.1", port_of(server)), 10, source_address=("127.0.0.2", 0))
            )
            link.sendall(f"GET /v1/stream?topic={TOPIC} HTTP/1.1\r\nHost: rankd\r\n\r\n".encode())
            others.append(int(link.recv(1_000).split()[1]))

    assert others == [200] * (PLACES_IN_ALL - PLACES) + [503]


def closed(link: Any) -> None:
    link.close()


def aborted(link: Any) -> None:
    link.abort()


@pytest.mark.parametrize("kind", [EventStream, Socket])
@pytest.mark.parametrize("ended", [closed, aborted])
def test_a_place_is_free_when_a_client_goes(server: Serving, kind: type[Any], ended: Callable[[Any], None]) -> None:
    for _ in range(3):
        links = [taken_by_socket(server) if kind is Socket else taken(server) for _ in range(PLACES)]
        for link in links:
            ended(link)
        wait_for(lambda: free_places(server) == PLACES)


def test_a_place_is_free_when_a_client_is_killed(server: Serving) -> None:
    command = [sys.executable, "-c", CLIENT, str(port_of(server)), str(PLACES)]
    for _ in range(2):
        with killed_at_the_end(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"ready\n"
            client.send_signal(signal.SIGKILL)
            client.wait(10)
        wait_for(lambda: free_places(server) == PLACES)


def test_a_question_about_the_head_only_keeps_no_place(server: Serving) -> None:
    links = [raw(server, "HEAD") for _ in range(2 * PLACES)]
    wait_for(lambda: free_places(server) == PLACES)
    for link in links:
        link.close()


def test_a_place_is_free_when_a_client_says_that_it_says_nothing_more(server: Serving) -> None:
    links = [raw(server) for _ in range(PLACES)]
    for link in links:
        link.shutdown(socket.SHUT_WR)
    wait_for(lambda: free_places(server) == PLACES)
    for link in links:
        link.close()


@pytest.mark.parametrize(
    "query", ["", "topic=top:nowhere", "topic=top:arcade&topic=friends:arcade:bob", "topic=top:arcade&interval_ms=0"]
)
def test_what_is_refused_takes_no_place(server: Serving, query: str) -> None:
    with ExitStack() as opened:
        for _ in range(2 * PLACES):
            opened.enter_context(raw(server, query=query))
        wait_for(lambda: free_places(server) == PLACES)


@pytest.mark.parametrize("frame", [b"bytes", "x" * 5_000])
def test_a_place_is_free_when_the_server_ends_it(server: Serving, frame: str | bytes) -> None:
    for _ in range(2 * PLACES):
        link = taken_by_socket(server)
        link.connection.send(frame)
        assert link.close_code in (1003, 1009)
        link.close()


def test_a_place_is_free_when_half_a_handshake_is_all_there_is(server: Serving) -> None:
    for _ in range(2 * PLACES):
        with socket.create_connection(("127.0.0.1", port_of(server)), 10) as link:
            link.sendall(b"GET /v1/ws HTTP/1.1\r\nHost: rankd\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            link.recv(1_000)
        wait_for(lambda: free_places(server) == PLACES)


@pytest.mark.timed
def test_the_rest_of_a_connection_does_not_keep_its_place(server: Serving) -> None:
    links = [taken(server, more="&interval_ms=60000") for _ in range(PLACES)]
    for link in links:
        assert link.next() is not None
    began = time.monotonic()
    for link in links:
        link.abort()
    wait_for(lambda: free_places(server) == PLACES)
    assert time.monotonic() - began < 10 * BUSY_MACHINE

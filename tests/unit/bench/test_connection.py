from __future__ import annotations

import asyncio

import pytest

from rankd.bench.connection import HEAD_BYTES_MAX, LoadConnection
from rankd.bench.load import RequestKind

ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"rank": 1}'


class Transport(asyncio.Transport):
    """Remembers what was written; when it is closed, the connection is lost at once."""

    def __init__(self, connection: LoadConnection) -> None:
        super().__init__()
        self.connection = connection
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self.connection.connection_lost(None)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


class Owner:
    def __init__(self) -> None:
        self.answers: list[tuple[RequestKind, int, bytes]] = []
        self.losses: list[str] = []

    def answered(self, connection: LoadConnection, kind: RequestKind, status: int, body: bytes) -> None:
        self.answers.append((kind, status, body))

    def lost(self, connection: LoadConnection, why: str) -> None:
        self.losses.append(why)


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def connection(owner: Owner) -> LoadConnection:
    made = LoadConnection(owner)
    made.connection_made(Transport(made))
    made.send(b"GET / HTTP/1.1\r\n\r\n", RequestKind.RANK, due=0.0, sent=0.0)
    return made


def test_an_answer_is_whole_wherever_it_is_cut(owner: Owner, connection: LoadConnection) -> None:
    for cut in range(len(ANSWER) + 1):
        connection.kind = RequestKind.RANK
        for part in (ANSWER[:cut], ANSWER[cut:]):
            if part:
                connection.data_received(part)

    assert owner.answers == [(RequestKind.RANK, 200, b"")] * (len(ANSWER) + 1)
    assert owner.losses == []


def test_an_answer_may_come_byte_by_byte(owner: Owner, connection: LoadConnection) -> None:
    for byte in ANSWER:
        connection.data_received(bytes([byte]))

    assert owner.answers == [(RequestKind.RANK, 200, b"")]


@pytest.mark.parametrize("name", [b"Content-Length: 2", b"CONTENT-LENGTH:2", b"content-length: 2 "])
def test_a_length_is_found_however_it_is_written(owner: Owner, connection: LoadConnection, name: bytes) -> None:
    connection.data_received(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n{}" % name)

    assert owner.answers == [(RequestKind.RANK, 200, b"")]


def test_an_answer_without_a_body_needs_no_length(owner: Owner, connection: LoadConnection) -> None:
    connection.data_received(b"HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n")

    assert [status for _, status, _ in owner.answers] == [304]


def test_the_beginning_of_an_error_is_kept(owner: Owner, connection: LoadConnection) -> None:
    connection.data_received(b"HTTP/1.1 503 No\r\ncontent-length: 1000\r\n\r\n" + b"x" * 1_000)

    (answer,) = owner.answers
    assert answer == (RequestKind.RANK, 503, b"x" * 300)


def test_a_connection_that_the_server_closes_is_not_used_again(owner: Owner, connection: LoadConnection) -> None:
    connection.data_received(b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 0\r\n\r\n")

    assert owner.answers == [(RequestKind.RANK, 200, b"")]
    assert connection.is_closing


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx-content-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}more",
        b"x" * (HEAD_BYTES_MAX + 1),
    ],
)
def test_what_is_no_answer_ends_the_connection(owner: Owner, connection: LoadConnection, answer: bytes) -> None:
    connection.data_received(answer)

    assert owner.losses == ["unreadable answer"]
    assert owner.answers == []


def test_an_answer_that_nobody_asked_for_ends_the_connection(owner: Owner, connection: LoadConnection) -> None:
    connection.data_received(ANSWER)
    connection.data_received(ANSWER)

    assert len(owner.answers) == 1
    assert owner.losses == ["unreadable answer"]


def test_a_body_longer_than_it_says_ends_the_connection(owner: Owner, connection: LoadConnection) -> None:
    connection.data_received(ANSWER[:-1])
    connection.data_received(b"}}")

    assert owner.losses == ["unreadable answer"]

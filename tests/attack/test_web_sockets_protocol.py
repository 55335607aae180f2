"""WebSocket connections that break the protocol: ended with the code that RFC 6455 has for it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from .target import Target, head
from .web_sockets import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FINAL,
    HANDSHAKE,
    KEY,
    PING,
    TEXT,
    UPGRADE,
    VERSION,
    close_code,
    frame,
    text,
    web_socket,
)
from .wire import Answer, ask, run

END_S = 10.0
LEFT_S = 15.0  # longer than a server waits for a close
PROTOCOL_ERROR, NOT_TAKEN, NOT_UTF8, TOO_LARGE = 1002, 1003, 1007, 1009


@pytest.fixture(scope="module")
def target(target: Target) -> Iterator[Target]:
    """One healthy client beside all of them."""
    with target.attack("violations of the WebSocket protocol", is_long=False):
        yield target


VIOLATIONS: dict[str, tuple[bytes, set[int]]] = {
    "not masked": (frame(FINAL | TEXT, b"{}", is_masked=False), {PROTOCOL_ERROR}),
    "a ping that is not masked": (frame(FINAL | PING, b"p", is_masked=False), {PROTOCOL_ERROR}),
    "the first reserved bit": (frame(FINAL | 0x40 | TEXT, b"{}"), {PROTOCOL_ERROR}),
    "the second reserved bit": (frame(FINAL | 0x20 | TEXT, b"{}"), {PROTOCOL_ERROR}),
    "the third reserved bit": (frame(FINAL | 0x10 | TEXT, b"{}"), {PROTOCOL_ERROR}),
    "a reserved kind of data": (frame(FINAL | 0x3, b"{}"), {PROTOCOL_ERROR}),
    "a reserved kind of control": (frame(FINAL | 0xB), {PROTOCOL_ERROR}),
    "a ping of 126 bytes": (frame(FINAL | PING, b"p" * 126), {PROTOCOL_ERROR}),
    "a close of 126 bytes": (frame(FINAL | CLOSE, b"\x03\xe8" + b"x" * 124), {PROTOCOL_ERROR}),
    "a ping in fragments": (frame(PING, b"p"), {PROTOCOL_ERROR}),
    "a close in fragments": (frame(CLOSE, b"\x03\xe8"), {PROTOCOL_ERROR}),
    "the rest of nothing": (frame(FINAL | CONTINUATION, b"x"), {PROTOCOL_ERROR}),
    "a message within another": (frame(TEXT, b"{") + text(b"{}"), {PROTOCOL_ERROR}),
    "a length with its highest bit": (b"\x81\xff" + b"\xff" * 8 + b"\0\0\0\0", {PROTOCOL_ERROR, TOO_LARGE}),
    "half a close code": (frame(FINAL | CLOSE, b"\x03"), {PROTOCOL_ERROR}),
    "a close code that is none": (frame(FINAL | CLOSE, struct.pack(">H", 5)), {PROTOCOL_ERROR}),
    "a close code that is never sent": (frame(FINAL | CLOSE, struct.pack(">H", 1006)), {PROTOCOL_ERROR}),
    "a close reason that is not UTF-8": (frame(FINAL | CLOSE, b"\x03\xe8\xff"), {PROTOCOL_ERROR, NOT_UTF8}),
    "text that is not UTF-8": (text(b"\xff\xfe"), {NOT_UTF8}),
    "text that ends within a character": (text(b"\xe2\x82"), {NOT_UTF8}),
    "a surrogate": (text(b"\xed\xa0\x80"), {NOT_UTF8}),
    "a character that is too long": (text(b"\xc0\xaf"), {NOT_UTF8}),
    "fragments that are not UTF-8": (frame(TEXT, b"a") + frame(FINAL | CONTINUATION, b"\xff"), {NOT_UTF8}),
    "bytes": (frame(FINAL | BINARY, b"{}"), {NOT_TAKEN}),
    "a request": (head("GET", "/healthz"), {PROTOCOL_ERROR}),
    "nonsense": (bytes(range(255, 127, -1)) * 8, {PROTOCOL_ERROR}),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_ends_the_connection_with_its_code(target: Target, name: str) -> None:
    sent, codes = VIOLATIONS[name]

    async def violate() -> int | None:
        async with web_socket(target.address) as link:
            await link.send(sent)
            return await close_code(link, END_S)

    assert run(violate(), 2 * END_S) in codes


def test_a_client_that_does_not_answer_a_close_is_left(target: Target) -> None:
    async def stay() -> bytes | None:
        async with web_socket(target.address) as link:
            await link.send(frame(FINAL | BINARY, b"{}"))
            return await link.rest(LEFT_S)

    assert run(stay(), 2 * LEFT_S) is not None


def test_a_message_in_fragments_with_a_ping_between_is_taken(target: Target) -> None:
    async def subscribe() -> bytes:
        async with web_socket(target.address) as link:
            await link.send(frame(TEXT, b'{"op":"subscribe",') + frame(FINAL | PING, b"p"))
            await link.send(frame(CONTINUATION) + frame(FINAL | CONTINUATION, b'"topic":"top:arcade"}'))
            received = b""
            while b'"snapshot"' not in received:
                piece = await link.receive()
                assert piece
                received += piece
            return received

    assert run(subscribe(), 2 * END_S).startswith(b"\x8a\x01p")


HANDSHAKES: dict[str, bytes] = {
    "no key": head("GET", "/v1/ws", *UPGRADE, VERSION),
    "an empty key": head("GET", "/v1/ws", *UPGRADE, VERSION, "Sec-WebSocket-Key: "),
    "a short key": head("GET", "/v1/ws", *UPGRADE, VERSION, "Sec-WebSocket-Key: YQ=="),
    "a key that is not base64": head("GET", "/v1/ws", *UPGRADE, VERSION, f"Sec-WebSocket-Key: {'!' * 24}"),
    "two keys": head("GET", "/v1/ws", *HANDSHAKE, KEY),
    "two different keys": head("GET", "/v1/ws", *HANDSHAKE, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="),
    "no version": head("GET", "/v1/ws", *UPGRADE, KEY),
    "an old version": head("GET", "/v1/ws", *UPGRADE, KEY, "Sec-WebSocket-Version: 8"),
    "two versions": head("GET", "/v1/ws", *HANDSHAKE, "Sec-WebSocket-Version: 8"),
    "no upgrade": head("GET", "/v1/ws", "Connection: Upgrade", VERSION, KEY),
    "another upgrade": head("GET", "/v1/ws", "Upgrade: h2c", "Connection: Upgrade", VERSION, KEY),
    "no connection": head("GET", "/v1/ws", "Upgrade: websocket", VERSION, KEY),
    "HTTP/1.0": head("GET", "/v1/ws", *HANDSHAKE).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "POST": head("POST", "/v1/ws", *HANDSHAKE, "Content-Length: 0"),
    "a body": head("GET", "/v1/ws", *HANDSHAKE, "Content-Length: 5") + b"hello",
    "a path that is no WebSocket's": head("GET", "/v1/boards", *HANDSHAKE),
    "an unknown path": head("GET", "/v1/wss", *HANDSHAKE),
}


@pytest.mark.parametrize("name", HANDSHAKES)
def test_a_bad_handshake_is_refused_as_a_request(target: Target, name: str) -> None:
    answer: Answer | None = run(ask(target.address, HANDSHAKES[name]), 2 * END_S)

    assert answer is not None
    assert answer.status != 101
    assert answer.status < 500 or answer.status == 505

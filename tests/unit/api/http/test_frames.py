"""WebSocket frames, byte by byte."""

from __future__ import annotations

import random

import pytest
from websockets.frames import Frame, Opcode

from rankd.api.http.frames import (
    BINARY,
    CONTINUATION,
    FRAMES_BURST_MAX,
    FRAMES_PER_S_MAX,
    MESSAGE_BYTES_MAX,
    PING,
    TEXT,
    FrameError,
    FrameReader,
    Incoming,
    close_code,
    close_frame,
    frame,
)


def sent(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    """Return a frame as another implementation sends it."""
    return Frame(Opcode(opcode), payload, fin).serialize(mask=True)


def reader(now_s: float = 0.0) -> FrameReader:
    return FrameReader(lambda: now_s)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 125, 126, 127, 1_000, MESSAGE_BYTES_MAX])
def test_a_message_of_any_allowed_size_is_read_as_it_was_sent(size: int) -> None:
    payload = random.Random(size).randbytes(size)

    assert list(reader().feed(sent(BINARY, payload))) == [(BINARY, payload)]


def test_it_does_not_matter_where_the_bytes_are_cut() -> None:
    random_source = random.Random(7)
    messages = [random_source.randbytes(random_source.randrange(300)) for _ in range(40)]
    data = b"".join(sent(TEXT, message[:9], fin=False) + sent(CONTINUATION, message[9:]) for message in messages)
    read, offset = reader(), 0
    received: list[Incoming] = []
    while offset < len(data):
        size = random_source.randrange(1, 40)
        received += read.feed(data[offset : offset + size])
        offset += size

    assert [payload for _, payload in received] == messages
    assert read.held_bytes == 0


def test_a_ping_may_come_between_two_fragments() -> None:
    data = sent(TEXT, b"a", fin=False) + sent(PING, b"p") + sent(CONTINUATION, b"b")

    assert list(reader().feed(data)) == [(PING, b"p"), (TEXT, b"ab")]


BROKEN = {
    "a length of 62 bits": (1009, b"\x82\xff" + (1 << 62).to_bytes(8, "big")),
    "a byte too many": (1009, b"\x81\xfe" + (MESSAGE_BYTES_MAX + 1).to_bytes(2, "big")),
    "fragments too large together": (
        1009,
        sent(TEXT, b"x" * 4_000, fin=False) + sent(CONTINUATION, b"x" * 97, fin=False),
    ),
    "no mask": (1002, b"\x81\x01a"),
    "a reserved bit": (1002, b"\xc1\x80\0\0\0\0"),
    "an unknown opcode": (1002, b"\x83\x80\0\0\0\0"),
    "an unknown control opcode": (1002, b"\x8b\x80\0\0\0\0"),
    "a ping in fragments": (1002, b"\x09\x80\0\0\0\0"),
    "a ping of 126 bytes": (1002, b"\x89\xfe\x00\x7e\0\0\0\0"),
    "a continuation of nothing": (1002, sent(CONTINUATION, b"")),
    "a message within a message": (1002, sent(TEXT, b"a", fin=False) + sent(TEXT, b"b")),
}


@pytest.mark.parametrize(("code", "data"), BROKEN.values(), ids=BROKEN)
def test_what_breaks_the_protocol_or_a_limit_ends_the_connection_by_its_code(code: int, data: bytes) -> None:
    with pytest.raises(FrameError) as raised:
        list(reader().feed(data))

    assert raised.value.code == code


def test_a_frame_that_is_too_long_is_refused_before_its_payload_comes() -> None:
    read = reader()
    with pytest.raises(FrameError):
        list(read.feed(b"\x81\xff" + (1 << 40).to_bytes(8, "big")))

    assert read.held_bytes < 64


def test_what_is_held_of_an_unfinished_message_is_bounded() -> None:
    read = reader()
    list(read.feed(sent(TEXT, b"x" * 96, fin=False)))
    for _ in range(40):
        list(read.feed(sent(CONTINUATION, b"x" * 100, fin=False)))
    with pytest.raises(FrameError) as raised:
        list(read.feed(sent(CONTINUATION, b"x", fin=False)))

    assert raised.value.code == 1009
    assert read.held_bytes <= MESSAGE_BYTES_MAX + 200


def test_empty_frames_are_counted_and_more_come_with_time() -> None:
    now_s = 0.0
    read = FrameReader(lambda: now_s)
    ping = sent(PING, b"")
    assert len(list(read.feed(ping * FRAMES_BURST_MAX))) == FRAMES_BURST_MAX
    now_s = 0.5
    assert len(list(read.feed(ping * (FRAMES_PER_S_MAX // 2)))) == FRAMES_PER_S_MAX // 2
    with pytest.raises(FrameError) as raised:
        list(read.feed(ping))

    assert raised.value.code == 1008


def test_our_frames_are_as_another_implementation_makes_them() -> None:
    for size in (0, 125, 126, 65_535, 65_536):
        payload = b"x" * size
        assert frame(TEXT, payload) == Frame(Opcode.TEXT, payload).serialize(mask=False)

    assert len(close_frame(1008, "é" * 200)) <= 127


@pytest.mark.parametrize("payload", [b"\x03", b"\x03\xed", b"\x03\xee", b"\x00\x01", b"\x13\x88", b"\x03\xe8\xff"])
def test_a_close_code_that_may_not_be_sent_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        close_code(payload)


def test_a_close_code_is_read() -> None:
    assert [close_code(payload) for payload in (b"", b"\x03\xe8", b"\x03\xe9bye", b"\x0f\xa1")] == [
        1005,
        1000,
        1001,
        4001,
    ]

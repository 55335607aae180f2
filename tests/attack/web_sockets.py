"""WebSocket connections by hand: RFC 6455's frames, and any that break its rules."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from .target import Address, head
from .wire import WAIT_S, Wire, wire

UPGRADE = ("Upgrade: websocket", "Connection: Upgrade")
VERSION = "Sec-WebSocket-Version: 13"
KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
HANDSHAKE = (*UPGRADE, VERSION, KEY)
FINAL = 0x80
CONTINUATION, TEXT, BINARY, CLOSE, PING = 0x0, 0x1, 0x2, 0x8, 0x9
CLOSE_S = 1.0
ABNORMAL = 1006  # what RFC 6455 calls an end without a close frame; it is never sent


def frame(first: int, payload: bytes = b"", *, claimed: int | None = None, is_masked: bool = True) -> bytes:
    """Return a frame: `first` is its first byte. The mask is zeros, which leaves the payload as it is."""
    length = len(payload) if claimed is None else claimed
    bit = 0x80 if is_masked else 0
    if length < 126:
        size = bytes([bit | length])
    elif length < 65_536:
        size = bytes([bit | 126]) + struct.pack(">H", length)
    else:
        size = bytes([bit | 127]) + struct.pack(">Q", length)
    return bytes([first]) + size + (b"\0\0\0\0" if is_masked else b"") + payload


def text(payload: bytes) -> bytes:
    """Return a whole message."""
    return frame(FINAL | TEXT, payload)


async def read_frame(link: Wire, within_s: float = WAIT_S) -> tuple[int, bytes] | None:
    """Return kind and payload of the server's next frame; None where the connection is over."""
    async with asyncio.timeout(within_s):
        first = await link.take(2)
        if first is None:
            return None
        length = first[1] & 0x7F
        if length > 125:
            longer = await link.take(2 if length == 126 else 8)
            if longer is None:
                return None
            length = int.from_bytes(longer)
        payload = await link.take(length)
        return None if payload is None else (first[0] & 0x0F, payload)


async def close_code(link: Wire, within_s: float = WAIT_S) -> int | None:
    """Read until the server ends the connection, as a client that answers its close; return the code.

    None where it does not end in time.
    """
    try:
        async with asyncio.timeout(within_s):
            while (received := await read_frame(link, within_s)) is not None:
                kind, payload = received
                if kind == CLOSE:
                    code = int.from_bytes(payload[:2]) if payload else ABNORMAL
                    await link.send(frame(FINAL | CLOSE, payload[:2]), CLOSE_S)
                    return code if await link.rest(within_s) is not None else None
    except TimeoutError:
        return None
    return ABNORMAL


@asynccontextmanager
async def web_socket(address: Address, *, receive_bytes: int | None = None) -> AsyncIterator[Wire]:
    """Open a connection and upgrade it."""
    async with wire(address, receive_bytes=receive_bytes) as link:
        await link.send(head("GET", "/v1/ws", *HANDSHAKE))
        answer = await link.answer()
        assert answer is not None
        assert answer.status == 101, answer
        yield link


@asynccontextmanager
async def web_sockets(address: Address, count: int, *, receive_bytes: int | None = None) -> AsyncIterator[list[Wire]]:
    """Open many."""
    async with AsyncExitStack() as opened:
        yield [await opened.enter_async_context(web_socket(address, receive_bytes=receive_bytes)) for _ in range(count)]

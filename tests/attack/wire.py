"""Connections by hand: what is sent is what was written, and every wait has a deadline."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from .target import Address

WAIT_S = 30.0
PIECE_BYTES = 1 << 18
Result = TypeVar("Result")


class Answer(NamedTuple):
    """One answer, whole."""

    status: int
    headers: dict[str, str]
    body: bytes
    head_bytes: int


class Wire:
    """One connection; `wire` and `wires` close it."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        self.unread = b""  # received, and not taken yet

    async def send(self, data: bytes, within_s: float = WAIT_S) -> bool:
        """Send all of it; tell whether it was taken before the server ended the connection, or the time was over."""
        try:
            async with asyncio.timeout(within_s), self._sending:
                await self._loop.sock_sendall(self._link, data)
        except (OSError, TimeoutError):
            return False
        return True

    async def receive(self, within_s: float = WAIT_S) -> bytes:
        """Return what comes next; nothing where the server ended the connection."""
        if self.unread:
            piece, self.unread = self.unread, b""
            return piece
        try:
            async with asyncio.timeout(within_s):
                return await self._loop.sock_recv(self._link, PIECE_BYTES)
        except TimeoutError:
            raise
        except OSError:
            return b""

    async def rest(self, within_s: float = WAIT_S) -> bytes | None:
        """Return all that comes until the server ends the connection; None where it does not in time."""
        pieces = []
        try:
            async with asyncio.timeout(within_s):
                while piece := await self.receive(within_s):
                    pieces.append(piece)
        except TimeoutError:
            self.unread = b"".join(pieces)
            return None
        return b"".join(pieces)

    async def answer(self, *, to_head: bool = False, within_s: float = WAIT_S) -> Answer | None:
        """Return the next answer; None where the server ended the connection before it was whole."""
        async with asyncio.timeout(within_s):
            if not await self._until(b"\r\n\r\n"):
                return None
            head, _, self.unread = self.unread.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            status = int(first.split(" ")[1])
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body: bytes | None = b""
            if not to_head and status >= 200 and status not in (204, 304):
                body = await self._body(headers)
            return None if body is None else Answer(status, headers, body, len(head))

    async def _body(self, headers: dict[str, str]) -> bytes | None:
        if "content-length" in headers:
            return await self.take(int(headers["content-length"]))
        if headers.get("transfer-encoding") != "chunked":
            return await self.rest()
        pieces: list[bytes] = []
        while True:
            if not await self._until(b"\r\n"):
                return None
            size, _, self.unread = self.unread.partition(b"\r\n")
            piece = await self.take(int(size, 16) + 2)
            if piece is None:
                return None
            if len(piece) == 2:
                return b"".join(pieces)
            pieces.append(piece[:-2])

    async def _until(self, end: bytes) -> bool:
        while end not in self.unread:
            before, self.unread = self.unread, b""
            piece = await self.receive()
            self.unread = before + piece
            if not piece:
                return False
        return True

    async def take(self, size: int) -> bytes | None:
        """Return so many bytes; None where the connection is over before."""
        pieces, have = [], 0
        while have < size:
            piece = await self.receive()
            if not piece:
                return None
            pieces.append(piece)
            have += len(piece)
        whole = b"".join(pieces)
        self.unread = whole[size:]
        return whole[:size]

    def end_sending(self) -> None:
        """Say that nothing more comes, and go on reading."""
        try:
            self._link.shutdown(socket.SHUT_WR)
        except OSError:  # the server has ended it
            return

    def close(self) -> None:
        """Leave."""
        self._link.close()

    def abort(self) -> None:
        """Vanish: the server gets a reset."""
        self._link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._link.close()


@asynccontextmanager
async def wire(address: Address, *, receive_bytes: int | None = None) -> AsyncIterator[Wire]:
    """Open a connection; `receive_bytes` is how much the system takes in for us while we do not read."""
    link = socket.socket()
    link.setblocking(False)
    try:
        if receive_bytes is not None:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(WAIT_S):
            await asyncio.get_running_loop().sock_connect(link, address)
        yield Wire(link)
    finally:
        link.close()


@asynccontextmanager
async def wires(address: Address, count: int, *, receive_bytes: int | None = None) -> AsyncIterator[list[Wire]]:
    """Open many connections."""
    async with AsyncExitStack() as opened:
        yield [await opened.enter_async_context(wire(address, receive_bytes=receive_bytes)) for _ in range(count)]


async def ask(address: Address, request: bytes, within_s: float = WAIT_S) -> Answer | None:
    """Send one request on a connection of its own and return the answer."""
    async with wire(address) as link:
        await link.send(request, within_s)
        return await link.answer(within_s=within_s)


async def pause(seconds: float) -> None:
    """Keep everything as it is for a while: what an attack holds on to, not what a test waits for."""
    try:
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().create_future()
    except TimeoutError:
        return


def run(attack: Coroutine[Any, Any, Result], within_s: float) -> Result:
    """Run an attack to its end, and fail where that does not come in time."""

    async def bounded() -> Result:
        async with asyncio.timeout(within_s):
            return await attack

    return asyncio.run(bounded())

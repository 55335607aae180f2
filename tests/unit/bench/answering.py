"""A server that answers as a test says, over real sockets, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

FINE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
WAIT_S = 60


class Answering:
    """Calls `answer` with each request's bytes; what it returns is sent, and None keeps the client waiting."""

    def __init__(self, answer: Callable[[bytes], bytes | None]) -> None:
        self._answer = answer
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(WAIT_S)

    def stop(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)
        self._loop.close()

    async def _run(self) -> None:
        self._talking: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._talking:
            task.cancel()
        await asyncio.gather(*self._talking, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talking.add(task)
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                if b"Content-Length: " in request:
                    length = int(request.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
                    request += await reader.readexactly(length)
                self.requests.append(request)
                answer = self._answer(request)
                if answer is None:
                    await self._stop.wait()
                    break
                writer.write(answer)
                await writer.drain()
                if b"connection: close" in answer:
                    break
        writer.close()


@contextmanager
def answering(answer: Callable[[bytes], bytes | None] = lambda _: FINE) -> Iterator[Answering]:
    """Run such a server."""
    server = Answering(answer)
    server.start()
    try:
        yield server
    finally:
        server.stop()

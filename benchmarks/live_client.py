"""The clients of live rows, in a process of their own: bare sockets that note when which position arrived.

    asked for on its command line → connects → "ready" → a line on its stdin begins what is measured → the result

One process holds every client and sends the scores too, so that both are timed by one clock. Its own processor time is
in the result: where that nears a core, the delays are its own.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sys
import time
from collections import deque
from pathlib import Path
from typing import Literal

import msgspec
import uvloop

from benchmarks.live_config import allow_files
from benchmarks.live_delays import Delays, delays

CONNECTING_MAX = 100  # at the same time
SENDERS = 32
ARRIVAL_WAIT_S = 30.0
_POSITION = b'"position":"0-'
_END = b"\n\n"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the clients do."""

    task: Literal["scores", "changes", "idle"]
    port: int
    server_process: int
    clients: int
    topics: list[str]
    path: str = "/v1/stream"
    token: str = ""
    board: str = ""
    scores_per_s: int = 0
    seconds: float = 0.0
    changes: int = 0
    is_bare: bool = False
    change_bytes: int = 0  # of the bare handler's changes


class Result(msgspec.Struct, kw_only=True):
    """What they saw."""

    clients: int
    seconds: float = 0.0
    scores: int = 0
    messages: int = 0
    server_ns: int = 0  # processor time
    client_ns: int = 0
    message_bytes: int = 0  # of the last one
    delays: Delays | None = None  # of scores, at each client
    until_last_ms: list[float] = []  # of each change: until the last client has it
    late: int = 0  # clients that never had the last position


class Client(asyncio.Protocol):
    """A stream that is read as fast as it comes."""

    def __init__(self, crowd: Crowd) -> None:
        self.times: list[float] = []
        self.positions: list[int] = []
        self.is_lost = False
        self._crowd = crowd
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._crowd.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        rest = self._rest + data if self._rest else data
        end = rest.rfind(_END)
        if end < 0:
            self._rest = rest
            return
        self._rest = rest[end + 2 :]
        at = rest.rfind(_POSITION, 0, end)
        if at >= 0:
            start = at + len(_POSITION)
            position = int(rest[start : rest.index(b'"', start)])
        elif self._crowd.is_bare:
            position = len(self.positions)
        else:
            return
        self.times.append(time.monotonic())
        self.positions.append(position)
        self._crowd.arrived(self, position, len(data))

    def connection_lost(self, problem: Exception | None) -> None:
        self.is_lost = True


class Sender(asyncio.Protocol):
    """A connection that sends one request after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._answer = b""
        self.answered: asyncio.Future[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def send(self, request: bytes) -> asyncio.Future[int]:
        """Send a request; its position comes with the answer, 0 where there is none in it."""
        self.answered = asyncio.get_running_loop().create_future()
        if self._transport is None:
            raise RuntimeError("not connected")
        self._transport.write(request)
        return self.answered

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, separator, body = self._answer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self._answer = b""
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise RuntimeError(f"the server answered {body[:300]!r}")
        position = body.partition(_POSITION)[2].partition(b'"')[0]
        if self.answered is not None:
            self.answered.set_result(int(position) if position else 0)


class Crowd:
    """Everybody who watches."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.is_bare = asked.is_bare
        query = "&".join(f"topic={topic}" for topic in asked.topics)
        head = f"GET {asked.path}?{query} HTTP/1.1\r\nHost: rankd\r\nAccept: text/event-stream\r\n\r\n"
        self.request = head.encode()
        self.clients: list[Client] = []
        self.message_bytes = 0
        self._wanted = 0
        self._missing = 0
        self._all = asyncio.Event()

    async def connect(self) -> None:
        places = asyncio.Semaphore(CONNECTING_MAX)
        loop = asyncio.get_running_loop()

        async def connect_client() -> None:
            async with places:
                _, client = await loop.create_connection(lambda: Client(self), "127.0.0.1", self.asked.port)
                self.clients.append(client)

        await asyncio.gather(*(connect_client() for _ in range(self.asked.clients)))
        deadline = time.monotonic() + ARRIVAL_WAIT_S
        while not all(client.times for client in self.clients):
            if time.monotonic() > deadline or any(client.is_lost for client in self.clients):
                raise RuntimeError("not every client was sent a snapshot")
            await asyncio.sleep(0.01)

    def arrived(self, client: Client, position: int, size: int) -> None:
        self.message_bytes = size
        if (
            self._missing
            and position >= self._wanted
            and (len(client.positions) < 2 or client.positions[-2] < self._wanted)
        ):
            self._missing -= 1
            if not self._missing:
                self._all.set()

    def expect(self, position: int) -> None:
        """Begin to wait until everybody has a position; before it can have arrived."""
        self._wanted = position
        self._missing = sum(client.positions[-1] < position for client in self.clients)
        self._all.clear()
        if not self._missing:
            self._all.set()

    async def all_have_it(self) -> int:
        """Wait for that; return how many never had it."""
        try:
            async with asyncio.timeout(ARRIVAL_WAIT_S):
                await self._all.wait()
        except TimeoutError:
            return self._missing
        return 0


def processor_ns_of(process: int) -> int:
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def own_ns() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1e9)


def score_request(asked: Asked, player: str, score: int) -> bytes:
    body = f'{{"board":"{asked.board}","player":"{player}","score":{score}}}'
    head = f"POST /v1/scores HTTP/1.1\r\nHost: rankd\r\nAuthorization: Bearer {asked.token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


async def senders(port: int, count: int) -> list[Sender]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Sender, "127.0.0.1", port))[1] for _ in range(count)]


async def send_scores(crowd: Crowd) -> Result:
    """Send scores at a rate, each the best so far, so that every message is about all ten places."""
    asked = crowd.asked
    free: deque[Sender] = deque(await senders(asked.port, SENDERS))
    acknowledged: list[tuple[int, float]] = []
    under_way: set[asyncio.Future[int]] = set()
    loop = asyncio.get_running_loop()

    def send(number: int, sender: Sender) -> None:
        answered = sender.send(score_request(asked, f"live_{number % 1_000:04d}", 10**10 + number))
        under_way.add(answered)

        def done(future: asyncio.Future[int]) -> None:
            acknowledged.append((future.result(), time.monotonic()))
            under_way.discard(future)
            free.append(sender)

        answered.add_done_callback(done)

    server_ns, client_ns, began = processor_ns_of(asked.server_process), own_ns(), loop.time()
    wanted = round(asked.scores_per_s * asked.seconds)
    sent = 0
    while sent < wanted:
        due = min(wanted, int((loop.time() - began) * asked.scores_per_s))
        while sent < due and free:
            send(sent, free.popleft())
            sent += 1
        await asyncio.sleep(0.001)
    while under_way:
        await asyncio.sleep(0.001)
    seconds = loop.time() - began
    crowd.expect(max(position for position, _ in acknowledged))
    late = await crowd.all_have_it()
    server_ns = processor_ns_of(asked.server_process) - server_ns
    return Result(
        clients=len(crowd.clients),
        seconds=seconds,
        scores=len(acknowledged),
        messages=sum(len(client.times) - 1 for client in crowd.clients),
        server_ns=server_ns,
        client_ns=own_ns() - client_ns,
        message_bytes=crowd.message_bytes,
        delays=delays(acknowledged, [(client.positions, client.times) for client in crowd.clients]),
        late=late,
    )


async def send_changes(crowd: Crowd) -> Result:
    """Make one change after the other, each when everybody has the one before."""
    asked = crowd.asked
    (sender,) = await senders(asked.port, 1)
    until_last_ms, late = [], 0
    server_ns, client_ns, began = processor_ns_of(asked.server_process), own_ns(), time.monotonic()
    for number in range(asked.changes):
        if asked.is_bare:
            crowd.expect(crowd.clients[0].positions[-1] + 1)
            body = b"data: " + b"x" * (asked.change_bytes - 8) + b"\n\n"
            head = f"POST /tell HTTP/1.1\r\nHost: rankd\r\nContent-Length: {len(body)}\r\n\r\n"
            sent = time.monotonic()
            await sender.send(head.encode() + body)
        else:
            sent = time.monotonic()
            position = await sender.send(score_request(asked, f"live_{number % 10:04d}", 10**12 + number))
            crowd.expect(position)
        late += await crowd.all_have_it()
        until_last_ms.append((max(client.times[-1] for client in crowd.clients) - sent) * 1_000)
    return Result(
        clients=len(crowd.clients),
        seconds=time.monotonic() - began,
        messages=asked.changes * len(crowd.clients),
        server_ns=processor_ns_of(asked.server_process) - server_ns,
        client_ns=own_ns() - client_ns,
        message_bytes=crowd.message_bytes,
        until_last_ms=until_last_ms,
        late=late,
    )


async def run(asked: Asked) -> Result:
    crowd = Crowd(asked)
    await crowd.connect()
    gc.freeze()
    gc.disable()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.readline)
    if asked.task == "scores":
        return await send_scores(crowd)
    if asked.task == "changes":
        return await send_changes(crowd)
    return Result(clients=len(crowd.clients), messages=sum(len(client.times) for client in crowd.clients))


if __name__ == "__main__":
    allow_files()
    print(msgspec.json.encode(uvloop.run(run(msgspec.json.decode(sys.argv[1], type=Asked)))).decode())

"""A server that is stopped, or killed, while scores come in: what was acknowledged is there after the next start."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.servers.load_bound import REQUESTS_MAX, LoadBound

from .serving import Serving, serving, start

SENDERS = 8
ACKNOWLEDGED_MIN = 200
QUEUED = 300
STOP_WAIT_MS = 1_000
CLOSING_S = 5.0  # what a busy machine may need for the reads that have begun and the snapshot


class Load:
    """Threads that submit one score after the other to a board that adds them up."""

    def __init__(self, server: Serving) -> None:
        self.server = server
        self.acknowledged: dict[str, int] = {}  # how many scores of 1, by player
        self.unsure: dict[str, int] = {}  # how many got no answer
        self.refused: list[int] = []
        self.enough = threading.Event()
        self._stop = threading.Event()
        self._bound = LoadBound(REQUESTS_MAX)
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send, args=(f"player-{number}",)) for number in range(SENDERS)]

    def _send(self, player: str) -> None:
        with self.server.client(self.server.admin_key) as client:
            while not self._stop.is_set() and self._bound.take():
                try:
                    answer = client.post("/v1/scores", json={"board": "arcade", "player": player, "score": 1})
                except httpx.TransportError:
                    self._count(self.unsure, player)
                    return
                if answer.status_code == 200:
                    self._count(self.acknowledged, player)
                else:
                    self.refused.append(answer.status_code)
                    return

    def _count(self, counts: dict[str, int], player: str) -> None:
        with self._lock:
            counts[player] = counts.get(player, 0) + 1
            if sum(self.acknowledged.values()) >= ACKNOWLEDGED_MIN:
                self.enough.set()

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            assert self.enough.wait(30)
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(30)


def prepare(folder: Path) -> Serving:
    server = start(folder)
    server.wait_until_ready()
    with server.client(server.admin_key) as admin:
        assert admin.put("/v1/boards/arcade", json={"keep": "sum"}).status_code == 200
    return server


def counted(folder: Path, load: Load) -> None:
    with serving(folder) as server, server.client() as client:
        for player, acknowledged in load.acknowledged.items():
            score = client.get(f"/v1/boards/arcade/players/{player}").json()["score"]
            assert acknowledged <= score <= acknowledged + load.unsure.get(player, 0)


def test_a_server_that_gets_a_signal_answers_what_it_accepted_and_loses_nothing(tmp_path: Path) -> None:
    server = prepare(tmp_path / "data")
    load = Load(server)
    with load.running():
        assert server.stop(signal.SIGTERM) == 0

    assert set(load.refused) <= {503}
    assert "stopped" in server.log.read_text()
    counted(server.folder, load)


@pytest.mark.parametrize("attempt", range(3))
def test_a_server_that_is_killed_loses_nothing_it_acknowledged(tmp_path: Path, attempt: int) -> None:
    server = prepare(tmp_path / f"data-{attempt}")
    load = Load(server)
    with load.running():
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL

    counted(server.folder, load)


async def ask(server: Serving, target: str, answers: list[bytes], is_answered: asyncio.Event) -> None:
    """Ask and note the first line of the answer; nothing where there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    try:
        writer.write(f"GET {target} HTTP/1.1\r\nHost: rankd\r\n\r\n".encode())
        answers.append(await reader.readline())
    except OSError:
        answers.append(b"")
    finally:
        is_answered.set()
        writer.close()


def test_a_server_with_a_long_queue_of_dear_work_stops_in_time(tmp_path: Path) -> None:
    config = f"[server]\nstop_wait_ms = {STOP_WAIT_MS}\n"
    server = start(tmp_path / "data", config=config, program="tests.acceptance.slow_searches")
    server.wait_until_ready()
    answers: list[bytes] = []

    async def queue_and_stop() -> float:
        is_full = asyncio.Event()  # those beyond the queue's limit are refused, and are the first to be answered
        target = "/v1/players?search=ali"
        asked = [asyncio.create_task(ask(server, target, answers, is_full)) for _ in range(QUEUED)]
        async with asyncio.timeout(20):
            await is_full.wait()
        began = time.monotonic()
        assert await asyncio.to_thread(server.stop, signal.SIGTERM) == 0
        took_s = time.monotonic() - began
        async with asyncio.timeout(20):
            await asyncio.gather(*asked)
        return took_s

    try:
        assert asyncio.run(queue_and_stop()) < STOP_WAIT_MS / 1_000 + CLOSING_S
    finally:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)
    assert {line.split(b" ")[1] for line in answers if line} <= {b"200", b"503"}
    assert answers.count(b"") == 0, "whoever waits is asked to come again"


def test_a_server_that_does_nothing_stops_at_once_with_connections_open(tmp_path: Path) -> None:
    server = prepare(tmp_path / "data")
    with server.client() as client:
        assert client.get("/healthz").status_code == 200
        assert server.stop(signal.SIGINT) == 0


def test_a_second_server_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as first:
        second = start(first.folder)
        assert second.process.wait(20) == 4
        assert "in use" in second.log.read_text() or "another process" in second.log.read_text()


def test_a_second_server_on_the_same_port_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as first:
        second = start(tmp_path / "other", port=int(first.url.rpartition(":")[2]))
        assert second.process.wait(20) == 3
        assert "cannot listen" in second.log.read_text()

"""A server that is stopped, or killed, while scores come in: what was acknowledged is there after the next start."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from .serving import Serving, serving, start

SENDERS = 8
ACKNOWLEDGED_MIN = 200


class Load:
    """Threads that submit one score after the other to a board that adds them up."""

    def __init__(self, server: Serving) -> None:
        self.server = server
        self.acknowledged: dict[str, int] = {}  # how many scores of 1, by player
        self.unsure: dict[str, int] = {}  # how many got no answer
        self.refused: list[int] = []
        self.enough = threading.Event()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send, args=(f"player-{number}",)) for number in range(SENDERS)]

    def _send(self, player: str) -> None:
        with self.server.client(self.server.admin_key) as client:
            while not self._stop.is_set():
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


def test_a_server_that_is_told_to_stop_answers_what_it_took_and_loses_nothing(tmp_path: Path) -> None:
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

"""Workers that die: what was acknowledged is there, each score once, and the others go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import httpx
from tests.servers.load_bound import REQUESTS_MAX, LoadBound
from tests.servers.waiting import WAIT_S, join_all, wait_until

import rankd

from .serving import ROOT
from .workers_serving import WRITER, Workers, answered, is_alive, running_workers

BOARD = "points"
PLAYERS = 7
SCORES_A_SENDER = 150
SENDERS = 3
READ_EVERY_S = 0.01
UNAVAILABLE, FOLDER_LOCKED = 3, 4  # exit codes


def define(workers: Workers) -> None:
    with workers.admin() as client:
        answered(client.put(f"/v1/boards/{BOARD}", json={"keep": "sum", "windows": ["all_time"]}))


class Load:
    """Senders of keyed scores to the public address, each sent until it is acknowledged; and a reader."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.acknowledged = 0
        self.unavailable: Counter[int] = Counter()  # 503 by the seconds to wait
        self.reads = 0
        self.strange: list[str] = []
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._bound = LoadBound(REQUESTS_MAX)  # of the reader; each sender has its scores
        self._senders = [threading.Thread(target=self._send, args=(number,)) for number in range(SENDERS)]
        self._reader = threading.Thread(target=self._read)
        for thread in (*self._senders, self._reader):
            thread.start()

    def finish(self) -> None:
        join_all(self._senders)
        self._is_over.set()
        join_all([self._reader])

    def has_reached(self, acknowledged: int) -> bool:
        return self.acknowledged >= acknowledged

    def _send(self, sender: int) -> None:
        for number in range(SCORES_A_SENDER):
            event = {"board": BOARD, "player": f"p{number % PLAYERS}", "score": 1}
            wait_until(partial(self._is_acknowledged, event, f"{sender}-{number}"))

    def _is_acknowledged(self, event: dict[str, object], key: str) -> bool:
        try:
            with self._workers.admin() as client:  # another connection each time, so another worker
                response = client.post("/v1/scores", json=event, headers={"Idempotency-Key": key})
        except httpx.TransportError:  # the worker died with the connection
            return False
        with self._lock:
            if response.status_code == 200:
                self.acknowledged += 1
                return True
            if response.status_code == 503:
                self.unavailable[int(response.headers["retry-after"])] += 1
            else:
                self.strange.append(response.text)
        return False

    def _read(self) -> None:
        while self._bound.take() and not self._is_over.wait(READ_EVERY_S):
            try:
                with self._workers.serving.client() as client:
                    response = client.get(f"/v1/boards/{BOARD}/top")
            except httpx.TransportError:
                continue
            if response.status_code == 200:
                self.reads += 1
            elif response.status_code != 503:
                self.strange.append(response.text)


def sums(entries: list[dict[str, object]]) -> dict[str, int]:
    return {str(entry["player"]): int(str(entry["score"])) for entry in entries}


def expected() -> dict[str, int]:
    counted = Counter(f"p{number % PLAYERS}" for number in range(SCORES_A_SENDER))
    return {player: count * SENDERS for player, count in counted.items()}


def test_nothing_is_lost_and_nothing_counts_twice_when_workers_are_killed(tmp_path: Path) -> None:
    with running_workers(tmp_path / "data", 3) as workers:
        define(workers)
        load = Load(workers)
        for number in (WRITER, 1, WRITER, 2):
            wait_until(partial(load.has_reached, load.acknowledged + 10))
            workers.kill(number)
            wait_until(partial(workers.is_ready, number))
        load.finish()
        assert load.strange == []
        assert load.reads > 0
        workers.wait_until_there()
        for number in range(workers.count):
            with workers.admin(number) as client:
                wait_until(partial(shows_everything, client))
        assert workers.serving.stop() == 0
    with rankd.open(tmp_path / "data") as boards:
        boards.verify()
        assert {entry.player: entry.score for entry in boards.top(BOARD, 100).entries} == expected()


def shows_everything(client: httpx.Client) -> bool:
    return sums(top(client)) == expected()


def top(client: httpx.Client) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = answered(client.get(f"/v1/boards/{BOARD}/top", params={"limit": 100}))["entries"]
    return entries


def test_reads_go_on_while_the_writer_is_away(tmp_path: Path) -> None:
    with running_workers(tmp_path / "data") as workers:
        define(workers)
        event = {"board": BOARD, "player": "alice", "score": 5}
        with workers.admin(1) as client:
            answered(client.post("/v1/scores", json=event))
            os.kill(workers.supervisor, signal.SIGSTOP)  # so that nobody starts it again
            try:
                workers.kill(WRITER)
                for method, path in (("POST", "/v1/scores"), ("PUT", "/v1/players/alice"), ("DELETE", "/v1/boards/x")):
                    refused = client.request(method, path, json=event)
                    assert (refused.status_code, refused.json()["code"]) == (503, "ledger_unavailable")
                    assert refused.headers["retry-after"] == "1"
                standing = answered(client.get(f"/v1/boards/{BOARD}/players/alice"))
                assert (standing["score"], standing["stale"]) == (5, False)
                assert client.get("/readyz").status_code == 200
                assert 'rankd_worker_up{worker="0"} 0' in client.get("/metrics").text
            finally:
                os.kill(workers.supervisor, signal.SIGCONT)
            wait_until(lambda: client.post("/v1/scores", json=event).status_code == 200)
            assert answered(client.get(f"/v1/boards/{BOARD}/players/alice"))["score"] == 10


def test_a_signal_stops_all_workers_and_leaves_the_folder_as_one_process_would(tmp_path: Path) -> None:
    with running_workers(tmp_path / "data", 3) as workers:
        define(workers)
        with workers.admin(2) as client:
            answered(client.post("/v1/scores", json={"board": BOARD, "player": "alice", "score": 5}))
        processes = workers.processes()
        assert len(processes) == 1 + workers.count
        assert workers.serving.stop() == 0
        assert not any(map(is_alive, processes))
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names == {"admin.key", "credentials.db", "ledger.db", "lock", "snapshots", "witness"}
    with rankd.open(tmp_path / "data") as boards:
        assert boards.started.replayed == 0
        assert [entry.score for entry in boards.top(BOARD).entries] == [5]


def test_no_worker_outlives_its_supervisor(tmp_path: Path) -> None:
    with running_workers(tmp_path / "data", 3) as workers:
        processes = workers.processes()
        assert workers.serving.stop(signal.SIGKILL) == -signal.SIGKILL
        wait_until(lambda: not any(map(is_alive, processes)))


def test_a_second_server_with_the_same_folder_or_address_ends_as_one_process_would(tmp_path: Path) -> None:
    with running_workers(tmp_path / "data") as workers:
        second = ended_server(tmp_path / "data", 0)
        assert second.returncode == FOLDER_LOCKED
        assert f"is in use by process {workers.supervisor}; stop it first" in second.stderr
        other = ended_server(tmp_path / "other", int(workers.serving.url.rpartition(":")[2]))
        assert other.returncode == UNAVAILABLE
        assert "cannot listen on" in other.stderr
        assert workers.is_ready(WRITER)
        assert workers.is_ready(1)


def ended_server(folder: Path, port: int) -> subprocess.CompletedProcess[str]:
    serve = ["rankd", "serve", "--data", str(folder), "--port", str(port), "--workers", "2"]
    return subprocess.run(
        [sys.executable, "-m", *serve], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False
    )

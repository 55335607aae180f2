"""Work for clients that have left: it is not done, and it does not keep the server from stopping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.acceptance.serving import Serving, serving
from tests.timing import BUSY_MACHINE

from .target import Address, Target, address_of, head, short_and_long, under_attack
from .wire import WAIT_S, ask, run, wires

BOARDS = {False: 100, True: 1_000}
ROUNDS = {False: 2, True: 20}
LEAVERS = 300  # a few more than the 256 that may wait for a thread
WINDOWS = ["all_time", "yearly", "monthly", "weekly", "daily", "hourly"]
SEARCH_S_MAX = 0.5 * BUSY_MACHINE  # behind those of the reads that had begun
STOP_BOARDS = 200
STOP_WAIT_MS = 500
STOP_SLACK_S = 1.0 * BUSY_MACHINE  # for the snapshot, and for the process to end
SEARCH = head("GET", "/v1/players?search=p&limit=100")
READS = {
    "metrics": "/metrics",
    "a distribution": "/v1/boards/arcade/distribution?buckets=1000",
    "a search": "/v1/players?search=p&limit=100",
    "a long page": "/v1/boards/arcade/top?limit=1000",
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with under_attack(tmp_path_factory.mktemp("departed")) as running:
        yield running


def define_boards(server: Serving, count: int) -> None:
    """Make /metrics dear: it tells of every board."""
    with server.client(server.admin_key, timeout_s=30) as admin:
        if admin.get(f"/v1/boards/b{count - 1}").status_code == 200:
            return
        for number in range(count):
            assert admin.put(f"/v1/boards/b{number}", json={"windows": WINDOWS}).status_code == 200
        scores = [{"board": f"b{number}", "player": "p1", "score": 1} for number in range(count)]
        assert admin.post("/v1/scores/batch", json={"events": scores}).status_code == 200


async def ask_and_leave(target: Target, path: str, count: int) -> None:
    """Ask on many connections, and leave all of them when the last has asked; every second one vanishes."""
    async with wires(target.address, count) as links:
        for link in links:
            await link.send(head("GET", path))
        for number, link in enumerate(links):
            link.abort() if number % 2 else link.close()


@short_and_long
@pytest.mark.parametrize("read", READS)
def test_reads_whose_clients_left_keep_nobody_waiting(target: Target, read: str, is_long: bool) -> None:
    target.revive()
    define_boards(target.server, BOARDS[is_long])

    async def attack() -> float:
        """Return how long it took at most until a search was answered."""
        slowest_s = 0.0
        for _ in range(ROUNDS[is_long]):
            await ask_and_leave(target, READS[read], LEAVERS)
            began = time.monotonic()
            while (answer := await ask(target.address, SEARCH)) is None or answer.status != 200:
                assert answer is None or answer.status == 503, answer
                assert time.monotonic() - began < WAIT_S
            slowest_s = max(slowest_s, time.monotonic() - began)
        return slowest_s

    with target.attack(f"{LEAVERS} who ask for {read} and leave", is_long=is_long, growth_mib_max=64) as attacked:
        slowest_s = run(attack(), 300 if is_long else 60)
        attacked.expect(slowest_s < SEARCH_S_MAX, f"whoever searches right after is answered: after {slowest_s:.2f} s")


@pytest.mark.parametrize("stays", [False, True], ids=["whose clients left", "whose clients stay"])
def test_a_server_with_reads_waiting_stops_in_time(tmp_path: Path, stays: bool) -> None:
    async def ask_and_stop(server: Serving, address: Address) -> tuple[int, float]:
        async with wires(address, LEAVERS) as links:
            for link in links:
                await link.send(head("GET", READS["metrics"]))
            for link in [] if stays else links:
                link.close()
            assert await ask(address, head("GET", "/healthz")) is not None
            began = time.monotonic()
            return await asyncio.to_thread(server.stop), time.monotonic() - began

    with serving(tmp_path / "data", config=f"[server]\nstop_wait_ms = {STOP_WAIT_MS}\n") as server:
        define_boards(server, STOP_BOARDS)
        code, took_s = run(ask_and_stop(server, address_of(server)), 90)

    assert code == 0
    assert took_s < STOP_WAIT_MS / 1_000 + STOP_SLACK_S

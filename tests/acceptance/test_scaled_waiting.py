"""Those who wait for ranks that others make: they hold nobody up, and what they are answered is never from before."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import psycopg
import pytest
from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.fixtures_redis import needs_redis
from tests.servers.waiting import wait_until
from tests.timing import BUSY_MACHINE

from .scaled_serving import Installation, installed
from .serving import Serving

pytestmark = pytest.mark.timeout(300)  # hundreds of connections on a busy machine
WAITERS = 300  # more than there are threads, and more than may wait for one
READS = 20
LONG_MS = 60_000
QUICK_S = 8.0 * BUSY_MACHINE  # far less than anybody waits here
LIMITS = {
    "RANKD_RANKS_AT_LEAST_WAIT_MS": str(LONG_MS),
    "RANKD_RANKS_CACHE_MS": "0",
    "RANKD_LIMITS_SERVICE_WRITES_PER_S": "100000",
    "RANKD_LIMITS_HEADER_READ_MS": "60000",  # hundreds of connections at once, on a busy machine
}


class World:
    """An installation with one board, somebody on it, and a projector that can be stopped for a while."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.projector: Popen[bytes] = installation.project()
        self.serving: Serving = installation.serve()
        with self.serving.client(installation.admin, timeout_s=60) as client:
            assert client.put("/v1/boards/arcade", json={"keep": "latest"}).status_code == 200
            events = [{"board": "arcade", "player": f"p{number}", "score": number} for number in range(READS)]
            position = client.post("/v1/scores/batch", json={"events": events}).json()["position"]
            assert client.get("/v1/boards/arcade/top", params={"at_least": position}).status_code == 200

    def pause(self) -> None:
        self.projector.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.projector.send_signal(signal.SIGCONT)

    def has_standings(self) -> bool:
        """Tell whether everybody is among what is read while Redis is away."""
        with psycopg.connect(self.installation.ledger_url) as connection:
            (count,) = connection.execute("SELECT count(*) FROM standings").fetchone() or (0,)
        return bool(count == READS)

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.serving.url,
            headers={"Authorization": f"Bearer {self.installation.admin}"},
            timeout=2 * LONG_MS / 1_000,
            limits=httpx.Limits(max_connections=None),
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    needs_postgres()
    needs_redis()
    with installed(tmp_path, LIMITS) as installation:
        yield World(installation)


async def submit(
    client: httpx.AsyncClient, player: str, score: int, board: str = "arcade", **headers: str
) -> httpx.Response:
    body = {"board": board, "player": player, "score": score}
    return await client.post("/v1/scores", json=body, headers=headers)


async def begun(
    work: Sequence[Coroutine[Any, Any, httpx.Response]], within_s: float = 0.5
) -> list[asyncio.Task[httpx.Response]]:
    """Begin many requests at once, and return when all of them are on their way."""
    tasks = [asyncio.ensure_future(call) for call in work]
    await asyncio.wait(tasks, timeout=within_s)
    return tasks


async def read_everybody(client: httpx.AsyncClient) -> float:
    """Ask where everybody stands; return how long that took."""
    began = time.monotonic()
    for number in range(READS):
        answer = await client.get(f"/v1/boards/arcade/players/p{number}")
        assert (answer.status_code, answer.json()["score"]) == (200, number), answer.text
    return time.monotonic() - began


def test_those_who_wait_hold_nobody_up_and_are_all_answered(world: World) -> None:
    async def run() -> None:
        async with world.client() as client:
            world.pause()
            written = await submit(client, "first", 1)
            position = written.json()["position"]
            waits = await begun(
                [submit(client, f"w{number}", number, Prefer="wait=10") for number in range(WAITERS)]
                + [client.get("/v1/boards/arcade/top", params={"at_least": position}) for _ in range(WAITERS)]
            )
            assert await read_everybody(client) < QUICK_S
            assert (await submit(client, "another", 1)).status_code == 202
            world.resume()
            answers = [await wait for wait in waits]
        assert {answer.status_code for answer in answers[WAITERS:]} == {200}
        assert {answer.status_code for answer in answers[:WAITERS]} <= {200, 202}
        ranked = [answer.json() for answer in answers[:WAITERS] if answer.status_code == 200]
        assert all((row["changed"], row["score"]) == (True, int(row["player"][1:])) for row in ranked)

    asyncio.run(run())


def test_a_position_that_nobody_was_given_is_refused_and_holds_nobody_up(world: World) -> None:
    async def run() -> None:
        async with world.client() as client:
            began = time.monotonic()
            waits = await begun(
                [client.get("/v1/boards/arcade/top", params={"at_least": "7-999999999"}) for _ in range(WAITERS)]
            )
            assert await read_everybody(client) < QUICK_S
            answers = [await wait for wait in waits]
            assert time.monotonic() - began < LONG_MS / 1_000 - 10
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "behind")}

    asyncio.run(run())


def test_a_board_that_does_not_exist_is_not_waited_for(world: World) -> None:
    async def run() -> None:
        async with world.client() as client:
            answer = await client.get("/v1/boards/made-up/top", params={"at_least": "0-999999999"})
        assert (answer.status_code, answer.json()["code"]) == (404, "board_unknown")

    asyncio.run(run())


def test_a_durable_score_is_accepted_whatever_becomes_of_its_rank(world: World) -> None:
    async def run() -> None:
        async with world.client() as client:
            wait_until(world.has_standings)
            world.installation.redis.stop()
            answers = [await submit(client, "alice", score, Prefer="wait=1") for score in range(5)]
            assert {(answer.status_code, answer.json()["status"]) for answer in answers} == {(202, "accepted")}
            answer = await client.get("/v1/boards/arcade/players/p3")
            assert (answer.status_code, answer.json().get("stale")) == (200, True), answer.text

    asyncio.run(run())


def test_a_board_deleted_while_somebody_waits_is_no_error_of_theirs(world: World) -> None:
    async def run() -> httpx.Response:
        async with world.client() as client:
            world.pause()
            (waits,) = await begun([submit(client, "alice", 1, Prefer="wait=3")])
            assert (await client.delete("/v1/boards/arcade")).status_code == 200
            world.resume()
            return await waits

    answer = asyncio.run(run())
    assert answer.status_code in (200, 202), answer.text


def test_the_first_score_of_a_new_board_is_ranked_too(world: World) -> None:
    async def first_score(board: str) -> int:
        async with world.client() as client:
            world.pause()
            assert (await client.put(f"/v1/boards/{board}", json={})).status_code == 200
            (waits,) = await begun([submit(client, "alice", 1, board, Prefer="wait=10")], within_s=0.1)
            world.resume()
            return (await waits).status_code

    names = (f"new{number}" for number in itertools.count())
    # A score does not wait long before it is durable: a busy machine may take several tries.
    wait_until(lambda: asyncio.run(first_score(next(names))) == 200)

"""One client does not stop the others: dear work has a queue of its own, and that of departed clients is dropped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from rankd.api.calls.call import Cost
from rankd.api.calls.routes import CALLS
from rankd.api.http.eager import run_eagerly
from rankd.api.service import THREADS_MAX, WAITING_MAX

from .event_loop import next_turn
from .in_process import DEADLINE_S, InProcess, in_process

DEAR_THREADS = THREADS_MAX[Cost.DEAR]


class Searches:
    """Searches that wait until they are let through."""

    def __init__(self, app: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self.may_go_on = threading.Event()
        monkeypatch.setattr(app.boards, "search", self._search)

    def _search(self, start: str, _limit: int) -> list[object]:
        self.begun.append(start)
        assert self.may_go_on.wait(DEADLINE_S)
        return []


def answered(app: InProcess) -> dict[str, int]:
    """How many requests ended with each status."""
    requests = next(family for family in app.app.routes.collect() if family.name == "rankd_requests")
    return {sample.labels["status"]: int(sample.value) for sample in requests.samples}


async def all_threads_busy(searches: Searches) -> None:
    while len(searches.begun) < DEAR_THREADS:
        await asyncio.to_thread(int)


async def begun(asked: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
    """Run a request as the server does: outside of any task, until it waits."""
    loop = asyncio.get_running_loop()
    task: asyncio.Future[asyncio.Task[None] | None] = loop.create_future()
    loop.call_soon(lambda: task.set_result(run_eagerly(asked, loop)))
    while not task.done():
        await next_turn()
    continued = task.result()
    assert continued is not None
    return continued


def test_the_work_of_departed_clients_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(app: InProcess) -> None:
        searches = Searches(app, monkeypatch)
        left = [asyncio.ensure_future(app.get("/v1/players?search=gone")) for _ in range(DEAR_THREADS + WAITING_MAX)]
        await all_threads_busy(searches)
        assert (await app.get("/v1/players?search=refused")).status == 503
        for request in left:
            request.cancel()
        await asyncio.wait(left)
        stays = asyncio.ensure_future(app.get("/v1/players?search=stays"))
        await asyncio.to_thread(int)
        searches.may_go_on.set()
        assert (await stays).status == 200
        assert searches.begun == ["gone"] * DEAR_THREADS + ["stays"]
        assert app.app.open == 0
        assert answered(app) == {"200": 1, "499": len(left), "503": 1}

    in_process(tmp_path, test)


def test_a_client_that_leaves_while_it_sends_is_counted(tmp_path: Path) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def test(app: InProcess) -> None:
        with pytest.raises(IndexError):  # nothing is answered
            await app.ask("POST", "/v1/boards/arcade/ranks", receive)
        assert answered(app) == {"499": 1}

    in_process(tmp_path, test)


def test_a_client_that_leaves_as_its_stream_begins_frees_its_place(tmp_path: Path) -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.wait_for(asyncio.Event().wait(), DEADLINE_S)
        return {"type": "http.disconnect"}

    async def test(app: InProcess) -> None:
        app.boards.define("arcade")
        live = app.service.go_live()
        for turns in range(8):
            task = await begun(app.ask("GET", "/v1/stream?topic=top:arcade", receive))
            for _ in range(turns):
                await next_turn()
            task.cancel()
            await asyncio.wait([task], timeout=DEADLINE_S)
            assert len(live.streams) == 0, f"left after {turns} turns"
        live.stop()

    in_process(tmp_path, test)


def test_what_is_cheap_does_not_wait_for_what_is_dear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(app: InProcess) -> None:
        app.boards.set_player("alice", name="Alice")
        searches = Searches(app, monkeypatch)
        asked = [asyncio.ensure_future(app.get("/v1/players?search=ali")) for _ in range(WAITING_MAX)]
        await all_threads_busy(searches)
        assert (await app.get("/v1/players/alice")).json()["name"] == "Alice"
        searches.may_go_on.set()
        assert {(await request).status for request in asked} == {200}

    in_process(tmp_path, test)


def test_figures_are_answered_while_the_queue_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(app: InProcess) -> None:
        app.service.exposition = lambda: b"figures"
        searches = Searches(app, monkeypatch)
        target = "/v1/players?search=ali"
        asked = [asyncio.ensure_future(app.get(target)) for _ in range(DEAR_THREADS + WAITING_MAX)]
        await all_threads_busy(searches)
        assert (await app.get(target)).status == 503
        assert app.service.work_waiting() == {"cheap": 0, "dear": WAITING_MAX}
        assert (await app.get("/metrics")).body == b"figures"
        searches.may_go_on.set()
        assert {(await request).status for request in asked} == {200}

    in_process(tmp_path, test)


def test_every_call_that_reads_much_is_dear() -> None:
    dear = {call.name for call in CALLS if call.cost is Cost.DEAR}
    assert dear == {
        "submit_many",
        "top",
        "range",
        "distribution",
        "course",
        "audit",
        "friends_of",
        "list",
        "delete",
        "reset",
        "history",
        "search",
    }

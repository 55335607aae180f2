"""Figures for those who scrape: collected once for all who ask at the same time, and guarded where that is wished."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from rankd.api import metrics
from rankd.api.metrics import Scrapes
from rankd.config.model import Config, ServerConfig
from rankd.errors import Overloaded

from .in_process import DEADLINE_S, InProcess, in_process

TOKEN = "a-token-for-prometheus"


class Collections:
    """Collections that wait until they are let through."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()
        self.problem: Exception | None = None

    async def collect(self) -> bytes:
        self.begun += 1
        await self.may_end.wait()
        if self.problem is not None:
            raise self.problem
        return b"figures %d" % self.begun


async def asked(scrapes: Scrapes, count: int) -> list[asyncio.Task[bytes]]:
    tasks = [asyncio.ensure_future(scrapes.text()) for _ in range(count)]
    await asyncio.to_thread(int)
    return tasks


def test_those_who_ask_at_the_same_time_share_one_collection_and_its_text_is_kept_for_a_moment() -> None:
    async def run() -> None:
        collections = Collections()
        scrapes = Scrapes(collections.collect)
        gone, *others = await asked(scrapes, 100)
        gone.cancel()
        collections.may_end.set()
        assert {await other for other in others} == {b"figures 1"}
        assert await scrapes.text() == b"figures 1"
        assert collections.begun == 1

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_what_is_too_old_is_collected_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "TEXT_KEPT_S", 0.0)

    async def run() -> None:
        collections = Collections()
        collections.may_end.set()
        scrapes = Scrapes(collections.collect)
        assert await scrapes.text() == b"figures 1"
        assert await scrapes.text() == b"figures 2"

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_a_collection_that_fails_is_everybodys_and_the_next_one_is_tried() -> None:
    async def run() -> None:
        collections = Collections()
        collections.problem = Overloaded("too much to do")
        scrapes = Scrapes(collections.collect)
        both = await asked(scrapes, 2)
        collections.may_end.set()
        for scrape in both:
            with pytest.raises(Overloaded):
                await scrape
        collections.problem = None
        assert await scrapes.text() == b"figures 2"

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


def test_departed_scrapers_leave_one_collection_behind_and_search_answers(tmp_path: Path) -> None:
    may_end, begun = threading.Event(), 0

    def exposition() -> bytes:
        nonlocal begun
        begun += 1
        assert may_end.wait(DEADLINE_S)
        return b"figures"

    async def test(app: InProcess) -> None:
        app.service.exposition = exposition
        left = [asyncio.ensure_future(app.get("/metrics")) for _ in range(256)]
        while not begun:
            await asyncio.to_thread(int)
        for request in left:
            request.cancel()
        await asyncio.wait(left)
        assert (await app.get("/v1/players?search=ali")).status == 200
        assert begun == 1
        may_end.set()

    in_process(tmp_path, test)


@pytest.mark.parametrize("public_read", [True, False])
def test_with_a_token_figures_take_that_and_no_other_credential(tmp_path: Path, public_read: bool) -> None:
    async def test(app: InProcess) -> None:
        for sent in (None, "", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ", f"Digest {TOKEN}"):
            headers = {} if sent is None else {"authorization": sent}
            refused = await app.get("/metrics", **headers)
            assert (refused.status, refused.headers[b"www-authenticate"]) == (401, b"Bearer"), sent
            assert TOKEN.encode() not in refused.body
        assert (await app.get("/metrics", authorization=f"bearer {TOKEN}")).status == 200
        # The token opens nothing else.
        assert (await app.get("/v1/boards", authorization=f"Bearer {TOKEN}")).status == 401

    in_process(tmp_path, test, Config(server=ServerConfig(metrics_token=TOKEN, public_read=public_read)))


def test_without_a_token_figures_are_a_read_as_any_other(tmp_path: Path) -> None:
    async def test(app: InProcess) -> int:
        return (await app.get("/metrics")).status

    assert in_process(tmp_path / "public", test) == 200
    assert in_process(tmp_path / "private", test, Config(server=ServerConfig(public_read=False))) == 401

"""`GET /v1/boards`: a page at a time, each of bounded size, by id or by what is searched for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from rankd.api.calls.definitions import LIST_BYTES_MAX, LIST_LIMIT_DEFAULT

from .in_process import InProcess, in_process

COUNT = 250
LONG = "x" * 4_000


async def all_pages(app: InProcess, query: str = "") -> list[list[str]]:
    """Return the ids on each page, from the first to the last."""
    pages: list[list[str]] = []
    cursor: str | None = ""
    while cursor is not None:
        reply = await app.get(f"/v1/boards?{query}{cursor}")
        assert reply.status == 200, reply.body
        answer = reply.json()
        pages.append([board["id"] for board in answer["boards"]])
        cursor = None if answer["next"] is None else f"&cursor={answer['next'].replace(' ', '%20')}"
        assert len(pages) <= COUNT + 1
    return pages


def ids_of(pages: list[list[str]]) -> list[str]:
    return list(chain.from_iterable(pages))


def listing(folder: Path, test: Callable[[InProcess], Any], **definition: object) -> Any:
    async def run(app: InProcess) -> Any:
        for number in range(COUNT):
            app.boards.define(f"b{number:03}", {"title": f"Cup {number}", **definition})
        return await test(app)

    return in_process(folder, run)


def test_boards_come_in_pages_in_the_order_of_their_ids(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        pages = await all_pages(app)
        assert [len(page) for page in pages] == [LIST_LIMIT_DEFAULT, LIST_LIMIT_DEFAULT, 50]
        assert ids_of(pages) == [f"b{number:03}" for number in range(COUNT)]
        assert [len(page) for page in await all_pages(app, "limit=125&")] == [125, 125]
        first = (await app.get("/v1/boards?limit=1")).json()["boards"][0]
        assert first == {"id": "b000", **app.boards.definition("b000")}

    listing(tmp_path, test)


def test_a_search_finds_by_the_start_of_ids_and_titles(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        assert await all_pages(app, "search=B01&") == [[f"b01{digit}" for digit in range(10)]]
        assert await all_pages(app, "search=cup%2024&") == [["b024", *(f"b24{digit}" for digit in range(10))]]
        assert sorted(ids_of(await all_pages(app, "search=CUP&limit=60&"))) == [
            f"b{number:03}" for number in range(COUNT)
        ]
        assert await all_pages(app, "search=nothing&") == [[]]

    listing(tmp_path, test)


def test_large_definitions_make_short_pages(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        reply = await app.get("/v1/boards?limit=1000")
        assert LIST_BYTES_MAX <= len(reply.body) < LIST_BYTES_MAX + 2 * len(LONG)
        assert reply.json()["next"] is not None
        assert ids_of(await all_pages(app, "limit=1000&")) == [f"b{number:03}" for number in range(COUNT)]

    listing(tmp_path, test, description=LONG)


def test_without_boards_the_list_is_empty(tmp_path: Path) -> None:
    async def test(app: InProcess) -> Any:
        return (await app.get("/v1/boards")).json()

    assert in_process(tmp_path, test) == {"boards": [], "next": None}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=ten", "limit"),
        ("cursor=Not%20An%20Id", "cursor"),
        ("cursor=", "cursor"),
        ("cursor=" + "a" * 3_000, "cursor"),
        ("search=" + "a" * 300, "search"),
        ("search=%00", "search"),
        ("page=2", "page"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(query: str, field: str, tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        refused = await app.get(f"/v1/boards?{query}")
        assert (refused.status, refused.json()["errors"][0]["field"]) == (422, field)

    in_process(tmp_path, test)

"""Boards' pages: those of boards that exist are kept, and made-up ids take no place among them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rankd.api.page import board_page
from rankd.config.model import Config, ServerConfig

from .in_process import InProcess, in_process

MADE_UP = 5


@pytest.mark.parametrize(("public", "status"), [(True, 404), (False, 200)])
def test_only_pages_of_boards_that_exist_are_kept(tmp_path: Path, public: bool, status: int) -> None:
    async def test(app: InProcess) -> None:
        app.boards.define("arcade", title="Arcade hall")
        board_page.cache_clear()
        for number in range(MADE_UP):
            assert (await app.get(f"/boards/made-up-{number}", accept="text/html")).status == status
        assert board_page.cache_info().currsize == 0
        for _ in range(2):
            assert (await app.get("/boards/arcade", accept="text/html")).status == 200
        assert board_page.cache_info()[:2] == ((1, 1) if public else (0, 0))

    in_process(tmp_path, test, Config(server=ServerConfig(public_read=public)))


def test_a_page_that_is_not_kept_is_compressed_all_the_same(tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        answer = await app.get("/boards/made-up", accept="text/html", accept_encoding="gzip")
        plain = await app.get("/boards/made-up", accept="text/html")
        assert answer.headers[b"content-encoding"] == b"gzip"
        assert gzip.decompress(answer.body) == plain.body
        assert b"made-up" in plain.body

    in_process(tmp_path, test)

"""What stays the same while the server runs is compressed once, and sent to whoever does not have it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rankd.api.http.static import StaticBody

from .in_process import InProcess, Reply, in_process

PATHS = ("/docs", "/openapi.json", "/", "/boards/arcade", "/rankd-board.js", "/assets/front-page.js")


def answers(folder: Path, path: str, **headers: str) -> Reply:
    async def test(app: InProcess) -> Reply:
        app.boards.define("arcade")
        app.service.description = app.service.docs_page = StaticBody(b"a description of every call " * 1_000)
        return await app.get(path, **headers)

    reply: Reply = in_process(folder, test)
    return reply


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_compressed_for_a_request(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = answers(tmp_path, path)
    assert b"content-encoding" not in plain.headers

    def compress(*_: object) -> None:
        raise AssertionError("it is compressed again")

    monkeypatch.setattr("rankd.api.http.negotiation.zlib.compressobj", compress)
    compressed = answers(tmp_path, path, accept_encoding="gzip")
    assert (compressed.status, compressed.headers[b"content-encoding"]) == (200, b"gzip")
    assert int(compressed.headers[b"content-length"]) == len(compressed.body) < len(plain.body)
    assert gzip.decompress(compressed.body) == plain.body
    assert compressed.headers[b"vary"] == b"accept-encoding"


@pytest.mark.parametrize("path", PATHS)
def test_a_client_that_has_it_already_gets_a_304(path: str, tmp_path: Path) -> None:
    tag = answers(tmp_path, path, accept_encoding="gzip").headers[b"etag"]
    again = answers(tmp_path, path, accept_encoding="gzip", if_none_match=tag.decode())
    assert (again.status, again.body, again.headers[b"etag"]) == (304, b"", tag)
    assert answers(tmp_path, path, if_none_match='"of another version"').status == 200


def test_a_page_of_a_board_that_is_not_there_is_never_said_to_be_known(tmp_path: Path) -> None:
    missing = answers(tmp_path, "/boards/nowhere", accept="text/html")
    assert missing.status == 404
    again = answers(tmp_path, "/boards/nowhere", accept="text/html", if_none_match=missing.headers[b"etag"].decode())
    assert again.status == 404

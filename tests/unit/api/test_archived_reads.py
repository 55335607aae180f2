"""Windows that have left the ranks are read by the same calls, in threads that other reads do not wait for."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.servers.waiting import WAIT_S

import rankd
from rankd.archive.folder_objects import FolderObjects
from rankd.errors import ArchiveUnavailable
from rankd.operations.transfer import export_standings

from .in_process import InProcess, in_process

MAY_4_NOON = 1_777_896_000_000
DAY = "daily:2026-05-04"
WHERE = f"window={DAY.replace(':', '%3A')}"
PLAYERS = [f"p{number:02}" for number in range(30)]
BASE = "/v1/boards/arcade"
READS = [
    f"{BASE}/top?{WHERE}",
    f"{BASE}/top?{WHERE}&limit=7&offset=3&scope=country:BR",
    f"{BASE}/range?from=3&to=9&{WHERE}",
    f"{BASE}/players/p07?{WHERE}&ranking=dense",
    f"{BASE}/players/p07/around?{WHERE}&above=2&below=3",
    f"{BASE}/scores/4?{WHERE}",
    f"{BASE}/distribution?{WHERE}&buckets=5",
]


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, Any]:
    """A day that has left the ranks; what the reads answered before."""
    answers: dict[str, Any] = {}

    async def read(app: InProcess) -> None:
        for target in READS:
            answers[target] = (await app.get(target)).json()

    folder = tmp_path / "data"
    with rankd.open(folder) as boards:
        boards.define("arcade", windows=["daily"], scopes=["country"], ties="value", retention="36500d")
        rows = [
            {
                "player": player,
                "score": index // 3,
                "tiebreak": index,
                "attributes": {"country": "BR" if index % 2 else "PT"},
                "at": MAY_4_NOON,
            }
            for index, player in enumerate(PLAYERS)
        ]
        boards.submit_many("arcade", rows, imported=True)
        boards.set_player("p07", name="Seven")
    in_process(folder, read)
    with rankd.open(folder) as boards:
        boards.define("arcade", windows=["daily"], scopes=["country"], ties="value", retention="0s")
        boards.settle()
        assert boards.figures().entries == 0
    return answers


def same(answer: Any, before: Any) -> None:
    """Compare an answer of the archive with one of the ranks."""
    assert answer["source"] == "archive"
    assert "source" not in before
    moving = ("source", "position", "as_of")
    assert {name: value for name, value in answer.items() if name not in moving} == {
        name: value for name, value in before.items() if name not in moving
    }


def test_every_read_answers_as_before(expected: dict[str, Any], tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        for target, before in expected.items():
            reply = await app.get(target)
            assert reply.status == 200, reply.body
            same(reply.json(), before)
        ranks = await asyncio.to_thread(app.boards.ranks, "arcade", ["p07", "nobody"], window=DAY)
        assert ([entry.name for entry in ranks.entries], ranks.missing, ranks.source) == (
            ["Seven"],
            ["nobody"],
            "archive",
        )
        friends = await asyncio.to_thread(app.boards.friends, "arcade", ["p03", "p29"], window=DAY)
        assert [(friend.player, friend.global_rank) for friend in friends.entries] == [("p29", 1), ("p03", 27)]

    in_process(tmp_path / "data", test)


def test_pages_go_on_from_cursor_to_cursor(expected: dict[str, Any], tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        players, target = [], f"{BASE}/top?{WHERE}&limit=8"
        for _ in range(4):
            page = (await app.get(target)).json()
            players += [entry["player"] for entry in page["entries"]]
            target = f"{BASE}/top?limit=8&cursor={page['next']}"
        assert page["next"] is None
        assert players == PLAYERS[::-1]

    in_process(tmp_path / "data", test)


def test_it_is_final_and_can_be_cached(expected: dict[str, Any], tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        reply = await app.get(READS[0])
        assert b"max-age=3600" in reply.headers[b"cache-control"]
        again = await app.get(READS[0], if_none_match=reply.headers[b"etag"].decode())
        assert again.status == 304
        at_least = await app.get(f"{READS[0]}&at_least={app.boards.position}")
        assert (at_least.status, at_least.json()["source"]) == (200, "archive")

    in_process(tmp_path / "data", test)


def test_what_is_not_there_is_said(expected: dict[str, Any], tmp_path: Path) -> None:
    async def test(app: InProcess) -> None:
        for window, code in ((DAY, "player_absent"), ("daily:2020-01-01", "window_gone")):
            reply = await app.get(f"{BASE}/players/nobody?window={window}")
            assert (reply.status, reply.json()["code"]) == (404, code)
        reply = await app.get(f"{BASE}/top?window={DAY}&scope=country:none")
        assert (reply.status, reply.json()["total"], reply.json()["source"]) == (200, 0, "archive")

    in_process(tmp_path / "data", test)


def test_a_slow_archive_holds_nobody_else_up(
    expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on, get_range = threading.Event(), threading.Event(), FolderObjects.get_range
    loop_thread = threading.get_ident()

    def slow(objects: FolderObjects, path: str, start: int, end: int) -> bytes | None:
        assert threading.get_ident() != loop_thread
        begun.set()
        assert may_go_on.wait(WAIT_S)
        return get_range(objects, path, start, end)

    async def test(app: InProcess) -> None:
        reading = asyncio.create_task(app.get(READS[0]))
        await asyncio.to_thread(begun.wait, WAIT_S)
        assert (await app.get(f"{BASE}/top?window=daily")).status == 200
        may_go_on.set()
        same((await reading).json(), expected[READS[0]])

    monkeypatch.setattr(FolderObjects, "get_range", slow)
    in_process(tmp_path / "data", test)


def test_an_archive_that_is_away_is_said_to_be(
    expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> bytes | None:
        raise ArchiveUnavailable("the archive s3://secret-bucket does not answer", public_message="it does not answer")

    async def test(app: InProcess) -> None:
        reply = await app.get(READS[0])
        assert (reply.status, reply.json()["code"]) == (503, "archive_unavailable")
        assert b"secret-bucket" not in reply.body
        assert b"retry-after" in reply.headers
        assert (await app.get(f"{BASE}/top?window=daily")).status == 200

    monkeypatch.setattr(FolderObjects, "get_range", away)
    in_process(tmp_path / "data", test)


def test_the_library_reads_it_from_an_event_loop_too(expected: dict[str, Any], tmp_path: Path) -> None:
    async def read(boards: rankd.Boards) -> Any:
        return boards.top("arcade", window=DAY)

    with rankd.open(tmp_path / "data") as boards:
        page = asyncio.run(read(boards))
    same(msgspec.json.decode(msgspec.json.encode(page)), expected[READS[0]])


def test_it_is_exported(expected: dict[str, Any], tmp_path: Path) -> None:
    with rankd.open(tmp_path / "data") as boards:
        report = export_standings(boards, "arcade", tmp_path / "day.ndjson", window=DAY)
    lines = (tmp_path / "day.ndjson").read_bytes().splitlines()
    assert (report.players, [msgspec.json.decode(line)["player"] for line in lines]) == (30, PLAYERS[::-1])

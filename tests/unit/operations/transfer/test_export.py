"""Standings into files: in order, complete or absent."""

from __future__ import annotations

import csv
import gzip
import io
import os
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.servers.waiting import join_all

from rankd import Boards, ManualClock, Page
from rankd.errors import BoardUnknown, InvalidValue, LedgerUnavailable, WindowUnknown
from rankd.operations.transfer import export_standings
from rankd.operations.transfer import exporting as module

NOON = 1_777_896_000_000
WEEK_MS = 7 * 86_400_000


@pytest.fixture
def arcade(boards: Boards) -> Boards:
    boards.define("arcade", windows=["weekly"], scopes=["country"], ties="earliest")
    boards.set_player("bob", name='Bob "the, great"', country="PT")
    boards.submit("arcade", "alice", 5, attributes={"country": "BR"}, metadata={"car": "réd", "lap": [1, 2]})
    boards.submit("arcade", "bob", 7)
    boards.submit("arcade", "carol", 5, attributes={"country": "BR"})
    return boards


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "data")


def test_a_csv_has_a_header_and_a_record_for_each_player(arcade: Boards, tmp_path: Path) -> None:
    report = export_standings(arcade, "arcade", tmp_path / "out.csv")

    assert (tmp_path / "out.csv").read_text() == (
        "rank,player,score,reached_at,tiebreak,name,country,metadata\n"
        f'1,bob,7,{NOON},,"Bob ""the, great""",PT,\n'
        f'2,alice,5,{NOON},,,,"{{""car"":""réd"",""lap"":[1,2]}}"\n'
        f"3,carol,5,{NOON},,,,\n"
    )
    assert (report.board, report.window, report.scope, report.players) == ("arcade", "weekly:2026-W19", "global", 3)
    assert report.position == arcade.position


def test_ndjson_has_an_object_for_each_player(arcade: Boards, tmp_path: Path) -> None:
    export_standings(arcade, "arcade", tmp_path / "out.ndjson")
    lines = [msgspec.json.decode(line) for line in (tmp_path / "out.ndjson").read_bytes().splitlines()]

    assert lines == [
        {
            "rank": 1,
            "player": "bob",
            "score": 7,
            "reached_at": NOON,
            "name": 'Bob "the, great"',
            "country": "PT",
        },
        {
            "rank": 2,
            "player": "alice",
            "score": 5,
            "reached_at": NOON,
            "metadata": {"car": "réd", "lap": [1, 2]},
        },
        {"rank": 3, "player": "carol", "score": 5, "reached_at": NOON},
    ]


def test_the_window_and_the_scope_that_were_asked_for_are_exported(
    arcade: Boards, clock: ManualClock, tmp_path: Path
) -> None:
    clock.advance(WEEK_MS)
    report = export_standings(arcade, "arcade", tmp_path / "out.csv", window="weekly:previous", scope="country:BR")
    assert (report.window, report.scope, report.players) == ("weekly:2026-W19", "country:BR", 2)
    assert export_standings(arcade, "arcade", tmp_path / "out.csv").players == 0
    assert (tmp_path / "out.csv").read_text().count("\n") == 1


def test_it_counts_those_who_have_no_exact_place_and_are_left_out(arcade: Boards, tmp_path: Path) -> None:
    """As boards with exact_top in Redis answer: their pages end with the top, and say that others stand behind."""

    class WithTop:
        def top(self, *asked: Any, **more: Any) -> Page:
            return msgspec.structs.replace(arcade.top(*asked, **more), total=1_003, exact=False)

    assert export_standings(WithTop(), "arcade", tmp_path / "out.csv").left_out == 1_000
    assert export_standings(arcade, "arcade", tmp_path / "out.csv").left_out == 0


def test_all_pages_are_exported_though_the_week_ends_meanwhile(
    arcade: Boards, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE_ENTRIES", 7)
    arcade.submit_many("arcade", [(f"p{n:03}", n % 13) for n in range(100)])
    expected = [entry.player for entry in arcade.top("arcade", 1000).entries]
    reports: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        reports.append((done, total))
        clock.set(NOON + WEEK_MS)

    report = export_standings(arcade, "arcade", tmp_path / "out.csv", on_progress=tell)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))

    assert [row["player"] for row in rows] == expected
    assert [int(row["rank"]) for row in rows] == list(range(1, 104))
    assert report.players == 103
    assert reports[0] == (7, 103)
    assert reports[-1] == (103, 103)


def test_a_name_ending_in_gz_is_packed_and_the_same_each_time(arcade: Boards, tmp_path: Path) -> None:
    for name in ("a.csv.gz", "b.csv.gz"):
        export_standings(arcade, "arcade", tmp_path / name)
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).startswith(b"rank,player")
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


def test_standard_output_is_written_as_it_comes(arcade: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    stream = io.TextIOWrapper(out)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        export_standings(arcade, "arcade", "-", format="csv")
    assert out.getvalue().count(b"\n") == 4


class Failing:
    """A source whose second page fails."""

    def __init__(self, boards: Boards) -> None:
        self._boards = boards

    def top(self, board: str, limit: int = 10, *, cursor: str | None = None, **where: Any) -> Page:
        if cursor is not None:
            raise LedgerUnavailable("the disk fails")
        return self._boards.top(board, limit, **where)


def test_an_export_that_fails_leaves_what_was_there(
    arcade: Boards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE_ENTRIES", 1)
    (tmp_path / "old.csv").write_text("old")
    for name in ("old.csv", "new.csv", "new.csv.gz"):
        with pytest.raises(LedgerUnavailable):
            export_standings(Failing(arcade), "arcade", tmp_path / name)

    assert files_in(tmp_path) == ["old.csv"]
    assert (tmp_path / "old.csv").read_text() == "old"


def test_a_file_is_replaced_and_a_link_stays_one(arcade: Boards, tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    export_standings(arcade, "arcade", tmp_path / "link.csv")

    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("rank,")
    assert files_in(tmp_path) == ["link.csv", "real.csv"]


def test_a_pipe_is_written_to_and_not_replaced(arcade: Boards, tmp_path: Path) -> None:
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    read: list[str] = []
    reading = threading.Thread(target=lambda: read.append(path.read_text()))
    reading.start()
    export_standings(arcade, "arcade", path)
    join_all([reading])

    assert read[0].startswith("rank,player")
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_what_cannot_be_exported_is_said_and_leaves_nothing(arcade: Boards, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(BoardUnknown):
        export_standings(arcade, "chess", tmp_path / "out.csv")
    with pytest.raises(WindowUnknown):
        export_standings(arcade, "arcade", tmp_path / "out.csv", window="daily")
    with pytest.raises(InvalidValue, match="format: cannot be detected"):
        export_standings(arcade, "arcade", tmp_path / "out.txt")
    with pytest.raises(InvalidValue, match=r"out: .* is a folder"):
        export_standings(arcade, "arcade", tmp_path / "folder.csv")
    with pytest.raises(InvalidValue, match=r"out: .* cannot be written: No such file"):
        export_standings(arcade, "arcade", tmp_path / "missing" / "out.csv")
    assert files_in(tmp_path) == ["folder.csv"]

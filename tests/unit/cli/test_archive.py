"""`rankd archive`: what is kept of windows that are over, listed, verified, fetched and pruned."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.archived import parquet_files, players_of

import rankd
from rankd import ManualClock

from .conftest import Run, words

Output = Callable[..., str]
MAY_4 = 1_777_896_000_000
DAY_MS = 86_400_000
ARCHIVE = Path("rankd-data/archive")


@pytest.fixture(autouse=True)
def archived(run: Run) -> None:
    """Two days that are over; one has left the ranks."""
    clock = ManualClock(MAY_4)
    with rankd.open("rankd-data", clock=clock) as boards:
        boards.define("arcade", windows=["daily"], retention="1d", archive_keep="365d")
        boards.submit_many("arcade", [("alice", 5), ("bob", 7)])
        clock.advance(DAY_MS)
        boards.submit("arcade", "carol", 9)
        clock.advance(DAY_MS + 3_600_000)
        boards.settle()


def test_a_window_that_has_left_the_ranks_is_shown_with_its_source(done: Output) -> None:
    assert "from the archive" in words(done("top", "arcade", "--window", "daily:2026-05-04", terminal=True))
    assert done("top", "arcade", "--window", "daily:2026-05-04").split("\t")[:3] == ["1", "bob", "7"]
    assert json.loads(done("rank", "arcade", "bob", "--window", "daily:2026-05-04", "--json"))["source"] == "archive"


def test_windows_are_listed(done: Output) -> None:
    listed = json.loads(done("archive", "list", "--json"))

    assert [(each["board"], each["window"], each["rows"]) for each in listed] == [
        ("arcade", "daily:2026-05-04", 2),
        ("arcade", "daily:2026-05-05", 1),
    ]
    assert done("archive", "list").splitlines()[0].split("\t")[:2] == ["arcade", "daily:2026-05-04"]
    assert "daily:2026-05-04" in words(done("archive", "list", terminal=True))
    assert json.loads(done("archive", "list", "--board", "other", "--json")) == []
    assert "Nothing is archived." in done("archive", "list", "--board", "other", terminal=True)


def test_they_are_verified(done: Output) -> None:
    report = json.loads(done("archive", "verify", "--json"))

    assert (report["windows"], report["entries"], report["damaged"]) == (2, 3, {})
    assert "2 windows with 3 entries read as they were archived" in words(done("archive", "verify", terminal=True))


def test_a_damaged_one_is_named_with_an_exit_code_of_its_own(run: Run) -> None:
    path = parquet_files(ARCHIVE)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    result = run("archive", "verify")

    assert result.exit_code == 5
    assert f"{path.relative_to(ARCHIVE)}: the file is missing, or its bytes are not those that were written" in words(
        result.stderr
    )
    assert run("archive", "fetch", "arcade", "daily:2026-05-04", "--output", "day.parquet").exit_code == 5
    assert not Path("day.parquet").exists()


def test_a_file_is_fetched(done: Output) -> None:
    fetched = json.loads(done("archive", "fetch", "arcade", "daily:2026-05-04", "--output", "day.parquet", "--json"))

    assert (fetched["file"], fetched["rows"]) == ("day.parquet", 2)
    assert players_of(Path("day.parquet")) == ["bob", "alice"]
    assert [path.name for path in Path().iterdir() if "draft" in path.name] == []


def test_a_window_that_is_not_archived_is_refused(run: Run) -> None:
    result = run("archive", "fetch", "arcade", "daily:2020-01-01", "--output", "day.parquet")

    assert result.exit_code == 1
    assert "daily:2020-01-01 of board arcade is not archived" in words(result.stderr)


def test_a_folder_that_cannot_be_written_is_named(run: Run) -> None:
    result = run("archive", "fetch", "arcade", "daily:2026-05-04", "--output", "nowhere/day.parquet")

    assert result.exit_code == 3
    assert "nowhere/day.parquet cannot be written" in words(result.stderr)


def test_they_are_pruned_when_asked(done: Output, run: Run) -> None:
    assert done("archive", "prune", "--older-than", "36500d") == "0\t0\t0\n"
    pruned = json.loads(done("archive", "prune", "--older-than", "0s", "--json"))

    assert (pruned["windows"], pruned["objects"]) == (2, 4)
    assert json.loads(done("archive", "list", "--json")) == []
    assert run("archive", "prune", "--older-than", "soon").exit_code == 1

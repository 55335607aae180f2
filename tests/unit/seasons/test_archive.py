"""Final standings in files: complete or absent, whole again when read, and checked."""

from __future__ import annotations

import gzip
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.waiting import WAIT_S, join_all

from rankd import Boards, ManualClock
from rankd.domain.digest import digest
from rankd.domain.instance import InstanceKey
from rankd.errors import SnapshotDamaged
from rankd.node.open_embedded import embedded_of
from rankd.projection.port import RankStore
from rankd.seasons import archive as module
from rankd.seasons.archive import Archive, read_archive

if TYPE_CHECKING:
    from tests.unit.conftest import OpenBoards

DAY_MS = 86_400_000
DAY = "daily:2026-05-04"


@pytest.fixture
def over(boards: Boards, clock: ManualClock) -> Boards:
    """A day that is over, with two scopes and ties by value."""
    boards.define("arcade", windows=["daily"], scopes=["country"], ties="value", retention="2d")
    for number in range(25):
        country = {"country": "BR" if number % 2 else "PT"}
        boards.submit("arcade", f"p{number:02}", number // 3, tiebreak=number, attributes=country)
    clock.advance(2 * DAY_MS)
    return boards


def keep(boards: Boards, folder: Path) -> Path:
    boards.settle()
    live = boards._state.boards["arcade"]
    return Archive(folder).keep(embedded_of(boards).rank_store, boards.board("arcade"), live, DAY)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_what_was_written_is_read_back_in_standing_order(over: Boards, tmp_path: Path) -> None:
    head, entries = read_archive(keep(over, tmp_path / "kept"))
    listed = list(entries)

    assert (head.board, head.window, head.definition) == ("arcade", DAY, over.definition("arcade"))
    assert Counter(entry.scope for entry in listed) == {"country:BR": 12, "country:PT": 13, "global": 25}
    for scope in ("country:BR", "country:PT", "global"):
        page = over.top("arcade", 100, window=DAY, scope=scope)
        archived = [entry for entry in listed if entry.scope == scope]
        assert [(entry.rank, entry.player, entry.score, entry.tiebreak, entry.reached_at) for entry in archived] == [
            (entry.rank, entry.player, entry.score, entry.tiebreak, entry.reached_at) for entry in page.entries
        ]
    assert (head.instances, head.entries, len(listed)) == (3, 50, 50)
    assert head.digest == f"{embedded_of(over).rank_store.window_sum('arcade', DAY).digest:032x}"


def test_the_digest_can_be_worked_out_from_the_file(over: Boards, tmp_path: Path) -> None:
    head, entries = read_archive(keep(over, tmp_path / "kept"))
    assert f"{digest((entry.player, entry.score, entry.tiebreak or 0) for entry in entries):032x}" == head.digest


def test_an_archive_is_written_in_parts_of_whole_lines(
    over: Boards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LINES", 3)
    _, entries = read_archive(keep(over, tmp_path / "kept"))
    assert len(list(entries)) == 50


def test_an_error_while_writing_leaves_nothing(over: Boards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(store: RankStore, key: InstanceKey, _chunk: int) -> Iterator[object]:
        yield from store.range(key, 1, 2).entries
        raise OSError("the disk is full")

    over.settle()
    folder = tmp_path / "kept"
    with monkeypatch.context() as patched:
        patched.setattr(module, "walk", fail)
        with pytest.raises(OSError, match="full"):
            keep(over, folder)
    assert files_in(folder) == []

    keep(over, folder)
    assert len(files_in(folder)) == 1


def test_an_archive_that_is_there_is_left_as_it_is(over: Boards, tmp_path: Path) -> None:
    path = keep(over, tmp_path / "kept")
    before = (path.stat().st_ino, path.read_bytes())
    assert keep(over, tmp_path / "kept") == path
    assert (path.stat().st_ino, path.read_bytes()) == before


def test_a_player_removed_afterwards_is_taken_out_of_the_file(over: Boards, tmp_path: Path) -> None:
    keep(over, tmp_path / "kept")
    over.remove("arcade", "p07")
    _, entries = read_archive(keep(over, tmp_path / "kept"))
    assert "p07" not in {entry.player for entry in entries}


@pytest.mark.parametrize("kept_share", [0.0, 0.1, 0.5, 0.99])
def test_a_file_cut_off_is_found(over: Boards, tmp_path: Path, kept_share: float) -> None:
    path = keep(over, tmp_path / "kept")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept_share)])
    with pytest.raises(SnapshotDamaged, match="damaged"):
        list(read_archive(path)[1])


def test_a_file_with_a_flipped_bit_is_found(over: Boards, tmp_path: Path) -> None:
    path = keep(over, tmp_path / "kept")
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    with pytest.raises(SnapshotDamaged):
        list(read_archive(path)[1])


def test_a_file_that_is_something_else_is_found(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl.gz"
    for content in (b"", b"plain", gzip.compress(b""), gzip.compress(b"[]\n"), gzip.compress(b"\xff\n")):
        path.write_bytes(content)
        with pytest.raises(SnapshotDamaged):
            list(read_archive(path)[1])


def test_an_archive_damaged_on_disk_is_written_again(open_boards: OpenBoards, over: Boards, tmp_path: Path) -> None:
    over.settle()
    (path,) = (tmp_path / "data" / "archive").rglob("*.gz")
    over.close()
    path.write_bytes(b"torn")
    boards = open_boards()
    boards.settle()
    assert len(list(read_archive(path)[1])) == 50


def test_two_who_archive_at_once_do_not_disturb_each_other(over: Boards, clock: ManualClock, tmp_path: Path) -> None:
    """The upkeep may be at it when somebody calls settle."""
    over.submit_many("arcade", [(f"q{number}", number) for number in range(3_000)])
    clock.advance(DAY_MS + 600_000)
    start, problems = threading.Barrier(4), []

    def settle() -> None:
        start.wait(WAIT_S)
        try:
            over.settle()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=settle) for _ in range(4)]
    for thread in threads:
        thread.start()
    join_all(threads)

    assert problems == []
    paths = sorted((tmp_path / "data" / "archive").rglob("*"))
    assert [path.suffix for path in paths if path.is_file()] == [".gz", ".gz"]
    for path in paths:
        if path.is_file():
            head, entries = read_archive(path)
            assert len(list(entries)) == head.entries

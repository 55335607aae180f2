"""Final standings are archived by a thread of their own, and again when a disk did not take them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.archived import manifests, parquet_files, players_of
from tests.batches import batch_of_rows
from tests.servers.waiting import wait_until

from rankd.archive import standings_file
from rankd.archive.folder_objects import FolderObjects
from rankd.archive.standings_file import FinalWindow
from rankd.archive.windows import WindowArchive
from rankd.domain.definition import define_board
from rankd.domain.instance import InstanceKey
from rankd.projection.engine import EngineStore
from rankd.projection.state import BoardState
from rankd.seasons.archiving import ArchiveStep

WEEK = "weekly:2026-W18"
BOARD = define_board("arcade", {"windows": ["weekly"], "retention": "2d"})
LIVE = BoardState(version=1, born=1, defined_at=0, windows={WEEK}, closed={WEEK})


def wanted() -> bool:
    return True


@pytest.fixture
def window() -> FinalWindow:
    store = EngineStore()
    key = InstanceKey("arcade", WEEK)
    store.apply(batch_of_rows((key, BOARD.rules_for(BOARD.first_window)), [("ann", 5), ("bob", 3)], upto=2))
    return FinalWindow(store, BOARD, LIVE, WEEK)


@pytest.fixture
def archiving(tmp_path: Path) -> Iterator[ArchiveStep]:
    archive = WindowArchive(FolderObjects(tmp_path / "archive"), tmp_path / "scratch")
    archiving = ArchiveStep(archive, lambda: "0-2", again_s=0.01)
    yield archiving
    archiving.close()


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_window_is_archived_a_moment_after_it_was_asked_for(
    archiving: ArchiveStep, window: FinalWindow, tmp_path: Path
) -> None:
    assert not archiving.has(window, wanted)
    wait_until(lambda: archiving.waiting == 0)

    assert archiving.has(window, wanted)
    (path,) = parquet_files(tmp_path / "archive")
    assert players_of(path) == ["ann", "bob"]
    assert archiving.finished == 1


def test_another_process_finds_it_archived(archiving: ArchiveStep, window: FinalWindow, tmp_path: Path) -> None:
    archiving.has(window, wanted)
    wait_until(lambda: archiving.waiting == 0)
    before = {path: path.stat().st_mtime_ns for path in files_in(tmp_path / "archive")}

    other = ArchiveStep(WindowArchive(FolderObjects(tmp_path / "archive"), tmp_path / "other"), lambda: "0-2")
    other.has(window, wanted)
    wait_until(lambda: other.waiting == 0)
    other.close()
    assert {path: path.stat().st_mtime_ns for path in files_in(tmp_path / "archive")} == before


def test_a_window_that_left_is_forgotten(archiving: ArchiveStep, window: FinalWindow) -> None:
    archiving.has(window, wanted)
    wait_until(lambda: archiving.waiting == 0)
    archiving.forget("arcade", {WEEK}.__contains__)
    assert archiving.has(window, wanted)

    archiving.forget("arcade", set().__contains__)
    assert not archiving.has(window, wanted)


def test_a_disk_that_fails_is_tried_again_and_complained_of(
    archiving: ArchiveStep,
    window: FinalWindow,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        archiving.has(window, wanted)
        wait_until(lambda: archiving.failed >= 3)
        assert not archiving.has(window, wanted)
    wait_until(lambda: archiving.waiting == 0)

    assert archiving.has(window, wanted)
    logged = [record.message for record in caplog.records]
    assert len(logged) == 1
    assert "stay in the ranks until they are archived" in logged[0]
    assert "No space left" in logged[0]


def test_a_board_that_is_deleted_meanwhile_leaves_no_file(
    archiving: ArchiveStep, window: FinalWindow, tmp_path: Path
) -> None:
    archiving.has(window, lambda: False)
    wait_until(lambda: archiving.waiting == 0)

    assert files_in(tmp_path) == []
    assert archiving.finished == 0


def test_somebody_removed_while_it_is_written_is_not_in_the_file(
    archiving: ArchiveStep, window: FinalWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, parts_of = 0, standings_file._parts

    def parts(*arguments: Any) -> Iterator[Any]:
        nonlocal times
        times += 1
        parts = list(parts_of(*arguments))
        if times == 1:
            window.store.drop(InstanceKey("arcade", WEEK))
        return iter(parts)

    monkeypatch.setattr(standings_file, "_parts", parts)
    archiving.has(window, wanted)
    wait_until(lambda: archiving.waiting == 0)

    assert times == 1  # nobody is left to go through
    assert archiving.failed == 0
    (path,) = parquet_files(tmp_path / "archive")
    assert players_of(path) == []
    (manifest,) = manifests(tmp_path / "archive")
    assert (manifest["entries"], manifest["file"]["rows"]) == (0, 0)


def test_it_ends_in_the_middle_of_a_file(
    archiving: ArchiveStep, window: FinalWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def stuck(*_: Any) -> Iterator[Any]:
        begun.set()
        go_on.wait(60)
        return iter(())

    monkeypatch.setattr(standings_file, "_parts", stuck)
    archiving.has(window, wanted)
    assert begun.wait(60)
    closing = threading.Thread(target=archiving.close)
    closing.start()
    wait_until(lambda: archiving._is_stopped)
    go_on.set()
    closing.join(60)

    assert not closing.is_alive()
    assert files_in(tmp_path) == []

"""The cache of pieces: bounded, checked, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.archive.failing_objects import FailingObjects, Killed

from rankd.archive.folder_objects import FolderObjects
from rankd.archive.piece_cache import PieceCache

PATH = "standings/a.parquet"
CONTENT = bytes(range(256)) * 16


@pytest.fixture
def objects(tmp_path: Path) -> FolderObjects:
    objects = FolderObjects(tmp_path / "archive")
    objects.put_new(PATH, CONTENT)
    return objects


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_a_piece_is_fetched_once_also_after_a_restart(objects: FolderObjects, tmp_path: Path) -> None:
    assert PieceCache(objects, tmp_path / "pieces", 10_000).get_range(PATH, 10, 20) == CONTENT[10:20]
    away = FailingObjects(objects, at=0)

    cache = PieceCache(away, tmp_path / "pieces", 10_000)
    assert cache.get_range(PATH, 10, 20) == CONTENT[10:20]
    with pytest.raises(Killed):
        cache.get_range(PATH, 10, 21)


def test_it_stays_below_its_limit_and_keeps_what_was_used_last(objects: FolderObjects, tmp_path: Path) -> None:
    cache = PieceCache(objects, tmp_path / "pieces", 1_000)
    for start in range(0, 4_000, 200):
        cache.get_range(PATH, 0, 200)
        assert cache.get_range(PATH, start, start + 200) == CONTENT[start : start + 200]
        assert bytes_in(tmp_path / "pieces") <= 1_000

    again = PieceCache(FailingObjects(objects, at=0), tmp_path / "pieces", 1_000)
    assert again.get_range(PATH, 0, 200) == CONTENT[:200]


def test_a_piece_larger_than_the_limit_is_not_kept(objects: FolderObjects, tmp_path: Path) -> None:
    assert PieceCache(objects, tmp_path / "pieces", 100).get_range(PATH, 0, 200) == CONTENT[:200]
    assert not (tmp_path / "pieces").exists()


def test_a_damaged_piece_is_fetched_again(objects: FolderObjects, tmp_path: Path) -> None:
    cache = PieceCache(objects, tmp_path / "pieces", 10_000)
    cache.get_range(PATH, 0, 200)
    (piece,) = (tmp_path / "pieces").iterdir()
    piece.write_bytes(piece.read_bytes()[:-1] + b"\0")
    assert cache.get_range(PATH, 0, 200) == CONTENT[:200]


def test_a_disk_that_takes_nothing_costs_requests_only(
    objects: FolderObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    monkeypatch.setattr(Path, "replace", fail)
    assert PieceCache(objects, tmp_path / "pieces", 10_000).get_range(PATH, 0, 200) == CONTENT[:200]
    assert list((tmp_path / "pieces").iterdir()) == []


def test_a_missing_object_is_missing(objects: FolderObjects, tmp_path: Path) -> None:
    cache = PieceCache(objects, tmp_path / "pieces", 10_000)
    assert cache.get_range("standings/b.parquet", 0, 200) is None
    assert cache.get_range(PATH, 4_000, 5_000) == CONTENT[4_000:]  # short, and not kept
    assert not (tmp_path / "pieces").exists()

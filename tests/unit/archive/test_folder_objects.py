"""An archive in a folder: what a crash leaves, and disks that refuse."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rankd.archive.folder_objects import DRAFT_S_MAX, DRAFTS, FolderObjects
from rankd.errors import ArchiveRefused, ArchiveUnavailable

PATH = "standings/manifest-1.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def drafts_in(folder: Path) -> list[str]:
    return [path.name for path in (folder / DRAFTS).iterdir()]


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_disk_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    objects = FolderObjects(folder)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    objects.put_new("before", b"")
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(ArchiveUnavailable, match="No space left on device; make room") as refusal:
            objects.put_new(PATH, b"final")

    assert str(folder) not in refusal.value.public_message
    assert objects.get(PATH) is None
    assert drafts_in(folder) == []


def test_an_old_draft_is_removed_and_a_new_one_left(folder: Path) -> None:
    (folder / DRAFTS).mkdir(parents=True)
    old, new = folder / DRAFTS / "old", folder / DRAFTS / "new"
    for draft in (old, new):
        draft.touch()
    os.utime(old, (0, old.stat().st_mtime - DRAFT_S_MAX - 1))
    FolderObjects(folder).put_new(PATH, b"final")

    assert drafts_in(folder) == ["new"]
    assert [each.path for each in FolderObjects(folder).list("")] == [PATH]


def test_a_file_system_without_hard_links_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(ArchiveRefused, match="no hard links"):
        FolderObjects(folder).put_new(PATH, b"final")


def test_a_folder_that_is_a_file_is_refused(folder: Path) -> None:
    folder.touch()
    for call in (lambda: FolderObjects(folder).put_new(PATH, b""), lambda: FolderObjects(folder).get(PATH)):
        with pytest.raises(
            ArchiveRefused, match=r"(Not a directory|File exists); the user that runs rankd has to own it"
        ):
            call()

"""The promises of the archive's object store, kept by a folder and by a bucket of a real S3 server."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.waiting import WAIT_S, join_all

from rankd.archive.folder_objects import FolderObjects
from rankd.archive.objects import ObjectStore
from rankd.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = "standings/arcade.v1/weekly_2026-W18/manifest-1.json"
LARGE = 12 * 1024 * 1024  # several parts of an upload


@pytest.fixture(params=["folder", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store."""
    if request.param == "folder":
        return FolderObjects(tmp_path / "archive")
    bucket: ObjectStore = request.getfixturevalue("bucket")
    return bucket


def listed(objects: ObjectStore, prefix: str = "") -> dict[str, int]:
    return {each.path: each.size for each in objects.list(prefix)}


def test_what_was_put_is_there(objects: ObjectStore) -> None:
    assert objects.put_new(PATH, b"final")

    assert objects.get(PATH) == b"final"
    assert listed(objects) == {PATH: 5}


def test_what_was_never_put_is_absent(objects: ObjectStore) -> None:
    assert objects.get(PATH) is None
    assert objects.get_range(PATH, 0, 10) is None
    assert listed(objects) == listed(objects, "standings") == {}
    objects.delete(PATH)

    objects.put_new(PATH, b"final")
    assert objects.get("standings/arcade.v1") is None  # a folder is no object


def test_an_object_is_never_replaced(objects: ObjectStore) -> None:
    objects.put_new(PATH, b"final")

    assert not objects.put_new(PATH, b"other")
    assert objects.get(PATH) == b"final"


def test_after_a_deletion_a_path_is_new(objects: ObjectStore) -> None:
    objects.put_new(PATH, b"final")
    objects.delete(PATH)

    assert objects.get(PATH) is None
    assert listed(objects) == {}
    assert objects.put_new(PATH, b"again")


def test_an_empty_object_is_not_an_absent_one(objects: ObjectStore) -> None:
    objects.put_new("empty", b"")

    assert objects.get("empty") == b""
    assert listed(objects) == {"empty": 0}


@pytest.mark.parametrize(("start", "end"), [(0, 1), (2, 5), (4, 5), (3, 100)])
def test_a_range_is_cut_at_the_end_of_the_object(objects: ObjectStore, start: int, end: int) -> None:
    objects.put_new(PATH, b"final")
    assert objects.get_range(PATH, start, end) == b"final"[start:end]


@pytest.mark.parametrize("size", [0, 1, LARGE], ids=["empty", "small", "in parts"])
def test_a_file_is_stored_as_it_is(objects: ObjectStore, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    file = tmp_path / "file"
    file.write_bytes(content)
    for _ in range(2):  # the same again changes nothing
        objects.put_file("standings/a.parquet", file)

    assert objects.get("standings/a.parquet") == content
    assert listed(objects) == {"standings/a.parquet": size}


def test_a_folder_is_listed_without_those_beside_it(objects: ObjectStore) -> None:
    paths = ["a/1", "a/b/2", "a-b/3", "ab/4", "a.parquet"]
    for path in paths:
        objects.put_new(path, b"x")

    assert set(listed(objects)) == set(paths)
    assert set(listed(objects, "a")) == {"a/1", "a/b/2"}


def test_more_objects_than_one_answer_holds_are_listed(objects: ObjectStore) -> None:
    count = 1_050 if not objects.is_local else 50
    for number in range(count):
        objects.put_new(f"many/{number:05}", b"")
    assert len(listed(objects, "many")) == count


def test_a_listing_says_when(objects: ObjectStore) -> None:
    objects.put_new("earlier", b"")
    objects.put_new("later", b"")
    times = {each.path: each.modified_at for each in objects.list("")}

    assert 1_600_000_000_000 < times["earlier"] <= times["later"] + 1_000


def test_of_many_who_put_at_once_one_succeeds(objects: ObjectStore) -> None:
    start, stored = threading.Barrier(8), []

    def put(number: int) -> None:
        content = str(number).encode() * 10_000
        start.wait(WAIT_S)
        if objects.put_new(PATH, content):
            stored.append(content)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    join_all(threads)

    assert len(stored) == 1
    assert objects.get(PATH) == stored[0]


@pytest.mark.parametrize(
    "path",
    ["", "/", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", ".drafts/a", "a/.b", "-a", "a b", "ä", "a\0", "a" * 513],
)
def test_a_path_that_could_leave_the_archive_is_refused(objects: ObjectStore, path: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: objects.put_new(path, b""),
        lambda: objects.get(path),
        lambda: objects.get_range(path, 0, 1),
        lambda: objects.delete(path),
        *([lambda: list(objects.list(path))] if path else []),
    ]
    for call in calls:
        with pytest.raises(InvalidValue, match="path: must be at most 512 characters"):
            call()


@pytest.mark.parametrize(("start", "end"), [(1, 1), (2, 1), (-1, 1)])
def test_an_empty_range_is_refused(objects: ObjectStore, start: int, end: int) -> None:
    with pytest.raises(InvalidValue, match="end: must be above start"):
        objects.get_range(PATH, start, end)


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_files_of_a_folder_are_their_owner_s(tmp_path: Path, no_umask: None) -> None:
    FolderObjects(tmp_path / "archive").put_new(PATH, b"final")

    paths = [tmp_path / "archive", *(tmp_path / "archive").rglob("*")]
    assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_dir()} == {"0o700"}
    assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_file()} == {"0o600"}

"""The archive of a window: whole or absent whoever is killed where, the same for all, exact when it is read."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.batches import batch_of_rows
from tests.servers.waiting import WAIT_S, join_all
from tests.unit.archive.failing_objects import FailingObjects, Killed

from rankd.archive import standings_file
from rankd.archive.folder_objects import FolderObjects
from rankd.archive.manifest import Manifest, folder_of, manifest_path, read_window
from rankd.archive.objects import ObjectStore
from rankd.archive.standings_file import FinalWindow
from rankd.archive.windows import UNNAMED_MS, WindowArchive
from rankd.domain.definition import define_board
from rankd.domain.instance import InstanceKey
from rankd.errors import ArchiveDamaged, ArchiveUnavailable
from rankd.projection.engine import EngineStore
from rankd.projection.port import Op
from rankd.projection.state import BoardState

DAY = "daily:2026-05-04"
CLOSED_AT = 1_777_939_500_000  # 2026-05-05T00:05Z
FOLDER = folder_of("arcade", 1, DAY)
GLOBAL, BR = InstanceKey("arcade", DAY), InstanceKey("arcade", DAY, "country:BR")


def window_of(players: int = 100, **options: object) -> FinalWindow:
    board = define_board("arcade", {"windows": ["daily"], "scopes": ["country"], **options})
    rules, rng = board.rules_for(board.first_window), random.Random(7)
    rows = [(f"p{number:04}", rng.randrange(50), rng.randrange(100)) for number in range(players)]
    store = EngineStore()
    store.apply(batch_of_rows((GLOBAL, rules), rows, upto=1))
    store.apply(batch_of_rows((BR, rules), rows[::3], after=1, upto=2))
    return FinalWindow(store, board, BoardState(version=1, born=1, defined_at=0), DAY)


def remove(window: FinalWindow, player: str) -> None:
    at = window.store.position(0).sequence
    for key in (GLOBAL, BR):
        rules = window.board.rules_for(window.board.first_window)
        removal = batch_of_rows((key, rules), [(player, 0)], after=at, upto=at + 1)
        removal.op = bytes([Op.REMOVE])
        window.store.apply(removal)
        at += 1


def position_of(window: FinalWindow) -> Callable[[], str]:
    return lambda: f"0-{window.store.position(0).sequence}"


def archived_in(objects: ObjectStore, tmp_path: Path) -> WindowArchive:
    return WindowArchive(objects, tmp_path / "scratch")


def keep(objects: ObjectStore, tmp_path: Path, window: FinalWindow) -> None:
    archived_in(objects, tmp_path).keep(window, position_of(window))


def players_in(archive: WindowArchive) -> list[str] | None:
    standings = archive.find("arcade", 1, DAY)
    return None if standings is None else [entry.player for entry in standings.range(GLOBAL, 1, 10_000).entries]


def paths_in(objects: ObjectStore) -> list[str]:
    return sorted(each.path for each in objects.list(""))


@pytest.fixture(params=["folder", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return FolderObjects(tmp_path / "archive")
    bucket: ObjectStore = request.getfixturevalue("bucket")
    return bucket


@pytest.fixture
def folder(tmp_path: Path) -> FolderObjects:
    return FolderObjects(tmp_path / "archive")


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standings_file, "ROWS_PER_GROUP", 16)


def test_what_was_archived_is_read_as_it_was_ranked(objects: ObjectStore, tmp_path: Path, small_groups: None) -> None:
    window = window_of()
    keep(objects, tmp_path, window)
    standings = archived_in(objects, tmp_path).find("arcade", 1, DAY)

    assert standings is not None
    for key in (GLOBAL, BR):
        assert standings.range(key, 1, 200) == window.store.range(key, 1, 200)
        assert standings.digest(key) == window.store.digest(key)
    assert standings.total(InstanceKey("arcade", DAY, "country:PT")) == 0
    manifest = standings.manifest
    assert (manifest.board, manifest.window, manifest.position, manifest.closed_at) == ("arcade", DAY, "0-2", CLOSED_AT)
    assert len(paths_in(objects)) == 2


def test_archiving_twice_writes_once(objects: ObjectStore, tmp_path: Path) -> None:
    window = window_of()
    keep(objects, tmp_path, window)
    before = {each.path: each for each in objects.list("")}
    keep(objects, tmp_path, window)

    assert {each.path: each for each in objects.list("")} == before


def test_a_player_removed_afterwards_is_nowhere_in_the_archive(objects: ObjectStore, tmp_path: Path) -> None:
    window = window_of()
    keep(objects, tmp_path, window)
    before = paths_in(objects)
    remove(window, "p0003")
    keep(objects, tmp_path, window)

    after = paths_in(objects)
    assert set(before).isdisjoint(after)
    assert [path.rpartition("/")[2] for path in after if path.endswith(".json")] == ["manifest-2.json"]
    players = players_in(archived_in(objects, tmp_path))
    assert players is not None
    assert "p0003" not in players
    assert len(players) == 99


@pytest.mark.parametrize("is_rewritten", [False, True], ids=["first", "again without a player"])
def test_killed_at_any_step_the_archive_has_a_whole_window_or_none(
    tmp_path: Path, is_rewritten: bool, small_groups: None
) -> None:
    def run(at: int) -> FailingObjects:
        objects = FolderObjects(tmp_path / f"archive-{at}")
        window = window_of(40)
        expected = [None, [entry.player for entry in window.store.range(GLOBAL, 1, 100).entries]]
        if is_rewritten:
            keep(objects, tmp_path, window)
            remove(window, "p0003")
            expected = [expected[1], [entry.player for entry in window.store.range(GLOBAL, 1, 100).entries]]
        failing = FailingObjects(objects, at)
        try:
            keep(failing, tmp_path, window)
        except Killed:
            assert players_in(archived_in(objects, tmp_path)) in expected
            keep(objects, tmp_path, window)  # its successor
        assert players_in(archived_in(objects, tmp_path)) == expected[1]
        assert len(paths_in(objects)) == 2
        return failing

    steps = run(-1).steps
    assert steps > 10
    for at in range(steps):
        run(at)


def test_a_store_that_fails_at_any_step_is_tried_again(tmp_path: Path) -> None:
    window = window_of(40)
    for at in range(20):
        objects = FolderObjects(tmp_path / f"archive-{at}")
        failing = FailingObjects(objects, at, ArchiveUnavailable("S3 answers 503"))
        try:
            keep(failing, tmp_path, window)
        except ArchiveUnavailable:
            keep(failing, tmp_path, window) if failing.steps != at else keep(objects, tmp_path, window)
        assert len(players_in(archived_in(objects, tmp_path)) or []) == 40


def test_of_many_who_archive_at_once_one_manifest_is_left(objects: ObjectStore, tmp_path: Path) -> None:
    start, problems = threading.Barrier(6), []
    windows = [window_of() for _ in range(6)]

    def run(window: FinalWindow) -> None:
        start.wait(WAIT_S)
        try:
            keep(objects, tmp_path, window)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(window,)) for window in windows]
    for thread in threads:
        thread.start()
    join_all(threads)

    assert problems == []
    assert len(paths_in(objects)) == 2
    assert len(players_in(archived_in(objects, tmp_path)) or []) == 100


def test_ranks_that_are_behind_do_not_bring_a_removed_player_back(folder: FolderObjects, tmp_path: Path) -> None:
    behind, ahead = window_of(), window_of()
    remove(ahead, "p0003")
    keep(folder, tmp_path, ahead)

    with pytest.raises(ArchiveUnavailable, match="written from newer ranks than these"):
        keep(folder, tmp_path, behind)
    assert "p0003" not in (players_in(archived_in(folder, tmp_path)) or [])


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"{}", b"\xff", b'{"format": 2}', b"null"],
    ids=["empty", "torn", "a list", "an object", "bytes", "newer", "null"],
)
def test_a_manifest_that_is_none_does_not_count(folder: FolderObjects, tmp_path: Path, data: bytes) -> None:
    window = window_of()
    keep(folder, tmp_path, window)
    folder.put_new(manifest_path(FOLDER, 9), data)
    assert len(players_in(archived_in(folder, tmp_path)) or []) == 100

    remove(window, "p0003")
    keep(folder, tmp_path, window)
    newest = read_window(folder, FOLDER).newest
    assert newest is not None
    assert newest.number == 10


def test_a_manifest_without_its_file_does_not_count_and_is_written_again(folder: FolderObjects, tmp_path: Path) -> None:
    window = window_of()
    keep(folder, tmp_path, window)
    (file,) = [path for path in paths_in(folder) if path.endswith(".parquet")]
    folder.delete(file)

    assert players_in(archived_in(folder, tmp_path)) is None
    keep(folder, tmp_path, window)
    assert len(players_in(archived_in(folder, tmp_path)) or []) == 100


class DamagingObjects(FolderObjects):
    """Stores other bytes than it is given, the first time."""

    is_damaged = False

    def put_file(self, path: str, file: Path) -> None:
        if not self.is_damaged:
            self.is_damaged = True
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file = file.with_suffix(".damaged")
            file.write_bytes(data)
        super().put_file(path, file)


def test_bytes_damaged_on_their_way_are_noticed_before_anything_counts(tmp_path: Path) -> None:
    objects, window = DamagingObjects(tmp_path / "archive"), window_of()
    with pytest.raises(ArchiveUnavailable, match="does not read as it was written"):
        keep(objects, tmp_path, window)
    assert players_in(archived_in(objects, tmp_path)) is None

    keep(objects, tmp_path, window)
    assert len(players_in(archived_in(objects, tmp_path)) or []) == 100


def test_standings_that_differ_from_their_digest_are_not_archived(
    folder: FolderObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts_of = standings_file._parts

    def parts(*arguments: Any) -> Any:
        for part in parts_of(*arguments):
            part["score"][0] += 1
            yield part

    monkeypatch.setattr(standings_file, "_parts", parts)
    with pytest.raises(ArchiveDamaged, match="not in its file as it is ranked"):
        keep(folder, tmp_path, window_of())
    assert paths_in(folder) == []


def damaged(folder: FolderObjects, tmp_path: Path, at: float) -> WindowArchive:
    """Archive a window, and flip a bit of its file."""
    keep(folder, tmp_path, window_of())
    (path,) = [path for path in paths_in(folder) if path.endswith(".parquet")]
    data = bytearray(folder.file(path).read_bytes())
    data[int(at * (len(data) - 1))] ^= 4
    folder.file(path).write_bytes(data)
    return archived_in(folder, tmp_path)


@pytest.mark.parametrize("at", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
def test_a_flipped_bit_is_found_by_verifying(folder: FolderObjects, tmp_path: Path, at: float) -> None:
    archive = damaged(folder, tmp_path, at)
    (listed,) = archive.manifests()

    assert "not those that were written" in (archive.check(listed.manifest) or "")


@pytest.mark.parametrize("at", [0.05, 0.2, 0.4, 0.6, 0.8, 0.95])
def test_a_flipped_bit_never_shows_another_standing(folder: FolderObjects, tmp_path: Path, at: float) -> None:
    expected = window_of().store.range(GLOBAL, 1, 100)
    archive = damaged(folder, tmp_path, at)
    try:
        standings = archive.find("arcade", 1, DAY)
        assert standings is not None
        assert standings.range(GLOBAL, 1, 100) == expected
    except ArchiveDamaged:
        pass


def test_a_whole_window_passes_its_check(folder: FolderObjects, tmp_path: Path) -> None:
    keep(folder, tmp_path, window_of())
    archive = archived_in(folder, tmp_path)

    assert [archive.check(listed.manifest) for listed in archive.manifests()] == [None]
    assert list(archive.manifests("other")) == []


# Only the first of each scope


def test_of_a_board_that_archives_its_first_the_rest_is_counted_only(folder: FolderObjects, tmp_path: Path) -> None:
    window = window_of(archive_top=10)
    keep(folder, tmp_path, window)
    standings = archived_in(folder, tmp_path).find("arcade", 1, DAY)
    assert standings is not None

    page = standings.range(GLOBAL, 1, 10)
    assert (page.entries, page.total, page.is_cut) == (window.store.range(GLOBAL, 1, 10).entries, 100, False)
    page = standings.range(GLOBAL, 6, 20)
    assert (page.entries, page.total, page.is_cut) == (window.store.range(GLOBAL, 6, 10).entries, 100, True)
    assert standings.range(GLOBAL, 11, 20).entries == []
    last, beyond = (window.store.range(GLOBAL, place, place).entries[0] for place in (10, 11))
    assert standings.rank(GLOBAL, last.player) == window.store.rank(GLOBAL, last.player)
    assert standings.rank(GLOBAL, beyond.player) is None
    assert standings.is_cut(GLOBAL)
    assert standings.rank_of_score(GLOBAL, -1, 0).bounds == (11, 101)
    assert standings.rank_of_score(GLOBAL, 99, 0) == window.store.rank_of_score(GLOBAL, 99, 0)


# Pruning


def until(closed_for_ms: int) -> Callable[[Manifest], int | None]:
    return lambda manifest: None if manifest.closed_at is None else manifest.closed_at + closed_for_ms


def test_a_window_leaves_the_archive_when_it_is_kept_no_longer(objects: ObjectStore, tmp_path: Path) -> None:
    keep(objects, tmp_path, window_of())
    archive = archived_in(objects, tmp_path)
    assert archive.find("arcade", 1, DAY) is not None

    assert archive.prune(until(1_000), CLOSED_AT + 999).objects == 0
    pruned = archive.prune(until(1_000), CLOSED_AT + 1_000)
    assert (pruned.windows, pruned.objects) == (1, 2)
    assert archive.find("arcade", 1, DAY) is None
    assert paths_in(objects) == []


def test_what_another_process_has_pruned_is_gone_here_too(folder: FolderObjects, tmp_path: Path) -> None:
    keep(folder, tmp_path, window_of())
    reading = archived_in(folder, tmp_path)
    assert reading.find("arcade", 1, DAY) is not None
    archived_in(folder, tmp_path).prune(until(0), CLOSED_AT)

    with pytest.raises(ArchiveDamaged):
        players_in(reading)
    assert players_in(reading) is None


def test_killed_at_any_step_pruning_leaves_a_whole_window_or_none(tmp_path: Path) -> None:
    for at in range(20):
        objects = FolderObjects(tmp_path / f"archive-{at}")
        keep(objects, tmp_path, window_of(20))
        try:
            archived_in(FailingObjects(objects, at), tmp_path).prune(until(0), CLOSED_AT)
        except Killed:
            assert len(players_in(archived_in(objects, tmp_path)) or []) in (0, 20)
        archived_in(objects, tmp_path).prune(until(0), CLOSED_AT + 10 * UNNAMED_MS * 365)
        assert paths_in(objects) == []


def test_a_file_that_no_manifest_names_is_deleted_after_a_day(folder: FolderObjects, tmp_path: Path) -> None:
    keep(folder, tmp_path, window_of())
    folder.put_new(f"{FOLDER}/{'0' * 32}.parquet", b"left over")
    (stored,) = [each for each in folder.list("") if each.size == len(b"left over")]
    archive = archived_in(folder, tmp_path)

    assert archive.prune(lambda _manifest: None, stored.modified_at + UNNAMED_MS).objects == 0
    assert archive.prune(lambda _manifest: None, stored.modified_at + UNNAMED_MS + 1).objects == 1
    assert len(players_in(archive) or []) == 100

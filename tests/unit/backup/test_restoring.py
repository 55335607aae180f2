"""Restoring a folder: everything, a part, or a refusal that says what is left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.backup.conftest import contents, digests_of
from tests.unit.conftest import OpenBoards

from rankd import Boards, ManualClock
from rankd.archive.folder_objects import FolderObjects
from rankd.backup import restoring
from rankd.backup.chain import SegmentChain, path_of
from rankd.backup.restoring import restore
from rankd.backup.snapshots import SNAPSHOTS
from rankd.errors import ArchiveDamaged, InvalidValue, LedgerUnavailable, NotFound


def events_after_each_backup(boards: Boards, clock: ManualClock, backups: int = 5) -> list[int]:
    upto = []
    for number in range(backups):
        clock.set(clock.now() + 1_000)
        boards.submit_many("arcade", [(f"p{number}-{index}", index) for index in range(60)], key=f"batch-{number}")
        boards.backup()
        upto.append(boards.figures().position)
    return upto


def test_a_restored_folder_opens_from_the_archives_checkpoint(
    open_boards: OpenBoards, archived: Boards, archive: FolderObjects, clock: ManualClock, tmp_path: Path
) -> None:
    (*_, last) = events_after_each_backup(archived, clock)
    done: list[tuple[int, int]] = []
    restored = restore(archive, tmp_path / "restored", progress=lambda *step: done.append(step))

    assert (restored.position, restored.events, restored.is_whole) == (archived.position, last, True)
    assert (restored.at, restored.missing_ms_max) == (clock.now(), 10_000)
    assert restored.checkpoint == last
    assert done[-1] == (restored.segments, restored.segments)
    boards = open_boards("restored")
    assert boards.started.replayed == 0
    assert digests_of(boards) == digests_of(archived)
    boards.verify()


def test_repeats_are_recognised_afterwards(
    open_boards: OpenBoards, archived: Boards, archive: FolderObjects, tmp_path: Path
) -> None:
    first = archived.submit("arcade", "alice", 5, key="k1")
    archived.backup()
    restore(archive, tmp_path / "restored")
    again = open_boards("restored").submit("arcade", "alice", 5, key="k1")

    assert (again.position, again.repeated, again.score) == (first.position, True, 5)


def test_a_damaged_checkpoint_is_skipped(
    open_boards: OpenBoards, archived: Boards, archive: FolderObjects, clock: ManualClock, tmp_path: Path
) -> None:
    events_after_each_backup(archived, clock, 2)
    for stored in archive.list(SNAPSHOTS):
        if "engine.rankd" in stored.path:
            archive.file(stored.path).write_bytes(b"x" * stored.size)

    assert restore(archive, tmp_path / "restored").checkpoint is None
    assert digests_of(open_boards("restored")) == digests_of(archived)


def test_a_part_is_restored(
    open_boards: OpenBoards, archived: Boards, archive: FolderObjects, clock: ManualClock, tmp_path: Path
) -> None:
    upto = events_after_each_backup(archived, clock)
    for index, wanted in enumerate([upto[1], upto[2] + 17, upto[0]]):
        restored = restore(archive, tmp_path / f"restored-{index}", wanted)
        assert restored.events == [upto[1], upto[2], upto[0]][index]
        assert not restored.is_whole
        open_boards(f"restored-{index}").verify()
    with pytest.raises(InvalidValue, match=f"--upto: .*first is of event {upto[0]}; got 3"):
        restore(archive, tmp_path / "too-early", 3)


@pytest.mark.parametrize("damage", ["missing", "changed", "swapped", "older"])
def test_a_damaged_archive_says_what_can_be_restored(
    open_boards: OpenBoards,
    archived: Boards,
    archive: FolderObjects,
    clock: ManualClock,
    *,
    tmp_path: Path,
    damage: str,
) -> None:
    upto = events_after_each_backup(archived, clock)
    chain = SegmentChain(archive)
    ends = {segment.header.upto.sequence: segment.header.number for segment in chain.walk(None, chain.last())}
    number = ends[upto[2]] + 1  # the first segment behind the third backup
    file = archive.file(path_of(number))
    if damage == "missing":
        file.unlink()
    elif damage == "changed":
        file.write_bytes(file.read_bytes()[:-1] + b"\0")
    elif damage == "swapped":
        file.write_bytes(archive.file(path_of(number + 1)).read_bytes())
    else:
        file.write_bytes(archive.file(path_of(number - 1)).read_bytes())

    with pytest.raises(ArchiveDamaged, match=f"{path_of(number)}.*--upto {upto[2]}$"):
        restore(archive, tmp_path / "restored")
    with pytest.raises(LedgerUnavailable, match="run `rankd restore` again"):
        open_boards("restored")
    assert restore(archive, tmp_path / "restored", upto[2]).events == upto[2]
    open_boards("restored").verify()


def test_a_segment_of_a_fork_is_noticed(
    open_boards: OpenBoards, archived: Boards, archive: FolderObjects, clock: ManualClock, tmp_path: Path
) -> None:
    upto = events_after_each_backup(archived, clock, 2)
    archived.close()
    shutil.copytree(tmp_path / "data", tmp_path / "fork")
    shutil.copytree(archive.url, tmp_path / "other")
    chain, other = SegmentChain(archive), SegmentChain(FolderObjects(tmp_path / "other"))
    for folder, objects in (("data", archive), ("fork", other.objects)):
        boards = open_boards(folder, archive_url=objects.url)
        boards.submit("arcade", folder, 7)
        boards.backup()
        boards.submit("arcade", "last", 7)
        boards.backup()
        boards.close()
    number = other.last() - 1
    archive.file(path_of(number)).write_bytes(other.objects.get(path_of(number)) or b"")

    with pytest.raises(ArchiveDamaged, match="does not continue the segment before it"):
        restore(archive, tmp_path / "restored")
    assert chain.last() >= number
    assert upto[-1] < restore(other.objects, tmp_path / "whole").events


def test_half_an_upload_is_left_out(
    open_boards: OpenBoards, archived: Boards, archive: FolderObjects, clock: ManualClock, tmp_path: Path
) -> None:
    (*_, before, _) = events_after_each_backup(archived, clock)
    chain = SegmentChain(archive)
    last = chain.last()
    assert not chain.read(last - 1).header.is_complete
    archive.file(path_of(last)).unlink()

    restored = restore(archive, tmp_path / "restored")
    assert (restored.events, restored.is_whole) == (before, False)
    open_boards("restored").verify()


def test_nothing_is_restored_over_what_is_there(archived: Boards, archive: FolderObjects, tmp_path: Path) -> None:
    archived.backup()
    with pytest.raises(NotFound, match="no segments"):
        restore(FolderObjects(tmp_path / "empty"), tmp_path / "restored")
    used = tmp_path / "used"
    used.mkdir()
    (used / "notes.txt").write_text("mine")
    with pytest.raises(InvalidValue, match=r"FOLDER: .*is not empty"):
        restore(archive, used)
    assert [path.name for path in used.iterdir() if path.name != "lock"] == ["notes.txt"]


STEPS = ("make_private_folder", "SegmentWriter", "check_end", "fetch_snapshot", "_move", "shutil.rmtree", "sync_folder")


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_restore_begins_again(
    open_boards: OpenBoards,
    archived: Boards,
    archive: FolderObjects,
    clock: ManualClock,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    events_after_each_backup(archived, clock, 2)
    owner, _, name = step.rpartition(".")
    target = shutil if owner else restoring
    done = getattr(target, name)

    class Killed(BaseException):
        """The process ends here."""

    def die(*arguments: object, **options: object) -> None:
        done(*arguments, **options)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(target, name, die)
        with pytest.raises(Killed):
            restore(archive, tmp_path / "restored")
    if (tmp_path / "restored" / "restoring").exists():
        with pytest.raises(LedgerUnavailable, match="interrupted"):
            open_boards("restored")
        restore(archive, tmp_path / "restored")
    assert contents(tmp_path / "restored") == contents(tmp_path / "data")

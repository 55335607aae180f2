"""The disk that fails on demand, tried on bare SQLite: were it too kind, what is tested on it would prove nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from .disk import Fault, FaultyDisk, Operation, Trouble
from .disk_image import SECTOR_BYTES, DiskImage, Unsynced

ROWS = 60


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    with FaultyDisk() as faulty:
        yield faulty


def opened(folder: Path, disk: FaultyDisk, synchronous: str = "FULL") -> apsw.Connection:
    connection = apsw.Connection(str(folder / "rows.db"), vfs=disk.name)
    connection.pragma("journal_mode", "WAL")
    connection.pragma("synchronous", synchronous)
    connection.pragma("wal_autocheckpoint", 5)
    connection.execute("CREATE TABLE IF NOT EXISTS row (number INTEGER PRIMARY KEY, filler BLOB)")
    return connection


def insert(connection: apsw.Connection, number: int) -> None:
    connection.execute("INSERT INTO row VALUES (?, randomblob(3000))", (number,))


def rows_of(folder: Path) -> list[int]:
    """Return what is found without the disk in between."""
    connection = apsw.Connection(str(folder / "rows.db"))
    connection.pragma("synchronous", "OFF")
    try:
        if not connection.table_exists("main", "row"):
            return []
        assert connection.pragma("integrity_check") == "ok"
        return [number for (number,) in connection.execute("SELECT number FROM row ORDER BY number")]
    finally:
        connection.close()


def test_operations_are_counted_by_kind(disk: FaultyDisk, tmp_path: Path) -> None:
    connection = opened(tmp_path, disk)
    writes, syncs = disk.count(Operation.WRITE), disk.count(Operation.SYNC)
    insert(connection, 1)

    assert disk.count(Operation.WRITE) > writes
    assert disk.count(Operation.SYNC) == syncs + 1
    connection.close()
    assert disk.count(Operation.DELETE) > 0


@pytest.mark.parametrize(
    ("operation", "trouble", "raised"),
    [
        (Operation.WRITE, Trouble.EIO, apsw.IOError),
        (Operation.WRITE, Trouble.ENOSPC, apsw.FullError),
        (Operation.SYNC, Trouble.EIO, apsw.IOError),
    ],
)
def test_a_fault_strikes_once_and_the_next_commit_succeeds(
    disk: FaultyDisk, tmp_path: Path, operation: Operation, trouble: Trouble, raised: type[Exception]
) -> None:
    connection = opened(tmp_path, disk)
    disk.fail(Fault(operation, nth=1, trouble=trouble))
    with pytest.raises(raised):
        insert(connection, 1)
    insert(connection, 2)
    connection.close()

    assert disk.hits == 1
    assert rows_of(tmp_path) == [2]


def test_a_lasting_fault_strikes_until_the_disk_is_repaired(disk: FaultyDisk, tmp_path: Path) -> None:
    connection = opened(tmp_path, disk)
    disk.fail(Fault(Operation.SYNC, nth=2, trouble=Trouble.EIO, lasting=True))
    insert(connection, 1)
    for number in (2, 3):
        with pytest.raises(apsw.IOError):
            insert(connection, number)
    disk.repair()
    insert(connection, 4)
    connection.close()

    assert rows_of(tmp_path) == [1, 4]


def test_a_commit_may_stand_though_it_raised(disk: FaultyDisk, tmp_path: Path) -> None:
    connection = opened(tmp_path, disk)
    disk.fail(Fault(Operation.COMMITTED, nth=1, trouble=Trouble.EIO))
    with pytest.raises(apsw.IOError):
        insert(connection, 1)
    insert(connection, 2)
    connection.close()

    assert rows_of(tmp_path) == [1, 2]


def test_a_checkpoint_that_fails_loses_no_commit(disk: FaultyDisk, tmp_path: Path) -> None:
    connection = opened(tmp_path, disk)
    insert(connection, 1)
    disk.fail(Fault(Operation.WRITE, nth=1, trouble=Trouble.EIO, lasting=True))
    with pytest.raises(apsw.IOError):
        connection.close()

    assert rows_of(tmp_path) == [1]


@pytest.mark.parametrize("unsynced", Unsynced)
def test_what_sqlite_committed_survives_a_power_cut_at_every_sync(
    disk: FaultyDisk, tmp_path: Path, unsynced: Unsynced
) -> None:
    folder, rng, acknowledged = tmp_path / "live", random.Random(7), 0
    folder.mkdir()
    cuts: list[tuple[Path, int]] = []

    def cut(_path: str) -> None:
        cuts.append((tmp_path / f"cut-{len(cuts)}", acknowledged))
        disk.cut_power(folder, cuts[-1][0], unsynced, rng)

    disk.before_sync = cut
    connection = opened(folder, disk)
    for number in range(1, ROWS + 1):
        insert(connection, number)
        acknowledged = number
    connection.close()

    assert len(cuts) > ROWS
    for image, survived in cuts:
        rows = rows_of(image)
        assert rows == list(range(1, len(rows) + 1))
        assert survived <= len(rows) <= survived + 1


def test_without_syncs_a_power_cut_loses_what_was_committed(disk: FaultyDisk, tmp_path: Path) -> None:
    folder = tmp_path / "live"
    folder.mkdir()
    connection = opened(folder, disk, synchronous="OFF")
    for number in range(1, ROWS + 1):
        insert(connection, number)
    disk.cut_power(folder, tmp_path / "dropped", Unsynced.DROPPED, random.Random(7))
    disk.cut_power(folder, tmp_path / "written", Unsynced.WRITTEN, random.Random(7))
    connection.close()

    assert len(rows_of(tmp_path / "dropped")) < ROWS
    assert len(rows_of(tmp_path / "written")) == ROWS


def test_what_a_failed_sync_forgot_is_not_made_durable_by_the_next_one(tmp_path: Path) -> None:
    image = DiskImage()
    file = image.opened(str(tmp_path / "file"), exists=False, syncs_folder=False)
    file.wrote(0, b"first")
    image.synced(str(tmp_path / "file"), file)
    file.wrote(5, b" forgotten")
    file.fail_to_sync()
    file.wrote(15, b" later")
    image.synced(str(tmp_path / "file"), file)

    assert image.after_cut(Unsynced.WRITTEN, random.Random(7)) == {
        str(tmp_path / "file"): b"first" + bytes(10) + b" later"
    }


def test_every_open_file_learns_once_of_a_sync_that_failed(disk: FaultyDisk, tmp_path: Path) -> None:
    flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_READWRITE
    first_file, second_file = (disk.xOpen(str(tmp_path / "file"), [flags, 0]) for _ in range(2))
    disk.fail(Fault(Operation.SYNC, nth=1, trouble=Trouble.EIO))
    for file in (first_file, second_file):
        with pytest.raises(apsw.IOError):
            file.xSync(0)
        file.xSync(0)
    later = disk.xOpen(str(tmp_path / "file"), [flags, 0])
    later.xSync(0)
    for file in (first_file, second_file, later):
        file.xClose()

    assert disk.hits == 1


def test_a_torn_write_is_cut_at_sectors(tmp_path: Path) -> None:
    image = DiskImage()
    path = str(tmp_path / "file")
    file = image.opened(path, exists=False, syncs_folder=False)
    file.wrote(0, bytes(8 * SECTOR_BYTES))
    image.synced(path, file)
    file.wrote(100, b"x" * (4 * SECTOR_BYTES))
    torn = {image.after_cut(Unsynced.TORN, random.Random(seed))[path] for seed in range(200)}

    assert len(torn) == 2**5  # The write touches five sectors, the first and the last in part.
    for content in torn:
        sectors = [set(content[at : at + SECTOR_BYTES]) for at in range(0, len(content), SECTOR_BYTES)]
        assert all(len(sector) == 1 for sector in sectors[1:4])


def test_names_come_and_go_with_syncs(tmp_path: Path) -> None:
    image, rng = DiskImage(), random.Random(7)
    journal, plain = str(tmp_path / "journal"), str(tmp_path / "plain")
    image.opened(plain, exists=False, syncs_folder=False)
    assert image.after_cut(Unsynced.DROPPED, rng) == {}
    file = image.opened(journal, exists=False, syncs_folder=True)
    image.synced(journal, file)
    assert image.after_cut(Unsynced.DROPPED, rng) == {plain: b"", journal: b""}
    image.deleted(journal, folder_synced=False)
    assert image.after_cut(Unsynced.DROPPED, rng) == {plain: b"", journal: b""}
    assert image.after_cut(Unsynced.WRITTEN, rng) == {plain: b""}
    image.deleted(plain, folder_synced=True)
    assert image.after_cut(Unsynced.DROPPED, rng) == {}

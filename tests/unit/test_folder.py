"""The data folder is its owner's alone, and nothing of ours in it is a link to somewhere else."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import rankd
from rankd.clock import SystemClock
from rankd.errors import FolderLocked, LedgerDamaged, LedgerUnavailable
from rankd.folder import FolderLock, make_private_folder
from rankd.registry.sqlite.credentials import SqliteCredentials, first_admin_key

NOON = 1_777_896_000_000
DAY_MS = 86_400_000
SHARED_FIRST, SHARED_BYTES = 0x40000002, 510  # what SQLite locks of a file it reads


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=lambda mask: f"umask {mask:03o}")
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def fill(folder: Path) -> None:
    """Have every kind of file in a folder: ledger, snapshots, archives, keys."""
    clock = rankd.ManualClock(NOON)
    with rankd.open(folder, clock=clock) as boards:
        boards.define("arcade", windows=["all_time", "daily"], retention={"daily": "2d"}, late_by="1s")
        boards.submit("arcade", "alice", 5)
        clock.advance(DAY_MS + 60_000)
        boards.settle()
        boards.snapshot()
        with SqliteCredentials(folder, SystemClock()) as credentials:
            assert first_admin_key(folder, credentials) is not None
            check_modes(folder)
    check_modes(folder)


def check_modes(folder: Path) -> None:
    names = {path.name for path in folder.rglob("*")}
    assert {"ledger.db", "lock", "witness", "snapshots", "archive", "credentials.db", "admin.key"} <= names
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path}: {mode:03o}"


def test_whatever_the_umask_everything_in_the_folder_is_the_owners_alone(umask: None, tmp_path: Path) -> None:
    fill(tmp_path / "data")


def test_a_folder_that_was_open_to_others_is_narrowed_with_all_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    fill(folder)
    outside = tmp_path / "outside"
    outside.write_text("")
    (folder / "link").symlink_to(outside)
    for path in (folder, outside, *folder.rglob("*")):
        path.chmod(0o755)
    with caplog.at_level(logging.WARNING):
        rankd.open(folder).close()

    (folder / "link").unlink()
    check_modes(folder)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755
    narrowed = [record.message for record in caplog.records if "open to other users" in record.message]
    assert narrowed == [f"{folder} was open to other users (mode 755); now only its owner may use it"]


def test_a_file_that_was_open_to_others_is_narrowed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    fill(folder)
    for name in ("ledger.db", "lock", "witness"):
        (folder / name).chmod(0o644)
    rankd.open(folder).close()

    check_modes(folder)


def test_a_folder_of_somebody_else_that_is_open_to_others_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 4_711)
    with pytest.raises(LedgerUnavailable, match=r"open to other users \(mode 755\) and user 4711 cannot") as refused:
        rankd.open(folder)

    assert "run chmod 700 on it, or name a folder inside it" in str(refused.value)
    folder.chmod(0o700)
    rankd.open(folder).close()


def test_a_file_system_that_keeps_no_modes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data"
    folder.mkdir(0o755)
    monkeypatch.setattr(os, "chmod", lambda *_args, **_more: None)
    with pytest.raises(LedgerUnavailable, match="its file system keeps no modes"):
        rankd.open(folder)


@pytest.mark.parametrize(
    "name", ["lock", "ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-journal", "witness"]
)
def test_a_symbolic_link_in_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    folder, outside = tmp_path / "data", tmp_path / "outside"
    rankd.open(folder).close()
    outside.write_text("somebody else's")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(outside)
    with pytest.raises(LedgerUnavailable, match="symbolic link") as refused:
        rankd.open(folder)

    assert name in str(refused.value)
    assert outside.read_text() == "somebody else's"
    (folder / name).unlink()
    rankd.open(folder).close()  # nothing was kept locked


@pytest.mark.parametrize("name", ["credentials.db", "credentials.db-wal", "credentials.db-shm"])
def test_credentials_behind_a_link_are_refused(tmp_path: Path, name: str) -> None:
    folder, outside = tmp_path / "data", tmp_path / "outside"
    SqliteCredentials(folder, SystemClock()).close()
    outside.write_text("somebody else's")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(outside)
    with pytest.raises(LedgerUnavailable, match=f"{name} is a symbolic link; put the file itself there"):
        SqliteCredentials(folder, SystemClock())

    assert outside.read_text() == "somebody else's"


def test_a_key_is_written_in_place_of_a_link_and_not_through_it(tmp_path: Path) -> None:
    folder, outside = tmp_path / "data", tmp_path / "outside"
    outside.write_text("somebody else's")
    with SqliteCredentials(folder, SystemClock()) as credentials:
        (folder / "admin.key").symlink_to(outside)
        first_admin_key(folder, credentials)

    assert outside.read_text() == "somebody else's"
    assert not (folder / "admin.key").is_symlink()


@pytest.mark.parametrize("name", ["ledger.db", "ledger.db-wal"])
def test_a_file_with_a_second_name_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "data"
    rankd.open(folder).close()
    (folder / name).touch()
    os.link(folder / name, tmp_path / "second")
    with pytest.raises(LedgerUnavailable, match="has 2 names"):
        rankd.open(folder)
    (tmp_path / "second").unlink()
    rankd.open(folder).close()


def test_the_folder_may_be_reached_through_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(0o755)
    (tmp_path / "data").symlink_to(tmp_path / "real")
    rankd.open(tmp_path / "data").close()

    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o700


def test_a_log_is_not_applied_to_a_ledger_it_is_not_of(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    rankd.open(folder).close()
    ledger = (folder / "ledger.db").read_bytes()
    (folder / "ledger.db").unlink()
    (folder / "ledger.db-wal").write_bytes(b"x" * 5_000)
    with pytest.raises(LedgerDamaged, match="is missing, and its log is there: put it back"):
        rankd.open(folder)

    assert (folder / "ledger.db-wal").read_bytes() == b"x" * 5_000
    (folder / "ledger.db-wal").unlink()
    (folder / "ledger.db").write_bytes(ledger)
    rankd.open(folder).close()


@pytest.mark.parametrize("can_lock_folders", [True, False])
def test_a_lock_that_is_refused_leaves_those_that_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_lock_folders: bool
) -> None:
    """Closing a file of the ledger would let go of what SQLite has locked in this very process."""

    def flock_of_files(opened: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            raise OSError(errno.EINVAL, "no such locks")
        fcntl.flock(opened, how)

    if not can_lock_folders:
        monkeypatch.setattr("rankd.folder.fcntl", SimpleNamespace(**{**vars(fcntl), "flock": flock_of_files}))
    with rankd.open(tmp_path / "data"):
        assert is_locked_by_sqlite(tmp_path / "data" / "ledger.db")
        (tmp_path / "data" / "lock").unlink()
        with pytest.raises(FolderLocked):
            FolderLock(tmp_path / "data")
        assert is_locked_by_sqlite(tmp_path / "data" / "ledger.db")
    assert not is_locked_by_sqlite(tmp_path / "data" / "ledger.db")
    rankd.open(tmp_path / "data").close()


def is_locked_by_sqlite(path: Path) -> bool:
    """Tell whether another process would find SQLite's shared lock on a file."""
    script = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'r+b') as file:\n"
        f"    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, {SHARED_BYTES}, {SHARED_FIRST})\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode != 0


def test_checkpoints_and_archives_of_a_projector_are_its_owners_alone(tmp_path: Path) -> None:
    open_projector = pytest.importorskip("rankd.node.open_projector", reason="pip install 'rankd[scaled]'")
    (tmp_path / "volume" / "checkpoints").mkdir(parents=True, mode=0o755)
    open_projector.prepare_projector_folder(tmp_path / "volume")

    for name in ("checkpoints", "archive"):
        assert stat.S_IMODE((tmp_path / "volume" / name).stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerUnavailable, match="has to own it"):
        make_private_folder(tmp_path / "file" / "data")

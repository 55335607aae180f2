"""The file of the credentials: its owner's alone, of a known version, shared by processes, found out when damaged."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from tests.timing import BUSY_MACHINE

from rankd import ManualClock
from rankd.errors import Closed, LedgerDamaged, LedgerNewer, LedgerUnavailable, RankdError
from rankd.ledger.sqlite.checksum import checksum
from rankd.registry.credentials import Scope
from rankd.registry.sqlite import credentials_file
from rankd.registry.sqlite.credentials import ADMIN_KEY_FILE, SqliteCredentials, first_admin_key
from rankd.registry.sqlite.credentials_file import APPLICATION_ID, FILE_NAME, migrations

MANY = 100_000
MAKE_ONE = """
import sys
from pathlib import Path
from rankd.clock import SystemClock
from rankd.registry.sqlite.credentials import SqliteCredentials
with SqliteCredentials(Path(sys.argv[1]), SystemClock()) as credentials:
    sys.stdin.readline()
    print(credentials.create(sys.argv[2], ["scores:write"])[1])
"""


@pytest.fixture
def credentials(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteCredentials]:
    with SqliteCredentials(tmp_path, clock) as opened:
        yield opened


def run(folder: Path, *statements: str) -> None:
    connection = apsw.Connection(str(folder / FILE_NAME))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{FILE_NAME}*"))


def test_only_the_owner_can_read_the_file_and_its_log(tmp_path: Path, clock: ManualClock) -> None:
    before = os.umask(0)
    try:
        with SqliteCredentials(tmp_path / "new", clock) as credentials:
            credentials.create("server", ["scores:write"])
            assert [(path.name, mode(path)) for path in parts(tmp_path / "new")] == [
                (FILE_NAME, 0o600),
                (f"{FILE_NAME}-shm", 0o600),
                (f"{FILE_NAME}-wal", 0o600),
            ]
    finally:
        os.umask(before)


def test_a_copy_that_others_can_read_is_taken_from_them(tmp_path: Path, clock: ManualClock) -> None:
    SqliteCredentials(tmp_path, clock).close()
    (tmp_path / FILE_NAME).chmod(0o644)

    SqliteCredentials(tmp_path, clock).close()

    assert mode(tmp_path / FILE_NAME) == 0o600


def test_commits_survive_a_power_cut(credentials: SqliteCredentials) -> None:
    assert credentials._connection.pragma("journal_mode") == "wal"
    assert credentials._connection.pragma("synchronous") == 2


def test_neither_tokens_nor_wiped_secrets_are_in_the_file(tmp_path: Path, clock: ManualClock) -> None:
    with SqliteCredentials(tmp_path, clock) as credentials:
        _, token = credentials.create("server", ["scores:write"])
        wiped = credentials.create_signing_key("wiped")
        kept = credentials.create_signing_key("kept")
        credentials.revoke_signing_key("wiped")
    written = b"".join(path.read_bytes() for path in parts(tmp_path))

    assert token.split("_", 2)[2].encode() not in written
    assert wiped.encode() not in written
    assert kept.encode() in written


def test_processes_make_keys_at_the_same_time_in_a_new_folder(tmp_path: Path, clock: ManualClock) -> None:
    folder = tmp_path / "new"
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", MAKE_ONE, folder, f"server {number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    tokens = [maker.communicate("go\n", timeout=60)[0].strip() for maker in makers]

    assert [maker.returncode for maker in makers] == [0] * 4
    with SqliteCredentials(folder, clock) as credentials:
        assert [credentials.find(token) is not None for token in tokens] == [True] * 4


def test_threads_open_a_new_folder_at_the_same_time(tmp_path: Path, clock: ManualClock) -> None:
    begin = threading.Barrier(8)
    problems: list[BaseException] = []

    def open_one() -> None:
        begin.wait(20)
        try:
            SqliteCredentials(tmp_path / "new", clock).close()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=open_one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert problems == []


def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path, clock: ManualClock) -> None:
    SqliteCredentials(tmp_path, clock).close()
    run(tmp_path, f"PRAGMA user_version = {len(migrations()) + 1}")
    before = (tmp_path / FILE_NAME).read_bytes()

    with pytest.raises(LedgerNewer, match=r"credentials\.db has version 2, .* upgrade rankd"):
        SqliteCredentials(tmp_path, clock)

    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_database_of_another_program_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    run(tmp_path, "CREATE TABLE recipes (name TEXT)")
    with pytest.raises(LedgerDamaged, match="another program"):
        SqliteCredentials(tmp_path, clock)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database at all\n" * 500)
    with pytest.raises(LedgerDamaged, match=r"credentials\.db is damaged; restore a copy"):
        SqliteCredentials(tmp_path, clock)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE credentials SET scopes = 'boards:admin'",
        "UPDATE credentials SET digest = zeroblob(32)",
        "UPDATE credentials SET player = 'mallory'",
        "UPDATE credentials SET expires_at = 9999999999999",
        "UPDATE credentials SET name = CAST(x'ff' AS TEXT)",
        "UPDATE signing_keys SET secret = x'00'",
        "DROP TABLE credentials",
    ],
)
def test_what_was_changed_by_anything_else_is_not_believed(tmp_path: Path, clock: ManualClock, damage: str) -> None:
    with SqliteCredentials(tmp_path, clock) as credentials:
        _, token = credentials.create("server", ["scores:write"])
        credentials.create_signing_key("arcade")
        run(tmp_path, damage)
        with pytest.raises(LedgerDamaged, match=r"restore a copy"):
            credentials.refresh()
        assert credentials.find(token) is not None, "what is in memory stays as it was"
    with pytest.raises(LedgerDamaged):
        SqliteCredentials(tmp_path, clock)


def test_a_revoked_key_does_not_come_back_to_life_by_a_changed_byte(tmp_path: Path, clock: ManualClock) -> None:
    with SqliteCredentials(tmp_path, clock) as credentials:
        made, _ = credentials.create("server", ["scores:write"])
        credentials.revoke(made.id)
    run(tmp_path, "UPDATE credentials SET revoked_at = NULL")

    with pytest.raises(LedgerDamaged):
        SqliteCredentials(tmp_path, clock)


def test_a_damaged_page_is_found_out(tmp_path: Path, clock: ManualClock) -> None:
    with SqliteCredentials(tmp_path, clock) as credentials:
        credentials.create("server", ["scores:write"])
    whole = bytearray((tmp_path / FILE_NAME).read_bytes())
    page_bytes = int.from_bytes(whole[16:18], "big")
    whole[page_bytes:] = b"\xa5" * (len(whole) - page_bytes)
    (tmp_path / FILE_NAME).write_bytes(whole)

    with pytest.raises(LedgerDamaged):
        SqliteCredentials(tmp_path, clock)


def test_a_full_disk_changes_nothing(credentials: SqliteCredentials) -> None:
    made, token = credentials.create("first", ["scores:write"])
    connection = credentials._connection
    connection.pragma("max_page_count", connection.pragma("page_count"))
    for number in range(10_000):
        try:
            credentials.create(f"server {number}", ["scores:write"])
        except LedgerUnavailable as problem:
            refused = str(problem)
            break
    created = number
    assert refused == "the disk is full; make room, then try again: no key was changed"
    assert len(credentials.list()) == 1 + created
    assert credentials.find(token) == made

    connection.pragma("max_page_count", 1_000_000)
    credentials.refresh()
    assert len(credentials.list()) == 1 + created
    credentials.create(f"server {created}", ["scores:write"])


def test_a_process_that_writes_for_ever_is_not_waited_for(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials_file, "BUSY_MS", 1)
    with SqliteCredentials(tmp_path, clock) as credentials:
        other = apsw.Connection(str(tmp_path / FILE_NAME))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable, match="in use by another process"):
            credentials.create("server", ["scores:write"])
        credentials.refresh()
        other.execute("ROLLBACK")
        other.close()
        credentials.create("server", ["scores:write"])


def test_a_folder_that_cannot_be_used_is_said_so(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / FILE_NAME).mkdir(parents=True)
    for folder, message in (("file", "has to own it"), ("folder", "is no file; take it away")):
        with pytest.raises(LedgerUnavailable, match=message):
            SqliteCredentials(tmp_path / folder, clock)


def test_closed_credentials_take_no_changes(tmp_path: Path, clock: ManualClock) -> None:
    credentials = SqliteCredentials(tmp_path, clock)
    credentials.close()
    credentials.close()
    for call in (credentials.refresh, lambda: credentials.create("server", ["scores:write"])):
        with pytest.raises(Closed):
            call()


def test_the_first_admin_key_is_written_for_its_owner_only(
    tmp_path: Path, credentials: SqliteCredentials, capfd: pytest.CaptureFixture[str]
) -> None:
    before = os.umask(0)
    try:
        path = first_admin_key(tmp_path, credentials)
    finally:
        os.umask(before)

    assert path == tmp_path / ADMIN_KEY_FILE
    assert mode(path) == 0o600
    made = credentials.find(path.read_text().strip())
    assert made is not None
    assert (made.name, made.scopes, made.player, made.expires_at) == ("admin", frozenset(Scope), None, None)
    assert capfd.readouterr() == ("", "")


def test_there_is_one_first_admin_key(tmp_path: Path, credentials: SqliteCredentials) -> None:
    path = first_admin_key(tmp_path, credentials)
    assert path is not None
    token = path.read_text()

    assert first_admin_key(tmp_path, credentials) is None
    assert path.read_text() == token
    assert len(credentials.list()) == 1


def test_no_admin_key_is_made_beside_another_key(tmp_path: Path, credentials: SqliteCredentials) -> None:
    credentials.create("phone", [], player="alice")

    assert first_admin_key(tmp_path, credentials) is None
    assert not (tmp_path / ADMIN_KEY_FILE).exists()


def test_a_link_in_place_of_the_key_file_is_not_followed(tmp_path: Path, credentials: SqliteCredentials) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    (tmp_path / ADMIN_KEY_FILE).symlink_to(target)

    path = first_admin_key(tmp_path, credentials)

    assert path is not None
    assert not path.is_symlink()
    assert target.read_text() == "untouched"
    assert credentials.find(path.read_text().strip()) is not None


def test_an_admin_key_that_cannot_be_written_does_not_hold(tmp_path: Path, credentials: SqliteCredentials) -> None:
    (tmp_path / ADMIN_KEY_FILE).mkdir()
    with pytest.raises(LedgerUnavailable, match="cannot be written"):
        first_admin_key(tmp_path, credentials)

    assert credentials.list() == ()
    (tmp_path / ADMIN_KEY_FILE).rmdir()
    assert first_admin_key(tmp_path, credentials) is not None


def test_no_error_is_the_drivers_own(tmp_path: Path, credentials: SqliteCredentials) -> None:
    run(tmp_path, "DROP TABLE signing_keys")
    for call in (
        lambda: credentials.create_signing_key("arcade"),
        lambda: credentials.revoke_signing_key("arcade"),
        credentials.refresh,
    ):
        with pytest.raises(RankdError):
            call()


def test_a_hundred_thousand_keys_are_found_as_fast_as_one(
    tmp_path: Path, credentials: SqliteCredentials, clock: ManualClock
) -> None:
    tokens = [f"rk_{number:016x}_secret" for number in range(MANY)]
    rows = (
        (f"{number:016x}", f"server {number}", hashlib.sha256(token.encode()).digest(), "scores:write")
        for number, token in enumerate(tokens)
    )
    other = apsw.Connection(str(tmp_path / FILE_NAME))
    with other:
        other.executemany(
            "INSERT INTO credentials (id, name, digest, scopes, created_at, checksum) VALUES (?, ?, ?, ?, 7, ?)",
            ((*row, checksum(*row, None, 7, None, None)) for row in rows),
        )
    other.close()

    began = time.perf_counter()
    credentials.refresh()
    refreshed_s = time.perf_counter() - began
    began = time.perf_counter()
    count = sum(credentials.find(token) is not None for token in tokens)
    found_s = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(1_000):
        credentials.refresh()
    idle_s = time.perf_counter() - began

    # Each about ten times what it takes on a slow machine.
    assert count == MANY
    assert refreshed_s < 10 * BUSY_MACHINE
    assert found_s < 3 * BUSY_MACHINE
    assert idle_s < 1 * BUSY_MACHINE


def test_the_files_know_their_program(tmp_path: Path, clock: ManualClock) -> None:
    SqliteCredentials(tmp_path, clock).close()
    connection = apsw.Connection(str(tmp_path / FILE_NAME))

    assert connection.pragma("application_id") == APPLICATION_ID
    assert connection.pragma("user_version") == len(migrations())
    for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table'").fetchall():
        assert "STRICT" in str(sql)
    connection.close()

"""One SQLite file: durable, of a known version, ours, and brought up to date step by step."""

from __future__ import annotations

import mmap
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import apsw
import pytest
from tests.servers.waiting import join_all

from rankd.errors import Closed, LedgerDamaged, LedgerNewer, LedgerUnavailable
from rankd.ledger.sqlite import database as module
from rankd.ledger.sqlite.database import (
    APPLICATION_ID,
    FILE_NAME,
    Database,
    add_functions,
    check_sqlite_version,
    migrations,
)

from .drafts import ask, tamper

HEAD_BYTES = 48  # of one copy of the log's head, in shared memory
SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"


def file_of(folder: Path, *scripts: str, application_id: int = APPLICATION_ID, version: int = 0) -> None:
    connection = apsw.Connection(str(folder / FILE_NAME))
    add_functions(connection)
    for script in scripts:
        connection.execute(script)
    connection.pragma("application_id", application_id)
    connection.pragma("user_version", version)
    connection.close()


def test_commits_survive_a_power_cut(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with database.writing() as writer:
        assert writer.pragma("journal_mode") == "wal"
        assert writer.pragma("synchronous") == 2
    database.close()


def test_a_block_that_raises_leaves_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with pytest.raises(ZeroDivisionError), database.writing() as writer:
        assert writer.execute("INSERT INTO players (number, id) VALUES (1, 'alice') RETURNING number").get / 0

    with database.reading() as reader:
        assert reader.execute("SELECT count(*) FROM players").get == 0
    database.close()


def test_readers_do_not_see_what_is_not_committed(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with database.writing() as writer:
        writer.execute("INSERT INTO players (number, id) VALUES (1, 'alice')")
        with database.reading() as reader:
            assert reader.execute("SELECT count(*) FROM players").get == 0
    with database.reading() as reader:
        assert reader.execute("SELECT count(*) FROM players").get == 1
    database.close()


@pytest.mark.parametrize("version", ["3.51.2", "3.46.1", "2.99.99"])
def test_an_sqlite_that_can_lose_commits_is_refused(version: str) -> None:
    with pytest.raises(LedgerUnavailable, match=re.escape(version)):
        check_sqlite_version(version)


@pytest.mark.parametrize("version", ["3.51.3", "3.54.1", "4.0.0"])
def test_a_newer_sqlite_is_taken(version: str) -> None:
    check_sqlite_version(version)


def test_each_migration_leads_to_the_schema_of_a_new_file(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    Database(fresh).close()
    for version in range(len(migrations())):
        folder = tmp_path / str(version)
        folder.mkdir()
        if version:
            file_of(folder, *migrations()[:version], version=version)
        Database(folder).close()

        assert ask(folder, SCHEMA) == ask(fresh, SCHEMA)
        assert ask(folder, "PRAGMA user_version") == [(len(migrations()),)]
        assert ask(folder, "PRAGMA application_id") == [(APPLICATION_ID,)]


def test_migrations_are_numbered_without_gaps() -> None:
    scripts = sorted(script.name for script in files("rankd.ledger.sqlite").joinpath("schema").iterdir())

    assert [int(name[:4]) for name in scripts] == list(range(1, len(scripts) + 1))


def test_a_migration_that_fails_leaves_the_version_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [*migrations(), "CREATE TABLE extra (one INTEGER); CREATE TABLE extra (two INTEGER);"]
    monkeypatch.setattr(module, "migrations", lambda: broken)

    with pytest.raises(LedgerDamaged):
        Database(tmp_path)

    assert ask(tmp_path, "PRAGMA user_version") == [(len(broken) - 1,)]
    assert ask(tmp_path, "SELECT name FROM sqlite_master WHERE name = 'extra'") == []


def test_every_column_is_of_a_strict_table_and_every_table_is_explained(tmp_path: Path) -> None:
    Database(tmp_path).close()
    tables = ask(tmp_path, "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")

    assert {name for name, _ in tables} == {
        *("players", "contexts", "events", "metadata", "requests", "origins", "player_events"),
        *("sources", "player_ids", "profile_ids", "profiles", "friend_lists", "registry_changes"),
        *("ledger_identity", "registry_log"),
    }
    scripts = "".join(migrations())
    assert scripts.count("CREATE TABLE") - scripts.count("DROP TABLE") == len(tables)
    for _, sql in tables:
        assert "STRICT" in str(sql)


def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file_of(tmp_path, version=len(migrations()) + 1)
    before = (tmp_path / FILE_NAME).read_bytes()

    with pytest.raises(LedgerNewer, match="upgrade rankd"):
        Database(tmp_path)

    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_marked_file_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file_of(tmp_path, "CREATE TABLE theirs (value)", application_id=0x12345678)
    before = (tmp_path / FILE_NAME).read_bytes()

    with pytest.raises(LedgerDamaged, match="another program"):
        Database(tmp_path)

    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize("version", [0, 1, 7])
def test_an_unmarked_file_of_another_program_is_refused_too(tmp_path: Path, version: int) -> None:
    """Most programs never set an application id."""
    file_of(tmp_path, "CREATE TABLE theirs (value)", application_id=0, version=version)

    with pytest.raises(LedgerDamaged, match="another program"):
        Database(tmp_path)

    assert ask(tmp_path, "SELECT name FROM sqlite_master") == [("theirs",)]


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database, and long enough to look like one" * 100)

    with pytest.raises(LedgerDamaged, match="restore"):
        Database(tmp_path)


def test_a_damaged_page_is_found(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with database.writing() as writer:
        writer.executemany("INSERT INTO players (number, id) VALUES (?, ?)", ((n, f"p{n}" * 9) for n in range(1, 2000)))
    database.close()
    written = bytearray((tmp_path / FILE_NAME).read_bytes())
    for page in range(len(written) // 2 // 4096, len(written) // 4096):
        written[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    (tmp_path / FILE_NAME).write_bytes(written)

    database = Database(tmp_path)
    with pytest.raises(LedgerDamaged):
        database.check()
    database.close()


def test_a_whole_file_passes_the_check(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.check()
    database.close()


def test_a_closed_file_says_so(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.close()
    database.close()

    with pytest.raises(Closed, match=r"rankd\.open"), database.reading():
        pass
    with pytest.raises(Closed), database.writing():
        pass


def test_a_constraint_that_does_not_hold_is_no_driver_error(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with pytest.raises(LedgerUnavailable), database.writing() as writer:
        writer.executemany("INSERT INTO players (number, id) VALUES (?, ?)", [(1, "alice"), (1, "bob")])
    database.close()


def test_connections_are_as_many_as_reads_at_once(tmp_path: Path) -> None:
    """A program may start a thread for each request."""
    database = Database(tmp_path)

    def read() -> None:
        with database.reading() as reader:
            reader.execute("SELECT 1").fetchall()

    for _ in range(50):
        thread = threading.Thread(target=read)
        thread.start()
        join_all([thread])

    assert len(database._idle_readers) <= 2
    database.close()


def test_the_log_is_moved_into_the_file(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with database.writing() as writer:
        writer.execute("INSERT INTO players (number, id) VALUES (1, 'alice')")
    assert database.log_pages > 0

    assert database.checkpoint(restart=True) == 0
    with database.writing() as writer:
        writer.execute("INSERT INTO players (number, id) VALUES (2, 'bob')")
    assert database.log_pages < 5
    database.close()


@contextmanager
def half_written_head(folder: Path) -> Iterator[Callable[[], None]]:
    """Let the two copies of the log's head differ, as they do for an instant of each commit; yields what ends it."""
    with (folder / f"{FILE_NAME}-shm").open("r+b") as file, mmap.mmap(file.fileno(), 0) as shared:

        def finish() -> None:
            shared[HEAD_BYTES : 2 * HEAD_BYTES] = shared[:HEAD_BYTES]

        shared[HEAD_BYTES] ^= 1
        try:
            yield finish
        finally:
            finish()


def test_a_checkpoint_beside_a_commit_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path)
    with database.writing() as writer:
        writer.execute("INSERT INTO players (number, id) VALUES (1, 'alice')")
    pages = database.log_pages
    with database.writing(), half_written_head(tmp_path) as finish:
        pauses: list[float] = []

        def pause(pause_s: float) -> None:
            pauses.append(pause_s)
            finish()

        monkeypatch.setattr(module, "sleep", pause)
        assert database.log_pages == pages
        assert len(pauses) == 1
    with database.writing(), half_written_head(tmp_path) as finish:
        assert database.checkpoint() == 0
        assert len(pauses) == 2
    database.close()


def test_a_log_that_stays_locked_is_left_for_later(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with database.writing() as writer:
        writer.execute("INSERT INTO players (number, id) VALUES (1, 'alice')")
    pages = database.log_pages
    with database.writing(), half_written_head(tmp_path):
        assert database.log_pages == pages
        assert database.checkpoint() == pages
    assert database.checkpoint() == 0
    database.close()


def test_what_a_person_changed_by_hand_can_still_be_opened(tmp_path: Path) -> None:
    Database(tmp_path).close()
    tamper(tmp_path, "CREATE INDEX mine ON events (at)")

    Database(tmp_path).close()

"""An archive in a folder or in a bucket, and folders that send to it and are restored from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.unit.conftest import OpenBoards

from rankd import Boards
from rankd.archive.folder_objects import FolderObjects
from rankd.backup.columns import TABLES
from rankd.projection.verify import digests

__all__ = ["archive", "archived", "contents", "digests_of"]


@pytest.fixture
def archive(tmp_path: Path) -> FolderObjects:
    return FolderObjects(tmp_path / "archive")


@pytest.fixture
def archived(open_boards: OpenBoards, archive: FolderObjects) -> Boards:
    """Boards whose ledger is sent to the archive when a test says so."""
    boards = open_boards(archive_url=archive.url)
    boards.define("arcade", windows=["all_time", "daily"], scopes=["country"], keep="sum")
    return boards


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of a few rows, so that every kind of them is met."""
    monkeypatch.setattr("rankd.backup.reading.SEGMENT_ROWS_MAX", 40)
    monkeypatch.setattr("rankd.backup.reading.SEGMENT_CHANGES_MAX", 7)
    monkeypatch.setattr("rankd.backup.columns.ROWS_READ_AT_ONCE", 16)


def digests_of(boards: Boards) -> dict[str, tuple[int, int]]:
    return digests(boards.rank_store)


def contents(folder: Path) -> dict[str, list[Any]]:
    """Every row that an archive is to have, by table: read by other code."""
    tables = [*TABLES, "profile_ids", "ledger_identity"]
    rows: dict[str, list[Any]] = {}
    for name in ("ledger.db", "credentials.db"):
        if not (folder / name).exists():
            continue
        connection = apsw.Connection(str(folder / name), apsw.SQLITE_OPEN_READONLY)
        there = {table for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table in tables:
            if table in there:
                stored = connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608
                rows[table] = sorted(stored, key=lambda row: json.dumps(row, default=bytes.hex))
        connection.close()
    return rows

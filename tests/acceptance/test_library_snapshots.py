"""Snapshots save time and never decide: a good one is loaded, any other is ignored."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import rankd
from rankd import Boards, ManualClock
from rankd.errors import LedgerDamaged

NOON = 1_777_896_000_000  # 2026-05-04T12:00:00Z
WAIT_S = 60


def kept(boards: Boards) -> dict[str, int]:
    return {entry.player: entry.score for entry in boards.top("arcade").entries}


def filled(folder: Path) -> None:
    with rankd.open(folder, clock=ManualClock(NOON)) as boards:
        boards.define("arcade")
        for number in range(3):
            boards.submit("arcade", f"p{number}", number)


def test_a_snapshot_is_loaded_and_the_rest_replayed(tmp_path: Path) -> None:
    child = (
        "import os, rankd\n"
        f"boards = rankd.open({str(tmp_path)!r}, clock=rankd.ManualClock({NOON}))\n"
        "boards.define('arcade', keep='sum')\n"
        "boards.submit('arcade', 'alice', 5)\n"
        "boards.snapshot()\n"
        "boards.submit('arcade', 'alice', 6)\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", child], check=True, timeout=WAIT_S)
    with rankd.open(tmp_path, clock=ManualClock(NOON)) as boards:
        assert (boards.started.snapshot, boards.started.replayed, boards.started.position) == (2, 1, 3)
        assert kept(boards) == {"alice": 11}
        boards.verify()


@pytest.mark.parametrize("name", ["engine.rankd", "state.rankd"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "empty"])
def test_a_damaged_snapshot_is_passed_over_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    filled(tmp_path)
    (path,) = (tmp_path / "snapshots").rglob(name)
    whole = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "flipped":
        whole[len(whole) // 2] ^= 1
        path.write_bytes(whole)
    else:
        path.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"")
    with caplog.at_level(logging.WARNING, "rankd"), rankd.open(tmp_path, clock=ManualClock(NOON)) as boards:
        assert (boards.started.snapshot, boards.started.snapshots_skipped) == (None, 1)
        assert kept(boards) == {"p2": 2, "p1": 1, "p0": 0}
    assert "is skipped" in caplog.text
    with rankd.open(tmp_path, clock=ManualClock(NOON)) as boards:
        assert boards.started.snapshot == 4


def test_the_newest_snapshots_are_kept_and_an_older_one_helps_out(tmp_path: Path) -> None:
    with rankd.open(tmp_path, clock=ManualClock(NOON), snapshots_kept=2) as boards:
        boards.define("arcade")
        for number in range(4):
            boards.submit("arcade", "alice", number)
            boards.snapshot()
    snapshots = sorted((tmp_path / "snapshots").iterdir())
    assert [int(path.name) for path in snapshots] == [4, 5]
    (snapshots[-1] / "state.rankd").write_bytes(b"")
    with rankd.open(tmp_path, clock=ManualClock(NOON)) as boards:
        assert (boards.started.snapshot, boards.started.replayed) == (4, 1)
        assert kept(boards) == {"alice": 3}


def test_a_snapshot_of_another_ledger_is_passed_over(tmp_path: Path) -> None:
    filled(tmp_path / "one")
    with rankd.open(tmp_path / "two", clock=ManualClock(NOON)) as boards:
        boards.define("arcade")
        boards.submit_many("arcade", [("x", 1), ("y", 2), ("z", 3)])
    (theirs,) = (tmp_path / "two" / "snapshots").iterdir()
    (ours,) = (tmp_path / "one" / "snapshots").iterdir()
    for path in theirs.iterdir():
        (ours / path.name).write_bytes(path.read_bytes())
    with rankd.open(tmp_path / "one", clock=ManualClock(NOON)) as boards:
        assert boards.started.snapshots_skipped == 1
        assert kept(boards) == {"p2": 2, "p1": 1, "p0": 0}


def test_a_ledger_that_lost_what_a_snapshot_holds_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    connection = apsw.Connection(str(tmp_path / "ledger.db"))
    connection.execute("DELETE FROM events WHERE sequence = 4")
    connection.close()
    (tmp_path / "witness").unlink()
    with pytest.raises(LedgerDamaged, match="restore"):
        rankd.open(tmp_path)


def test_a_snapshot_holds_everything_that_is_remembered(tmp_path: Path) -> None:
    """Totals beyond the bounds, contributions to teams, closed windows, places at midnight, metadata."""
    clock = ManualClock(NOON)
    day_ms = 86_400_000
    with rankd.open(tmp_path, clock=clock) as boards:
        boards.define(
            "arcade", windows=["weekly", "daily"], keep={"daily": "latest", "weekly": "sum_of_daily"}, score_max=10
        )
        boards.define("guilds", team={"attribute": "guild", "by": "average"}, keep="latest")
        for _ in range(3):
            boards.submit("arcade", "alice", 9, metadata={"car": "red"})
            boards.submit("guilds", "alice", 7, attributes={"guild": "reds"})
            boards.submit("guilds", "bob", 2, attributes={"guild": "reds"})
            clock.advance(day_ms)
        boards.top("arcade")
    with rankd.open(tmp_path, clock=clock) as boards:
        assert boards.started.replayed == 0
        standing = boards.rank("arcade", "alice")
        assert standing is not None
        assert (standing.score, standing.rank_change, standing.metadata) == (10, 0, {"car": "red"})
        boards.submit("arcade", "alice", -20)
        boards.remove("guilds", "bob")
        assert kept(boards) == {"alice": 7}
        assert [(entry.player, entry.score) for entry in boards.top("guilds").entries] == [("reds", 7)]
        boards.submit("arcade", "late", 1, at=NOON, imported=True)
        assert boards.top("arcade", window="daily:2026-05-04").total == 1
        boards.verify()

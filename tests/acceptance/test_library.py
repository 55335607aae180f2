"""The library as a user meets it: the example of the contract, a folder opened, closed, shared, damaged, outgrown."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.servers.processes import killed_at_the_end

import rankd
from rankd import Boards, ManualClock
from rankd.errors import (
    Behind,
    Closed,
    FolderLocked,
    InvalidValue,
    LedgerDamaged,
    LedgerNewer,
    LedgerUnavailable,
    LedgerUnreadable,
)
from rankd.node.open_embedded import embedded_of

NOON = 1_777_896_000_000  # 2026-05-04T12:00:00Z
WAIT_S = 60
NOBODY = 65_534
EXAMPLE = """
import rankd
with rankd.open("data/") as boards:                    # embedded; creates the folder
    boards.define("arcade", keep="best", windows=["all_time", "weekly", "daily"], scopes=["country"])
    r = boards.submit("arcade", "alice", 976, attributes={"country": "BR"}, key="match-8731")
    said = r.rank, r.previous_rank, r.score, r.changed, r.position
    many = boards.submit_many("arcade", [("bob", 965), ("carol", 940)])      # also columns: players=[…], scores=array
    top = boards.top("arcade", 10, window="weekly", scope="country:BR")     # -> Page(entries, total, window, …)
    alice = boards.rank("arcade", "alice", ranking="competition")             # -> Standing or None
    around = boards.around("arcade", "alice", above=4, below=4)                # -> Around(above, player, below, …)
    second = boards.range("arcade", 101, 200)
    ranks = boards.ranks("arcade", ["alice", "bob"])                          # request order, duplicates once
    friends = boards.friends("arcade", ["alice", "bob", "zed"])                 # standing order within the group
    place = boards.rank_of_score("arcade", 950)
    spread = boards.distribution("arcade", buckets=20)
    removed = boards.remove("arcade", "bob")
    emptied = boards.reset("arcade", window="daily")
    report = boards.verify()                               # raises on the first difference, else a report
    daily = boards.top("arcade", window="daily")
version = rankd.__version__
"""


def kept(boards: Boards, board: str = "arcade", **about: Any) -> dict[str, int]:
    return {entry.player: entry.score for entry in boards.top(board, **about).entries}


def filled(folder: Path, scores: int = 3) -> None:
    with rankd.open(folder, clock=ManualClock(NOON)) as boards:
        boards.define("arcade")
        for number in range(scores):
            boards.submit("arcade", f"p{number}", number)


def test_the_example_of_the_contract_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "example.py").write_text(EXAMPLE)
    names = runpy.run_path("example.py")

    assert names["said"][:4] == (1, None, 976, True)
    assert names["many"].count == 2
    assert (names["top"].total, names["top"].scope, names["top"].window[:7]) == (1, "country:BR", "weekly:")
    assert (names["alice"].rank, names["alice"].total, names["alice"].percentile) == (1, 3, pytest.approx(200 / 3))
    assert [entry.player for entry in names["around"].below] == ["bob", "carol"]
    assert (names["second"].entries, names["second"].total) == ([], 3)
    assert [entry.player for entry in names["ranks"].entries] == ["alice", "bob"]
    assert [(entry.rank, entry.global_rank, entry.player) for entry in names["friends"].entries] == [
        (1, 1, "alice"),
        (2, 2, "bob"),
    ]
    assert (names["place"].rank, names["place"].total) == (3, 3)
    assert sum(bucket.count for bucket in names["spread"].buckets) == 3
    assert names["removed"].changed
    assert names["emptied"].position > names["removed"].position
    assert (names["report"].events, names["daily"].total) == (6, 0)
    assert names["version"] == rankd.__version__
    assert {"ledger.db", "snapshots", "lock", "witness"} <= {path.name for path in (tmp_path / "data").iterdir()}


def test_ranks_come_in_request_order_and_each_once(tmp_path: Path) -> None:
    with rankd.open(tmp_path) as boards:
        boards.define("arcade")
        boards.submit_many("arcade", players=["a", "b", "c"], scores=array("q", [1, 2, 3]))
        ranks = boards.ranks("arcade", ["a", "zed", "c", "a", "zed"])
        assert ([entry.player for entry in ranks.entries], ranks.missing) == (["a", "c"], ["zed"])
        boards.set_friends("a", ["c", "zed"])
        assert [entry.player for entry in boards.friends_of("arcade", "a").entries] == ["c", "a"]
        assert boards.rank("arcade", "zed") is None
        assert boards.around("arcade", "zed") is None


def test_pages_follow_each_other_by_their_cursor(tmp_path: Path) -> None:
    with rankd.open(tmp_path, clock=ManualClock(NOON)) as boards:
        boards.define("arcade", windows=["daily", "all_time"], ties="player")
        boards.submit_many("arcade", [(f"p{number:02}", number // 2) for number in range(25)])
        seen: list[str] = []
        cursor = None
        for _ in range(10):
            page = boards.top("arcade", 10, cursor=cursor)
            seen += [entry.player for entry in page.entries]
            boards.submit("arcade", "newcomer", 100)
            cursor = page.next
            if cursor is None:
                break
        assert [player for player in seen if player != "newcomer"] == [
            entry.player for entry in boards.top("arcade", 100).entries if entry.player != "newcomer"
        ]
        first = boards.top("arcade", 10)
        with pytest.raises(InvalidValue, match="cursor"):
            boards.top("arcade", cursor=first.next, window="all_time")


# The folder


def test_everything_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    with rankd.open(tmp_path, clock=clock) as boards:
        boards.define("arcade", windows=["all_time", "daily"], scopes=["country"])
        boards.set_player("alice", name="Alice", country="BR")
        boards.submit("arcade", "alice", 5, metadata={"car": "red"})
        before = (boards.top("arcade"), boards.top("arcade", window="daily", scope="country:BR"), boards.position)
    with rankd.open(tmp_path, clock=clock) as boards:
        after = (boards.top("arcade"), boards.top("arcade", window="daily", scope="country:BR"), boards.position)
        assert after == before
        assert after[0].entries[0].metadata == {"car": "red"}
        assert boards.started.replayed == 0


def test_a_folder_that_was_not_closed_is_replayed(tmp_path: Path) -> None:
    child = (
        "import os, rankd\n"
        f"boards = rankd.open({str(tmp_path / 'data')!r}, clock=rankd.ManualClock({NOON}))\n"
        "boards.define('arcade')\n"
        "boards.submit('arcade', 'alice', 5)\n"
        "os._exit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", child], check=False, timeout=WAIT_S).returncode == 7
    with rankd.open(tmp_path / "data", clock=ManualClock(NOON)) as boards:
        assert (boards.started.snapshot, boards.started.replayed) == (None, 2)
        assert kept(boards) == {"alice": 5}
        boards.verify()


def test_a_folder_is_open_in_one_place_at_a_time(tmp_path: Path) -> None:
    with rankd.open(tmp_path), pytest.raises(FolderLocked, match=str(os.getpid())):
        rankd.open(tmp_path)
    rankd.open(tmp_path).close()


def test_a_folder_open_in_another_process_is_refused_until_that_ends(tmp_path: Path) -> None:
    child = (
        "import sys, rankd\n"
        f"boards = rankd.open({str(tmp_path)!r})\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
        "boards.close()\n"
    )
    with killed_at_the_end(
        subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(FolderLocked, match=f"process {process.pid}"):
            rankd.open(tmp_path)
        process.stdin.close()
        assert process.wait(WAIT_S) == 0
    rankd.open(tmp_path).close()


def test_a_folder_is_free_once_closed_though_a_forked_child_lives_on(tmp_path: Path) -> None:
    """A child made by fork has a copy of every open file, the lock among them."""
    boards = rankd.open(tmp_path)
    inherited = [os.dup(opened) for opened in embedded_of(boards)._lock._held]
    boards.close()
    try:
        rankd.open(tmp_path).close()
    finally:
        for opened in inherited:
            os.close(opened)


def test_an_open_that_fails_lets_the_folder_go(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"no database at all" * 1_000)
    with pytest.raises(LedgerDamaged):
        rankd.open(tmp_path)
    (tmp_path / "ledger.db").unlink()
    rankd.open(tmp_path).close()


def test_a_path_that_cannot_be_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(LedgerUnavailable, match="cannot be used"):
            rankd.open(path)


@pytest.mark.parametrize("name", ["snapshots", "witness"])
def test_a_part_of_the_folder_that_is_something_else_is_refused_in_our_words(tmp_path: Path, name: str) -> None:
    filled(tmp_path)
    part = tmp_path / name
    if part.is_dir():
        for path in sorted(part.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        part.rmdir()
        part.write_text("not a folder")
    else:
        part.unlink()
        part.mkdir()
    with pytest.raises((LedgerUnavailable, LedgerUnreadable)):
        rankd.open(tmp_path)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o500)
    is_root = os.geteuid() == 0
    if is_root:  # who may write everywhere: be somebody else for a moment
        os.seteuid(NOBODY)
    try:
        with pytest.raises(LedgerUnavailable, match="cannot be used"):
            rankd.open(folder)
    finally:
        if is_root:
            os.seteuid(0)


def test_an_older_copy_of_the_ledger_can_be_put_back_on_purpose(tmp_path: Path) -> None:
    filled(tmp_path)
    older = (tmp_path / "ledger.db").read_bytes()
    with rankd.open(tmp_path, clock=ManualClock(NOON)) as boards:
        boards.submit("arcade", "later", 9)
    (tmp_path / "ledger.db").write_bytes(older)

    with pytest.raises(LedgerDamaged, match="on purpose, take witness and snapshots away"):
        rankd.open(tmp_path)
    (tmp_path / "witness").unlink()
    with pytest.raises(LedgerDamaged, match="on purpose, take snapshots away"):
        rankd.open(tmp_path)
    shutil.rmtree(tmp_path / "snapshots")
    with rankd.open(tmp_path, clock=ManualClock(NOON)) as boards:
        assert boards.rank("arcade", "later") is None
        boards.verify()


def test_a_process_that_was_forked_uses_nothing_and_harms_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    with rankd.open(tmp_path, clock=ManualClock(NOON)) as boards:
        child = os.fork()
        if child == 0:
            refused = 0
            for name in ("submit", "submit again", "top", "player"):
                try:
                    CALLS[name](boards)
                except Closed:
                    refused += 1
            os._exit(refused)
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 4
        boards.submit("arcade", "not-forked", 1)
        boards.verify()


def test_a_ledger_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    connection = apsw.Connection(str(tmp_path / "ledger.db"))
    connection.pragma("user_version", 99)
    connection.close()
    with pytest.raises(LedgerNewer, match="upgrade rankd"):
        rankd.open(tmp_path)


@pytest.mark.parametrize(
    "change",
    ["""replace(context, '"define"', '"ban"')""", """replace(context, 'payload_version":1', 'payload_version":9')"""],
)
def test_an_event_of_a_newer_version_is_refused_in_our_words(tmp_path: Path, change: str) -> None:
    filled(tmp_path)
    connection = apsw.Connection(str(tmp_path / "ledger.db"))
    connection.execute(f"UPDATE contexts SET context = {change}")  # noqa: S608
    connection.close()
    for snapshot in (tmp_path / "snapshots").rglob("*.rankd"):
        snapshot.unlink()
    with pytest.raises(LedgerUnreadable):
        rankd.open(tmp_path).close()


# Use after close, and waiting for one's own write


CALLS: dict[str, Callable[[Boards], object]] = {
    "submit": lambda boards: boards.submit("arcade", "new", 1),
    "submit again": lambda boards: boards.submit("arcade", "p1", 1),
    "submit_many": lambda boards: boards.submit_many("arcade", [("new", 1)]),
    "define": lambda boards: boards.define("words"),
    "delete": lambda boards: boards.delete("arcade"),
    "remove": lambda boards: boards.remove("arcade", "p1"),
    "reset": lambda boards: boards.reset("arcade"),
    "top": lambda boards: boards.top("arcade"),
    "range": lambda boards: boards.range("arcade", 1, 2),
    "rank": lambda boards: boards.rank("arcade", "p1"),
    "around": lambda boards: boards.around("arcade", "p1"),
    "ranks": lambda boards: boards.ranks("arcade", ["p1"]),
    "friends": lambda boards: boards.friends("arcade", ["p1"]),
    "rank_of_score": lambda boards: boards.rank_of_score("arcade", 1),
    "distribution": lambda boards: boards.distribution("arcade"),
    "player": lambda boards: boards.player("p1"),
    "set_player": lambda boards: boards.set_player("p1", name="P"),
    "set_friends": lambda boards: boards.set_friends("p1", ["p2"]),
    "search": lambda boards: boards.search("p"),
    "snapshot": lambda boards: boards.snapshot(),
    "verify": lambda boards: boards.verify(),
    "settle": lambda boards: boards.settle(),
}


@pytest.mark.parametrize("name", CALLS)
def test_closed_boards_say_so(tmp_path: Path, name: str) -> None:
    boards = rankd.open(tmp_path, clock=ManualClock(NOON))
    boards.define("arcade")
    boards.submit_many("arcade", [("p1", 1), ("p2", 2)])
    boards.top("arcade")
    boards.close()
    boards.close()
    with pytest.raises(Closed, match=r"rankd\.open"):
        CALLS[name](boards)


def test_a_block_that_raises_closes_the_boards(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), rankd.open(tmp_path):
        raise ZeroDivisionError
    rankd.open(tmp_path).close()


def test_a_read_waits_for_a_position_and_says_when_it_is_not_reached(tmp_path: Path) -> None:
    with rankd.open(tmp_path, clock=ManualClock(NOON), at_least_wait_ms=20) as boards:
        boards.define("arcade")
        written = boards.submit("arcade", "alice", 5).position
        assert boards.top("arcade", at_least=written).total == 1
        for ahead in ("0-99", "7-1"):
            with pytest.raises(Behind, match="ask again"):
                boards.top("arcade", at_least=ahead)
        for nonsense in ("", "x", "0", "0-01", "-1-1", 7, "0-99999999999999999999"):
            with pytest.raises(InvalidValue, match="at_least"):
                boards.top("arcade", at_least=nonsense)  # type: ignore[arg-type]


def test_a_read_that_waits_sees_what_it_waited_for(tmp_path: Path) -> None:
    with rankd.open(tmp_path, clock=ManualClock(NOON), at_least_wait_ms=20_000) as boards:
        boards.define("arcade")
        totals: list[int] = []
        reader = threading.Thread(target=lambda: totals.append(boards.top("arcade", at_least="0-2").total))
        reader.start()
        boards.submit("arcade", "alice", 5)
        reader.join(WAIT_S)
        assert totals == [1]


@pytest.mark.parametrize(
    "settings", [{"unknown": 1}, {"commit_wait_ms": -1}, {"commit_wait_ms": True}, {"snapshots_kept": 0}, {"vfs": 7}]
)
def test_settings_that_make_no_sense_are_refused_before_anything_is_made(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with pytest.raises(InvalidValue, match=next(iter(settings))):
        rankd.open(tmp_path / "data", **settings)
    assert not (tmp_path / "data").exists()

"""From its last score to its archive: a window closes, is kept, and leaves, each at its own millisecond."""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import UNSET
from tests.archived import parquet_files, players_of
from tests.servers.load_bound import LoadBound
from tests.servers.waiting import WAIT_S, join_all

from rankd import Boards, ManualClock
from rankd.errors import InvalidValue, WindowGone, WindowUnknown
from rankd.node import embedded as running
from rankd.node.open_embedded import embedded_of

if TYPE_CHECKING:
    from tests.unit.conftest import OpenBoards

LATE_MS = 300_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
DAY = "daily:2026-05-04"


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


DAY_END = ms("2026-05-05")


def kept(boards: Boards, window: str | None = None) -> dict[str, int]:
    return {entry.player: entry.score for entry in boards.top("arcade", window=window).entries}


def archives(folder: Path) -> list[Path]:
    return parquet_files(folder / "data" / "archive")


def test_a_window_is_archived_when_it_is_final_and_leaves_when_its_retention_is_over(
    open_boards: OpenBoards, clock: ManualClock, tmp_path: Path
) -> None:
    boards = open_boards()
    boards.define("arcade", windows=["all_time", "daily"], retention={"daily": "2d"})
    boards.submit_many("arcade", [("alice", 5), ("bob", 7)])
    clock.set(DAY_END + LATE_MS - 1)
    boards.settle()
    assert archives(tmp_path) == []

    clock.advance(1)
    boards.settle()
    (archive,) = archives(tmp_path)
    assert players_of(archive) == ["bob", "alice"]
    assert kept(boards, DAY) == {"bob": 7, "alice": 5}

    gone = DAY_END + LATE_MS + 2 * DAY_MS
    clock.set(gone - 1)
    boards.settle()
    assert kept(boards, DAY) == {"bob": 7, "alice": 5}
    assert boards.top("arcade", window=DAY).source is UNSET
    clock.advance(1)
    boards.settle()
    assert kept(boards, DAY) == {"bob": 7, "alice": 5}
    assert boards.top("arcade", window=DAY).source == "archive"
    assert {key.window for key in embedded_of(boards).rank_store.instances()} == {"all_time"}
    assert len(archives(tmp_path)) == 1
    boards.verify()
    boards.close()

    again = open_boards()
    assert {key.window for key in embedded_of(again).rank_store.instances()} == {"all_time"}
    again.settle()
    assert len(archives(tmp_path)) == 1
    again.verify()


def test_settling_again_adds_nothing(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["daily"], retention="0s")
    boards.submit("arcade", "alice", 5)
    clock.set(DAY_END + LATE_MS)
    boards.settle()
    before = boards.position
    boards.settle()
    assert boards.position == before


def test_nothing_leaves_the_store_before_its_archive_is_written(
    boards: Boards,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(embedded_of(boards)._retirement.archiving, "_again_s", 0.01)
    boards.define("arcade", windows=["daily"], retention="0s")
    boards.submit("arcade", "alice", 5)
    clock.set(DAY_END + LATE_MS)
    blocked = tmp_path / "data" / "archive"
    blocked.write_bytes(b"a file where the folder should be")
    boards.settle()
    assert "final windows stay in the ranks until they are archived" in caplog.text
    assert {key.window for key in embedded_of(boards).rank_store.instances()} == {DAY}
    blocked.unlink()
    boards.settle()
    assert list(embedded_of(boards).rank_store.instances()) == []


def test_late_scores_count_to_the_last_millisecond(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["daily"])
    clock.set(DAY_END + LATE_MS - 1)
    boards.submit("arcade", "alice", 5, at=DAY_END - 1)
    assert kept(boards, DAY) == {"alice": 5}

    clock.advance(1)
    with pytest.raises(InvalidValue, match="at: "):
        boards.submit("arcade", "bob", 5, at=DAY_END - 1)
    boards.submit("arcade", "bob", 6, at=DAY_END)
    assert (kept(boards, DAY), kept(boards, "daily")) == ({"alice": 5}, {"bob": 6})


def test_a_closed_window_takes_no_imports_either(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["all_time", "daily"])
    boards.submit("arcade", "alice", 5)
    clock.set(DAY_END + LATE_MS)
    boards.submit("arcade", "bob", 9, at=DAY_END - 1, imported=True)
    assert kept(boards, DAY) == {"alice": 5}
    assert kept(boards) == {"bob": 9, "alice": 5}
    boards.verify()


def test_an_import_into_a_retired_window_does_not_bring_it_back(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["all_time", "daily"], retention={"daily": "0s"})
    boards.submit("arcade", "alice", 5)
    clock.set(DAY_END + LATE_MS)
    boards.settle()
    boards.submit("arcade", "bob", 9, at=DAY_END - 1, imported=True)
    assert {key.window for key in embedded_of(boards).rank_store.instances()} == {"all_time"}
    boards.verify()


def test_the_previous_window_is_the_one_before_the_current(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["weekly", "daily"], time_zone="Europe/Berlin")
    boards.submit("arcade", "alice", 5)
    clock.advance(7 * DAY_MS)
    boards.submit("arcade", "bob", 6)

    page = boards.top("arcade", window="weekly:previous")
    assert (page.window, [entry.player for entry in page.entries]) == ("weekly:2026-W19", ["alice"])
    assert boards.top("arcade").window == "weekly:2026-W20"
    empty = boards.top("arcade", window="daily:previous")
    assert (empty.window, empty.total) == ("daily:2026-05-10", 0)


def test_windows_that_are_empty_or_to_come_are_empty_boards(boards: Boards) -> None:
    boards.define("arcade", windows=["daily"], retention="7d")
    assert boards.top("arcade", window="daily:2026-05-06").total == 0
    assert boards.top("arcade", window="daily:2026-05-02").total == 0
    with pytest.raises(WindowGone):
        boards.top("arcade", window="daily:2020-01-01")
    with pytest.raises(WindowUnknown):
        boards.top("arcade", window="weekly")
    with pytest.raises(InvalidValue):
        boards.top("arcade", window="daily:2026-13-01")


def test_a_period_that_is_added_before_its_time_counts_from_its_start(boards: Boards, clock: ManualClock) -> None:
    cup = {"name": "cup", "start": clock.now() + HOUR_MS, "end": clock.now() + 2 * HOUR_MS}
    boards.define("arcade", periods=[cup], late_by="0s")
    boards.submit("arcade", "early", 1)
    clock.advance(HOUR_MS - 1)
    boards.submit("arcade", "just-early", 2)
    clock.advance(1)
    boards.submit("arcade", "first", 3)
    clock.advance(HOUR_MS - 1)
    boards.submit("arcade", "last", 4)
    clock.advance(1)
    boards.submit("arcade", "late", 5)
    assert kept(boards, "period:cup") == {"last": 4, "first": 3}
    boards.verify()


def test_a_period_that_is_added_while_it_lasts_starts_empty(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade")
    boards.submit("arcade", "before", 1)
    cup = {"name": "cup", "start": clock.now() - HOUR_MS, "end": clock.now() + HOUR_MS}
    boards.define("arcade", periods=[cup])
    assert kept(boards, "period:cup") == {}
    boards.submit("arcade", "after", 2)
    assert kept(boards, "period:cup") == {"after": 2}


def test_a_window_that_is_added_starts_empty(boards: Boards) -> None:
    boards.define("arcade")
    boards.submit("arcade", "alice", 5)
    boards.define("arcade", windows=["all_time", "daily"], scopes=["country"])
    assert kept(boards, "daily") == {}
    boards.submit("arcade", "alice", 3, attributes={"country": "BR"})
    assert (kept(boards), kept(boards, "daily")) == ({"alice": 5}, {"alice": 3})
    assert boards.top("arcade", scope="country:BR").entries[0].score == 3
    boards.verify()


def test_a_shorter_retention_lets_windows_go_earlier(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["daily"])
    boards.submit("arcade", "alice", 5)
    clock.advance(10 * DAY_MS)
    boards.settle()
    assert kept(boards, DAY) == {"alice": 5}
    boards.define("arcade", windows=["daily"], retention="1d")
    boards.settle()
    assert list(embedded_of(boards).rank_store.instances()) == []


def test_archives_of_a_board_defined_anew_do_not_replace_the_old_ones(
    boards: Boards, clock: ManualClock, tmp_path: Path
) -> None:
    definition = {"windows": ["daily"], "retention": "0s", "late_by": "0s"}
    boards.define("arcade", definition)
    boards.submit("arcade", "alice", 5)
    clock.set(DAY_END)
    boards.settle()
    boards.delete("arcade")
    boards.define("arcade", definition)
    boards.submit("arcade", "bob", 6, at=DAY_END - 1, imported=True)
    boards.settle()
    assert sorted(player for path in archives(tmp_path) for player in players_of(path)) == ["alice", "bob"]


def test_a_change_of_the_definition_archives_nothing_twice(boards: Boards, clock: ManualClock, tmp_path: Path) -> None:
    boards.define("arcade", windows=["daily"], retention="9d")
    boards.submit("arcade", "alice", 5)
    clock.set(DAY_END + LATE_MS)
    boards.settle()
    boards.define("arcade", windows=["daily"], retention="9d", title="Arcade")
    boards.settle()
    assert len(archives(tmp_path)) == 1


def test_a_window_leaves_the_archive_when_it_is_kept_no_longer(
    boards: Boards, clock: ManualClock, tmp_path: Path
) -> None:
    boards.define("arcade", windows=["daily"], retention="1d", archive_keep="30d")
    boards.submit("arcade", "alice", 5)
    clock.set(DAY_END + LATE_MS + 30 * DAY_MS - HOUR_MS)
    boards.settle()
    assert boards.top("arcade", window=DAY).source == "archive"
    assert len(archives(tmp_path)) == 1

    clock.advance(2 * HOUR_MS)
    boards.settle()
    assert archives(tmp_path) == []
    clock.advance(DAY_MS)
    with pytest.raises(WindowGone):
        boards.top("arcade", window=DAY)


def test_a_window_in_the_ranks_stays_in_the_archive_too(boards: Boards, clock: ManualClock, tmp_path: Path) -> None:
    boards.define("arcade", windows=["daily"], retention="60d", archive_keep="1d")
    boards.submit("arcade", "alice", 5)
    for _ in range(3):
        clock.advance(10 * DAY_MS)
        boards.settle()
        assert len(archives(tmp_path)) == 1

    clock.advance(60 * DAY_MS)
    boards.settle()
    clock.advance(2 * HOUR_MS)
    boards.settle()
    assert archives(tmp_path) == []


def test_how_long_windows_are_archived_is_what_the_board_says_today(
    boards: Boards, clock: ManualClock, tmp_path: Path
) -> None:
    boards.define("arcade", windows=["daily"], retention="1d", archive_keep="30d")
    boards.submit("arcade", "alice", 5)
    clock.advance(20 * DAY_MS)
    boards.settle()
    boards.define("arcade", windows=["daily"], retention="1d", archive_keep="365d")
    clock.advance(20 * DAY_MS)
    boards.settle()
    assert len(archives(tmp_path)) == 1

    boards.define("arcade", windows=["daily"], retention="1d", archive_keep="10d")
    clock.advance(2 * HOUR_MS)
    boards.settle()
    assert archives(tmp_path) == []


def test_windows_without_a_retention_are_archived_too(boards: Boards, clock: ManualClock, tmp_path: Path) -> None:
    boards.define("arcade", windows=["daily"])
    boards.submit("arcade", "alice", 5)
    clock.advance(2 * DAY_MS)
    boards.settle()

    assert len(archives(tmp_path)) == 1
    assert boards.top("arcade", window=DAY).source is UNSET


def test_years_that_nobody_played_pass_in_one_step(boards: Boards, clock: ManualClock) -> None:
    boards.define("arcade", windows=["weekly", "daily", "hourly"], retention="30d")
    boards.submit("arcade", "alice", 5)
    clock.advance(3 * 365 * DAY_MS)
    before = int(boards.position.partition("-")[2])
    boards.settle()
    boards.submit("arcade", "alice", 6)
    assert int(boards.position.partition("-")[2]) - before < 10
    boards.verify()


def test_reads_go_on_while_windows_come(boards: Boards, clock: ManualClock) -> None:
    """Every read looks at what is due, while imports bring window after window."""
    boards.define("arcade", windows=["all_time", "daily", "hourly"], late_by="3000d")
    bound = LoadBound()
    stop, problems = threading.Event(), []

    def read() -> None:
        while not stop.is_set() and bound.take():
            try:
                boards.top("arcade")
            except Exception as problem:
                problems.append(problem)
                return

    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=read) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for turn in range(25):
            rows = [{"player": "p", "score": 1, "at": clock.now() - (turn * 20 + n) * HOUR_MS} for n in range(20)]
            boards.submit_many("arcade", rows, imported=True)
    finally:
        stop.set()
        join_all(threads)
        sys.setswitchinterval(switch_s)
    assert problems == []


def test_upkeep_outlives_an_unexpected_error(
    open_boards: OpenBoards, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without it the log grows for ever and no season ends."""
    calls = threading.Semaphore(0)

    def fail(_self: object) -> None:
        calls.release()
        raise RuntimeError("dictionary changed size during iteration")

    boards = open_boards()
    boards.close()
    monkeypatch.setattr(running, "UPKEEP_EVERY_S", 0.001)
    monkeypatch.setattr(running, "UPKEEP_AFTER_FAILURE_S", 0.001)
    monkeypatch.setattr(running.Embedded, "_keep_up_once", fail)
    monkeypatch.setattr(threading, "excepthook", lambda _arguments: None)
    open_boards()
    assert calls.acquire(timeout=WAIT_S)
    assert calls.acquire(timeout=WAIT_S), "it did not go on"
    assert "dictionary changed size" in caplog.text

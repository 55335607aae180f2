"""A replica follows a folder that another backend writes, and changes nothing in it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.waiting import wait_until

from rankd import Boards
from rankd.clock import ManualClock
from rankd.errors import LedgerUnavailable, Refused
from rankd.folder import SNAPSHOTS
from rankd.node.open_embedded import open_boards
from rankd.node.open_replica import open_replica

START = 1_800_000_000_000


class Committed:
    """Is set after each commit."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def wait(self, timeout_s: float) -> None:
        if self._event.wait(timeout_s):
            self._event.clear()


@pytest.fixture
def committed() -> Committed:
    return Committed()


@pytest.fixture
def writer(tmp_path: Path, committed: Committed) -> Iterator[Boards]:
    with open_boards(tmp_path / "data", committed=committed.set) as boards:
        boards.define("arcade", keep="sum", windows=["all_time"])
        boards.submit("arcade", "alice", 5)
        yield boards


@pytest.fixture
def replica(tmp_path: Path, committed: Committed, writer: Boards) -> Iterator[Boards]:
    with open_replica(tmp_path / "data", committed.wait) as boards:
        yield boards


def scores(boards: Boards, board: str = "arcade", at_least: str | None = None) -> dict[str, int]:
    return {entry.player: entry.score for entry in boards.top(board, at_least=at_least).entries}


def test_it_shows_what_was_there_and_what_comes(writer: Boards, replica: Boards) -> None:
    assert scores(replica) == {"alice": 5}
    for number in range(50):
        position = writer.submit("arcade", f"p{number}", number).position
    assert scores(replica, at_least=position) == scores(writer)


def test_a_new_board_with_new_contexts_is_followed(writer: Boards, replica: Boards) -> None:
    writer.define("later", scopes=["country"])
    position = writer.submit("later", "bob", 3, attributes={"country": "BR"}, metadata={"level": 2}).position
    page = replica.top("later", scope="country:BR", at_least=position)
    assert [(entry.player, entry.metadata) for entry in page.entries] == [("bob", {"level": 2})]
    assert [event.score for event in replica.history("bob")] == [3]


def test_a_profile_is_seen_as_soon_as_it_is_stored(writer: Boards, replica: Boards) -> None:
    assert replica.player("alice") is None
    for name in ("Alice", "Alicia", "Ali"):
        writer.set_player("alice", name=name)
        writer.set_friends("alice", [name])
        profile = replica.player("alice")
        assert profile is not None
        assert profile.name == name
        assert replica.top("arcade").entries[0].name == name
        assert list(replica.stored_friends("alice")) == [name]


def test_it_starts_from_the_newest_snapshot_and_leaves_drafts_of_others(
    tmp_path: Path, committed: Committed, writer: Boards
) -> None:
    writer.snapshot()
    writer.submit("arcade", "bob", 3)
    draft = tmp_path / "data" / SNAPSHOTS / "draft-00000000000000000009"
    draft.mkdir()
    with open_replica(tmp_path / "data", committed.wait) as replica:
        assert (replica.started.snapshot, replica.started.replayed) == (2, 1)
        assert scores(replica) == {"alice": 5, "bob": 3}
    assert draft.is_dir()


def test_it_changes_nothing(writer: Boards, replica: Boards) -> None:
    for change in (
        lambda: replica.submit("arcade", "bob", 1),
        lambda: replica.define("other"),
        lambda: replica.remove("arcade", "alice"),
        lambda: replica.set_player("alice", name="A"),
        lambda: replica.set_friends("alice", ["bob"]),
    ):
        with pytest.raises(LedgerUnavailable):
            change()
    with pytest.raises(Refused):
        replica.snapshot()
    assert scores(replica) == scores(writer) == {"alice": 5}


def test_a_window_that_the_writer_closes_closes_here(tmp_path: Path, committed: Committed) -> None:
    clock = ManualClock(START)
    with open_boards(tmp_path / "data", clock=clock, committed=committed.set) as writer:
        writer.define("days", windows=["daily"], late_by="0s", retention={"daily": "1d"})
        position = writer.submit("days", "alice", 1).position
        with open_replica(tmp_path / "data", committed.wait, clock=clock) as replica:
            assert scores(replica, "days", at_least=position) == {"alice": 1}
            for _ in range(3):
                clock.advance(86_400_000)
                writer.settle()
            replica.settle()
            assert scores(replica, "days") == {}
            wait_until(lambda: replica.figures().entries == writer.figures().entries == 0)


def test_a_ledger_that_is_replaced_is_followed_no_more_and_answers_say_so(
    tmp_path: Path, committed: Committed, writer: Boards
) -> None:
    with open_replica(tmp_path / "data", committed.wait, stale_after_ms=300) as replica:
        assert not replica.top("arcade").stale
        ledger = tmp_path / "data" / "ledger.db"
        ledger.rename(tmp_path / "moved.db")
        try:
            wait_until(lambda: replica.top("arcade").stale)
            assert scores(replica) == {"alice": 5}
        finally:
            (tmp_path / "moved.db").rename(ledger)

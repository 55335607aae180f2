"""A start beside a process that appends without pause: it ends, and says whether it has caught up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rankd import Boards
from rankd.clock import SystemClock
from rankd.errors import Behind
from rankd.folder import SNAPSHOTS
from rankd.intake.writer import Writer
from rankd.ledger.port import Heads
from rankd.ledger.sqlite.database import ReadOnlyDatabase
from rankd.ledger.sqlite.replica import SqliteReplicaLedger
from rankd.node import catching_up, ranks
from rankd.node.open_embedded import open_boards
from rankd.node.ranks import EngineRanks
from rankd.projection.checkpoints import Checkpoints
from rankd.registry.sqlite.replica import SqliteReplicaRegistry
from rankd.settings import Settings

LAG_MAX_MS = 10_000
ROUNDS_MAX = 100


class Chased(SqliteReplicaLedger):
    """A ledger that grows whenever somebody asks for its head."""

    grow: Callable[[], object]

    def heads(self) -> Heads:
        heads = super().heads()
        self.grow()
        return heads


class Rounds:
    """The time by which a start measures its rounds; each takes as long as a test says."""

    def __init__(self, durations_s: list[float]) -> None:
        self._durations_s = durations_s
        self._now_s = 0.0
        self._is_under_way = False
        self.done = 0

    def monotonic(self) -> float:
        """Return the time; every second reading ends a round."""
        if self._is_under_way:
            self._now_s += self._durations_s[min(self.done, len(self._durations_s) - 1)]
            self.done += 1
            assert self.done < ROUNDS_MAX, "it does not end"
        self._is_under_way = not self._is_under_way
        return self._now_s


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Boards]:
    with open_boards(tmp_path / "data") as boards:
        boards.define("arcade", keep="sum", windows=["all_time"])
        yield boards


@pytest.fixture
def start(tmp_path: Path, writer: Boards, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., EngineRanks]]:
    """Return a function that starts beside the writer, whose rounds take so many seconds."""
    monkeypatch.setattr(ranks, "STEP_EVENTS", 1)  # as where more was appended than one step follows
    database = ReadOnlyDatabase(tmp_path / "data", None)
    database.open()

    def catch_up(*durations_s: float) -> EngineRanks:
        ledger = Chased(database, lambda _timeout_s: None)
        ledger.grow = lambda: writer.submit("arcade", "alice", 1)
        rounds = Rounds(list(durations_s))
        monkeypatch.setattr("rankd.operations.hold.monotonic", rounds.monotonic)
        checkpoints = Checkpoints(tmp_path / "data" / SNAPSHOTS, is_written=False)
        followed, _ = catching_up.caught_up(
            ledger, checkpoints, SystemClock(), Settings(), lambda _done, _all: None, lag_max_ms=LAG_MAX_MS
        )
        return followed

    with closing(database):
        yield catch_up


def test_a_start_has_caught_up_when_a_round_takes_no_longer_than_the_lag_allowed(
    start: Callable[..., EngineRanks],
) -> None:
    assert start(40.0, 20.0, 9.0).has_caught_up


def test_a_start_that_does_not_come_closer_ends_behind_and_catches_up_later(
    start: Callable[..., EngineRanks], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    followed = start(40.0, 30.0, 29.0)
    assert not followed.has_caught_up
    assert "starts behind the ledger" in caplog.text
    folder = tmp_path / "data"
    with closing(ReadOnlyDatabase(folder, None)) as database:
        database.open()
        registry = SqliteReplicaRegistry(folder, database, 10)
        ledger = SqliteReplicaLedger(database, lambda _timeout_s: None)
        beside = Writer(ledger, followed, registry, SystemClock(), Settings())
        with closing(registry), closing(beside):
            with pytest.raises(Behind, match="have not caught up"):
                beside.check_ready()
            for _ in range(ROUNDS_MAX):
                if not followed.follow():
                    break
            beside.check_ready()

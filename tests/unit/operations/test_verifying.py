"""A comparison of players who change whenever they are compared: it ends with a moment without writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from rankd import Boards
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept
from rankd.ledger.sqlite.database import ReadOnlyDatabase
from rankd.ledger.sqlite.replica import SqliteReplicaLedger
from rankd.node.open_embedded import open_boards
from rankd.operations.verify import HOLD_AFTER, Verification
from rankd.projection.port import Position, RankedPage

KEY = InstanceKey("arcade", "all_time")
READS_MAX = 20 * HOLD_AFTER


class ChangedAfterEachRead:
    """The ranks to compare, of a writer that appends a score after every read of them, unless writes are held."""

    def __init__(self, boards: Boards) -> None:
        self._boards = boards
        self._store = boards.rank_store
        self.reads = 0
        self.before_read: Callable[[InstanceKey, Sequence[str]], None] = lambda _key, _players: None
        self.holds = 0
        self.is_held = False

    def hold(self, _hold_ms: int, _pause_ms: int) -> bool:
        self.holds += 1
        self.is_held = True
        return True

    def release(self) -> None:
        self.is_held = False

    def positions(self, _board: str) -> dict[int, Position]:
        return {0: self._store.position(0)}

    def instances_of(self, _board: str) -> list[InstanceKey]:
        return [KEY]

    def following(self, key: InstanceKey, after: tuple[Kept, str] | None, count: int) -> RankedPage:
        return cast(RankedPage, self._read(lambda: self._store.following(key, after, count)))

    def kept_of_all(self, key: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        self.before_read(key, players)
        return cast(list[Kept | None], self._read(lambda: self._store.scores(key, players)))

    def _read(self, read: Callable[[], Any]) -> Any:
        answer = read()
        self.reads += 1
        assert self.reads < READS_MAX, "it does not end"
        if not self.is_held:
            self._boards.submit("arcade", "alice", 1)
        return answer


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[Boards]:
    with open_boards(tmp_path / "data") as opened:
        opened.define("arcade", keep="sum", windows=["all_time"])
        for player in ("alice", "bob"):
            opened.submit("arcade", player, 1)
        yield opened


@pytest.fixture
def ranks(boards: Boards) -> ChangedAfterEachRead:
    return ChangedAfterEachRead(boards)


class Shared(SqliteReplicaLedger):
    """A ledger whose writers obey a hold."""

    backlog: ChangedAfterEachRead


@pytest.fixture
def verification(tmp_path: Path, ranks: ChangedAfterEachRead) -> Iterator[Verification]:
    with closing(ReadOnlyDatabase(tmp_path / "data", None)) as database:
        database.open()
        ledger = Shared(database, lambda _timeout_s: None)
        ledger.backlog = ranks
        yield Verification(cast(Any, ledger))


def test_entries_that_change_whenever_they_are_compared_are_compared_without_writes(
    ranks: ChangedAfterEachRead, verification: Verification
) -> None:
    report = verification.run(cast(Any, ranks))
    assert (ranks.holds, ranks.is_held) == (1, False)
    assert ranks.reads == 1 + HOLD_AFTER + 1  # all entries, then alice again and again, then alice at rest
    assert (report.entries, report.looked_at_again) == (2, HOLD_AFTER + 1)


def test_a_top_that_changes_whenever_it_is_compared_is_compared_without_writes(
    ranks: ChangedAfterEachRead, verification: Verification
) -> None:
    verification._reader = cast(Any, ranks)
    verification._follow_to_head()
    verification._compare_top(KEY, 2)
    assert (ranks.holds, ranks.is_held) == (1, False)
    assert ranks.reads == HOLD_AFTER + 1


def test_entries_that_change_during_a_hold_are_compared_in_the_next(
    ranks: ChangedAfterEachRead, verification: Verification
) -> None:
    """A slow comparison outlives a hold: the next one begins when its time has come."""
    ends_early = iter(range(7))

    def outlived(_key: InstanceKey, _players: Sequence[str]) -> None:
        if ranks.is_held and next(ends_early, None) is not None:
            verification._hold._held_until_s = 0.0
            ranks.is_held = False

    ranks.before_read = outlived
    assert verification.run(cast(Any, ranks)).entries == 2
    assert (ranks.holds, ranks.is_held) == (8, False)

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
from rankd.operations.hold import HOLD_MS, WriteHold
from rankd.operations.verify import COMPARISONS_MAX, HOLD_AFTER, Verification
from rankd.projection.port import Position, RankedPage

KEY = InstanceKey("arcade", "all_time")
READS_MAX = 2 * COMPARISONS_MAX


class ChangedAfterEachRead:
    """The ranks to compare, of a writer that appends a score after every read of them, unless writes are held."""

    def __init__(self, boards: Boards) -> None:
        self._boards = boards
        self._store = boards.rank_store
        self.reads = 0
        self.held_ms: list[int] = []

    def hold(self, hold_ms: int) -> None:
        self.held_ms.append(hold_ms)

    def positions(self, _board: str) -> dict[int, Position]:
        return {0: self._store.position(0)}

    def instances_of(self, _board: str) -> list[InstanceKey]:
        return [KEY]

    def following(self, key: InstanceKey, after: tuple[Kept, str] | None, count: int) -> RankedPage:
        return cast(RankedPage, self._read(lambda: self._store.following(key, after, count)))

    def kept_of_all(self, key: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        return cast(list[Kept | None], self._read(lambda: self._store.scores(key, players)))

    def _read(self, read: Callable[[], Any]) -> Any:
        answer = read()
        self.reads += 1
        assert self.reads < READS_MAX, "it does not end"
        if not self.held_ms or self.held_ms[-1] == 0:
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
def ledger(tmp_path: Path, boards: Boards) -> Iterator[SqliteReplicaLedger]:
    with closing(ReadOnlyDatabase(tmp_path / "data", None)) as database:
        database.open()
        yield SqliteReplicaLedger(database, lambda _timeout_s: None)


def test_entries_that_change_whenever_they_are_compared_are_compared_without_writes(
    boards: Boards, ledger: SqliteReplicaLedger
) -> None:
    ranks = ChangedAfterEachRead(boards)
    found = Verification(ledger, hold=WriteHold(ledger, ranks.hold)).run(cast(Any, ranks))
    assert ranks.held_ms == [HOLD_MS, 0]
    assert ranks.reads == 1 + HOLD_AFTER + 1  # all entries, then alice again and again, then alice at rest
    assert (found.entries, found.looked_at_again) == (2, HOLD_AFTER + 1)


def test_a_top_that_changes_whenever_it_is_compared_is_compared_without_writes(
    boards: Boards, ledger: SqliteReplicaLedger
) -> None:
    ranks = ChangedAfterEachRead(boards)
    verification = Verification(ledger, hold=WriteHold(ledger, ranks.hold))
    verification._reader = cast(Any, ranks)
    verification._follow_to_head()
    verification._compare_top(KEY, 2)
    assert ranks.held_ms == [HOLD_MS, 0]
    assert ranks.reads == HOLD_AFTER + 1

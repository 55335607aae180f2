"""The engine of one applier, with a running count of each board's entries.

    Batch → EngineStore.apply → what each row changed → a count for each board

So an operator's figures cost the same with a million instances as with one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress, repeat
from typing import TYPE_CHECKING, Self

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking, Rules
from rankd.projection import arguments
from rankd.projection.engine import EngineStore
from rankd.projection.port import Applied, Dropped, InstanceTable, Op, RowFlag, RowOutcome, UpdateBatch, Verdict

if TYPE_CHECKING:
    from typing_extensions import Buffer

_Totals = dict[str, tuple[str, int]]  # by instance: its board and number of entries
_FLAGS = range(256)
SINGLE_TABLES_MAX = 64  # between two counts
_CAME = bytes(flag & 3 == RowFlag.IS_PRESENT for flag in _FLAGS)  # 1 where a row added an entry
_WENT = bytes(flag & 3 == RowFlag.WAS_PRESENT for flag in _FLAGS)  # 1 where a row removed one


class CountingStore(EngineStore):
    """The engine with the number of entries of each board; one thread at a time writes."""

    __slots__ = ("_by_board", "_entries", "_single_before", "_single_tables")

    def __init__(self) -> None:
        super().__init__()
        self._by_board: dict[str, int] = {}  # boards with entries only
        self._entries = 0
        # Single events use few tables: their entries are counted when a reader asks or a batch follows.
        self._single_tables: dict[int, InstanceTable] = {}  # by id(), which stays valid while the table is held here
        self._single_before: _Totals = {}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a file of `save`, and count its entries once."""
        store = super().load(path)
        for key in store.instances():
            store._add(key.board, store.total(key))
        return store

    @property
    def entries(self) -> int:
        """The number of entries of all boards; any thread may read it, exact while no batch is applied."""
        return self._entries + sum(count for _, count in self._added(self._single_before))

    def board_entries(self, board: str) -> int:
        """Return the number of entries of a board; any thread may call it, exact while no batch is applied."""
        added = sum(count for changed, count in self._added(self._single_before) if changed == board)
        return self._by_board.get(board, 0) + added

    def apply(self, batch: UpdateBatch) -> Applied:
        """Apply a batch and move its partition's position, both or neither."""
        self._count_singles()
        if not _clears(batch.op):
            applied = super().apply(batch)
            self._count_rows(batch, applied)
            return applied
        arguments.check_batch(batch)  # before `_totals` reads its table
        before = self._totals(batch.instances)
        applied = super().apply(batch)
        if applied.verdict is Verdict.APPLIED:
            self._count(before)
        return applied

    def apply_one(
        self,
        table: InstanceTable,
        player: str,
        score: int,
        ties: Sequence[int],
        *,
        at: int,
        ranks: Ranking,
        partition: int,
    ) -> RowOutcome:
        """Apply one event, one row for each entry of a table, and return what the first row did."""
        # `apply` counts every other event, as a batch.
        if id(table) not in self._single_tables and id(table) in self._tables and partition == 0:
            if len(self._single_tables) >= SINGLE_TABLES_MAX:
                self._count_singles()
            self._single_tables[id(table)] = table
            self._single_before = {**self._totals(table), **self._single_before}
        return super().apply_one(table, player, score, ties, at=at, ranks=ranks, partition=partition)

    def drop(self, instance: InstanceKey) -> bool:
        """Drop an instance and free its memory; False when the store does not have it."""
        self._count_singles()
        total = self.total(instance)
        was_dropped = super().drop(instance)
        self._add(instance.board, -total)
        return was_dropped

    def drop_window(self, board: str, window: str, instances_max: int | None = None) -> Dropped:
        """Drop the instances of a window instance, at most `instances_max` scopes in one call."""
        self._count_singles()
        dropped = super().drop_window(board, window, instances_max)
        self._add(board, -dropped.entries)
        return dropped

    def _totals(self, instances: Iterable[tuple[InstanceKey, Rules]]) -> _Totals:
        total = self._native.total
        return {key.text: (key.board, total(key.text)) for key, _ in instances}

    def _added(self, before: _Totals) -> list[tuple[str, int]]:
        """Return the entries added since `before`, as (board, count) of each instance."""
        total = self._native.total
        return [(board, total(name) - was) for name, (board, was) in before.items()]

    def _count(self, before: _Totals) -> None:
        for board, count in self._added(before):
            self._add(board, count)

    def _count_singles(self) -> None:
        if self._single_tables:
            self._count(self._single_before)
            self._single_tables, self._single_before = {}, {}

    def _count_rows(self, batch: UpdateBatch, applied: Applied) -> None:
        flags = applied.flags.tobytes()
        came, went = flags.translate(_CAME), flags.translate(_WENT)
        if 1 not in came and 1 not in went:
            return
        boards = [key.board for key, _ in batch.instances]
        if boards.count(boards[0]) == len(boards):
            self._add(boards[0], came.count(1) - went.count(1))
            return
        numbers = repeat(0) if batch.instance is None else memoryview(batch.instance)
        for number, count in Counter(compress(numbers, came)).items():
            self._add(boards[number], count)
        for number, count in Counter(compress(numbers, went)).items():
            self._add(boards[number], -count)

    def _add(self, board: str, count: int) -> None:
        entries = self._by_board.get(board, 0) + count
        if entries:
            self._by_board[board] = entries
        else:
            self._by_board.pop(board, None)
        self._entries += count


def _clears(ops: Buffer | None) -> bool:
    """Return whether some row is a CLEAR, whose flags do not hold how many entries it removed."""
    try:
        return ops is not None and Op.CLEAR in memoryview(ops).tobytes()
    except TypeError:
        return False  # not a buffer: the engine refuses it

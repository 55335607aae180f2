"""The engine of one applier, with the entries of each board counted as they come and go.

    Batch → EngineStore.apply → what each row did → a count for each board

So an operator's figures cost as much with a million instances as with one.
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
from rankd.projection.port import Applied, Batch, One, Op, RowFlag, Table, Verdict

if TYPE_CHECKING:
    from typing_extensions import Buffer

_Totals = dict[str, tuple[str, int]]  # by instance: its board, and how many stand in it
_FLAGS = range(256)
_CAME = bytes(flag & 3 == RowFlag.IS_PRESENT for flag in _FLAGS)  # 1 where a row brought an entry
_WENT = bytes(flag & 3 == RowFlag.WAS_PRESENT for flag in _FLAGS)  # 1 where it took one away


class CountingStore(EngineStore):
    """The engine, which also knows how many entries a board has in all its instances; one thread at a time writes."""

    __slots__ = ("_by_board", "_entries", "_single", "_single_before")

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self._by_board: dict[str, int] = {}  # those that have any
        self._entries = 0
        # Single events follow each other by the same table, mostly: what they add is looked at when it is asked for.
        self._single: Table | None = None
        self._single_before: _Totals = {}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read back what `save` wrote, and count it once."""
        store = super().load(path)
        for key in store.instances():
            store._add(key.board, store.total(key))
        return store

    @property
    def entries(self) -> int:
        """How many entries all instances of all boards have; from any thread, and exact while nobody writes."""
        return self._entries + sum(count for _, count in self._added(self._single_before))

    def board_entries(self, board: str) -> int:
        """Return how many entries a board has in all its instances; from any thread, and exact while nobody writes."""
        added = sum(count for changed, count in self._added(self._single_before) if changed == board)
        return self._by_board.get(board, 0) + added

    def apply(self, batch: Batch) -> Applied:
        """Apply a batch and move its partition's position, both or neither."""
        self._count_singles()
        if not _clears(batch.op):
            applied = super().apply(batch)
            self._count_rows(batch, applied)
            return applied
        arguments.check_batch(batch)  # before its table is looked at
        before = self._totals(batch.instances)
        applied = super().apply(batch)
        if applied.verdict is Verdict.APPLIED:
            self._count(before)
        return applied

    def apply_one(
        self,
        table: Table,
        player: str,
        score: int,
        ties: Sequence[int],
        *,
        at: int,
        ranks: Ranking,
        partition: int = 0,
    ) -> One:
        """Apply one event, a row for each entry of a table, and say what the first row did."""
        if self._single is not table:
            self._count_singles()
            if id(table) in self._tables and partition == 0:  # others are applied as a batch, which is counted
                self._single, self._single_before = table, self._totals(table)
        return super().apply_one(table, player, score, ties, at=at, ranks=ranks, partition=partition)

    def drop(self, instance: InstanceKey) -> bool:
        """Take a whole instance out and give its memory back; False when it is not in the store."""
        self._count_singles()
        total = self.total(instance)
        found = super().drop(instance)
        self._add(instance.board, -total)
        return found

    def _totals(self, instances: Iterable[tuple[InstanceKey, Rules]]) -> _Totals:
        total = self._native.total
        return {key.text: (key.board, total(key.text)) for key, _ in instances}

    def _added(self, before: _Totals) -> list[tuple[str, int]]:
        """Return how many entries came since, as (board, count) of each instance."""
        total = self._native.total
        return [(board, total(name) - was) for name, (board, was) in before.items()]

    def _count(self, before: _Totals) -> None:
        for board, count in self._added(before):
            self._add(board, count)

    def _count_singles(self) -> None:
        if self._single is not None:
            self._count(self._single_before)
            self._single, self._single_before = None, {}

    def _count_rows(self, batch: Batch, applied: Applied) -> None:
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
    """Tell whether some row takes everybody out: of those, a row's flags do not say how many there were."""
    try:
        return ops is not None and Op.CLEAR in memoryview(ops).tobytes()
    except TypeError:
        return False  # no column at all, which the engine refuses

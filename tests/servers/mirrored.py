"""The rank store as the port has it, kept in Redis: the engine decides, the mirror writes, the reader reads.

    apply → EngineStore → what is kept now of those whom a row touched → Mirror → Redis → RedisReader → reads

It shows that mirror and reader together keep the promises of port.py. Scaled out, the projector has engine and mirror,
and API processes have the reader.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking, Rules
from rankd.projection import arguments
from rankd.projection.engine import EngineStore
from rankd.projection.port import (
    START,
    Applied,
    Dropped,
    InstanceTable,
    Op,
    Position,
    RowOutcome,
    UpdateBatch,
    Verdict,
    WindowSum,
)
from rankd.redis.connection.client import RedisClient
from rankd.redis.read.query import RedisQuery
from rankd.redis.read.reader import RedisReader
from rankd.redis.write.changes import (
    InstanceChange,
    PartitionMove,
    captured_places,
    changed,
    dropped,
    whole_instance,
)
from rankd.redis.write.mirror import CALL_UPDATES_MAX, Mirror


class KeepingReader(RedisReader):
    """A reader that keeps its last query, which knows what the answer is of."""

    query: RedisQuery

    def _begin(self, instance: InstanceKey) -> RedisQuery:
        self.query = super()._begin(instance)
        return self.query


class MirroredStore(RedisReader):
    """Any number of boards in Redis, each of `shards` shards; one process writes them."""

    def __init__(self, client: RedisClient, shards: int = 1, *, call_updates_max: int = CALL_UPDATES_MAX) -> None:
        """Begin with boards that nobody else has written."""
        super().__init__(client, lambda _board: shards)
        self.engine = EngineStore()
        self.mirror = Mirror(client, whole=self._whole, call_updates_max=call_updates_max)
        self._shards = shards
        self._rules: dict[InstanceKey, Rules] = {}
        self._positions: dict[int, Position] = {}  # as far as all that changed is written
        self._epoch = 0
        self._boards: dict[str, dict[int, int]] = {}  # the sequence each is at, by partition
        self._lock = threading.RLock()

    # Writing

    def apply(self, batch: UpdateBatch) -> Applied:
        """Apply a batch and move its partition's position, both or neither."""
        with self._lock:
            applied = self.engine.apply(batch)
            if applied.verdict is Verdict.APPLIED:
                self._epoch = max(self._epoch, applied.position.epoch)
                self._write_all(self._changes(batch), batch.partition, batch.upto)
                self._positions[batch.partition] = applied.position
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
        """Apply one event, a row for each entry of a table, and say what the first row did."""
        applied = self.apply(
            arguments.batch_of_one(table, player, score, ties, at=at, ranks=ranks, partition=partition)
        )
        return applied.row(0) if applied.verdict is Verdict.APPLIED else applied.verdict

    def drop(self, instance: InstanceKey) -> bool:
        """Take a whole instance out; False when it is not in the store."""
        with self._lock:
            is_dropped = self.engine.drop(instance)
            if is_dropped:
                self._write_beside(dropped(instance, self._rules[instance]))
            return is_dropped

    def drop_window(self, board: str, window: str, _instances_max: int | None = None) -> Dropped:
        """Take out all instances of a window instance."""
        keys = [InstanceKey(board, window, scope) for scope in self.engine.scopes(board, window)]
        entries = sum(self.engine.total(key) for key in keys)
        for key in keys:
            self.drop(key)
        return Dropped(entries, is_all=True)

    def scopes(self, board: str, window: str, player: str | None = None) -> Iterator[str]:
        """Go through the scopes of a window instance in which somebody stands, or in which this player does."""
        return self.engine.scopes(board, window, player)

    def window_sum(self, board: str, window: str) -> WindowSum:
        """Add up the instances of a window instance."""
        return self.engine.window_sum(board, window)

    def capture(self, instance: InstanceKey) -> None:
        """Remember every player's place as it is now, instead of what was remembered before."""
        with self._lock:
            self.engine.capture(instance)
            if self.engine.total(instance):
                change = changed(self.engine, instance, self._rules[instance], ())
                change.captured = captured_places(self.engine, instance)
                self._write_beside(change)

    def forget_capture(self, instance: InstanceKey) -> None:
        """Forget the captured places of an instance, if there are any."""
        with self._lock:
            self.engine.forget_capture(instance)
            if self.engine.total(instance):
                change = changed(self.engine, instance, self._rules[instance], ())
                change.forget_captured = True
                self._write_beside(change)

    # Reading: what is not an instance's

    def position(self, partition: int) -> Position:
        """Return how far this partition is written; START when nothing was."""
        arguments.check_partition(partition)
        return self._positions.get(partition, START)

    def instances(self) -> Iterator[InstanceKey]:
        """Go through the instances in which somebody stands, in no particular order."""
        for board in sorted(self._boards):
            yield from self.instances_of(board)

    def _begin(self, instance: InstanceKey) -> RedisQuery:
        self._make(instance.board)
        return super()._begin(instance)

    # Boards

    def _make(self, board: str) -> None:
        """Make a board's shards, empty, when it is met for the first time."""
        if board not in self._boards:
            with self._lock:
                if board not in self._boards:
                    self._write([], PartitionMove(0, 0, 0), board)

    def _changes(self, batch: UpdateBatch) -> list[InstanceChange]:
        dirty: dict[InstanceKey, dict[str, None]] = {}
        cleared: set[InstanceKey] = set()
        returned: dict[InstanceKey, dict[str, None]] = {}
        columns = arguments.check_batch(batch)
        for op, instance, player, _, _ in arguments.rows_of(columns):
            key, rules = batch.instances[instance]
            dirty.setdefault(key, {})
            self._rules[key] = rules  # order and ties are those of whoever stands there, or it would be malformed
            if op == Op.CLEAR:
                cleared.add(key)
                dirty[key].clear()  # who comes after is written after
            else:
                dirty[key][batch.players[player]] = None
                if op == Op.REMOVE:
                    returned.setdefault(key, {})[batch.players[player]] = None
        return [
            changed(
                self.engine,
                key,
                self._rules[key],
                list(players),
                cleared=key in cleared,
                returned=list(returned.get(key, ())),
            )
            for key, players in dirty.items()
        ]

    def _write_beside(self, change: InstanceChange) -> None:
        self._make(change.key.board)
        at = self._boards[change.key.board].get(0, 0)
        self._write([change], PartitionMove(0, at, at), change.key.board)

    def _write_all(self, changes: list[InstanceChange], partition: int, upto: int) -> None:
        """Write to the boards that changed; the others stay where they are until something changes there."""
        by_board: dict[str, list[InstanceChange]] = {}
        for change in changes:
            by_board.setdefault(change.key.board, []).append(change)
        for board, its in by_board.items():
            self._make(board)
            self._write(its, PartitionMove(partition, self._boards[board].get(partition, 0), upto), board)

    def _write(self, changes: list[InstanceChange], move: PartitionMove, board: str) -> None:
        answers = self.mirror.write(board, self._shards, self._epoch, [move], changes, time_ms=_now_ms(), dense=True)
        if any(answer.verdict is not Verdict.APPLIED for answer in answers):
            raise AssertionError(f"{board} was answered with {answers}")
        # Known once it is written: whoever knows it, in another thread, may read it.
        self._boards.setdefault(board, {})[move.partition] = move.upto

    def _whole(self, key: InstanceKey) -> Iterator[InstanceChange]:
        return whole_instance(self.engine, key, self._rules[key])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

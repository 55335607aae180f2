"""The projector's engine, which records the players that changed since the last `take`.

    Applier → RecordingStore.apply (the engine) → changed players recorded → `take` → the mirror

It records players, not values: the rows are read when they are sent. So a player who changed ten times is sent once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import compress
from typing import NamedTuple

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Rules
from rankd.projection.engine import EngineStore
from rankd.projection.placement import is_team_scope
from rankd.projection.port import Applied, Dropped, Op, RowFlag, UpdateBatch, Verdict

# A row's flags → whether it changed something.
_CHANGED = bytes(1 if flags & RowFlag.SET else 0 for flags in range(256))


class DirtyInstance:
    """The recorded changes of one instance."""

    __slots__ = ("captured", "cleared", "key", "players", "removed", "rules")

    def __init__(self, key: InstanceKey, rules: Rules | None) -> None:
        """`rules` are None for an instance that left the store."""
        self.key = key
        self.rules = rules
        self.players: dict[str, None] = {}  # in the order they came
        self.removed: dict[str, None] = {}  # those of them who were removed, even if added again
        self.cleared = False  # all entries were removed before these changes
        self.captured = False  # places were captured, or the capture forgotten


class RecordedChanges(NamedTuple):
    """Recorded changes, by board and instance."""

    boards: dict[str, dict[str, DirtyInstance]]
    rows: int  # upper bound of changed entries


class RecordingStore(EngineStore):
    """An engine that records changes; used by one thread."""

    __slots__ = ("_dirty", "_rows")

    def __init__(self) -> None:
        """Begin without changes."""
        super().__init__()
        self._dirty: dict[str, dict[str, DirtyInstance]] = {}
        self._rows = 0

    def apply(self, batch: UpdateBatch) -> Applied:
        """Apply a batch, and record the players it changed."""
        applied = super().apply(batch)
        if applied.verdict is Verdict.APPLIED and len(applied):
            for board in {key.board for key, _ in batch.instances}:
                self._dirty.setdefault(board, {})  # the board's position advances, even if no row changed
            self._record(batch, applied)
        return applied

    def drop(self, instance: InstanceKey) -> bool:
        """Remove a whole instance."""
        self._find(instance, None).cleared = True
        self._find(instance, None).players.clear()
        return super().drop(instance)

    def drop_window(self, board: str, window: str, _instances_max: int | None = None) -> Dropped:
        """Drop all instances of a window instance, and record each."""
        keys = [InstanceKey(board, window, scope) for scope in self.scopes(board, window)]
        entries = sum(self.total(key) for key in keys)
        for key in keys:
            self.drop(key)
        return Dropped(entries, is_all=True)

    def capture(self, instance: InstanceKey) -> None:
        """Capture the current places."""
        super().capture(instance)
        self._find(instance, None).captured = True

    def forget_capture(self, instance: InstanceKey) -> None:
        """Forget the captured places of an instance."""
        super().forget_capture(instance)
        self._find(instance, None).captured = True

    @property
    def rows(self) -> int:
        """The upper bound of entries changed since the last `take`."""
        return self._rows

    def take(self) -> RecordedChanges:
        """Return the recorded changes, and begin anew."""
        changes = RecordedChanges(self._dirty, self._rows)
        self._dirty, self._rows = {}, 0
        return changes

    def give_back(self, changes: RecordedChanges) -> None:
        """Record changes again that could not be sent, before the newer ones."""
        for of_board in changes.boards.values():
            for earlier in of_board.values():
                later = self._find(earlier.key, None)
                later.rules = later.rules or earlier.rules
                later.captured = later.captured or earlier.captured
                if not later.cleared:
                    later.cleared = earlier.cleared
                    later.players = {**earlier.players, **later.players}
                    later.removed = {**earlier.removed, **later.removed}
        if changes.boards:
            self._rows += changes.rows

    def put_behind(self, changes: RecordedChanges) -> None:
        """Record changes that are newer than the recorded ones."""
        earlier = self.take()
        self._dirty, self._rows = changes.boards, changes.rows
        self.give_back(earlier)

    def _find(self, key: InstanceKey, rules: Rules | None) -> DirtyInstance:
        of_board = self._dirty.get(key.board)
        if of_board is None:
            of_board = self._dirty[key.board] = {}
        dirty = of_board.get(key.text)
        if dirty is None:
            dirty = of_board[key.text] = DirtyInstance(key, rules)
        elif rules is not None:
            dirty.rules = rules
        return dirty

    def _record(self, batch: UpdateBatch, applied: Applied) -> None:
        changed = bytes(applied.flags).translate(_CHANGED)
        if not any(changed):
            return
        numbers = range(len(changed)) if batch.player is None else memoryview(batch.player)
        instances = [0] * len(changed) if batch.instance is None else memoryview(batch.instance)
        if batch.op is None:
            self._record_players(batch, compress(zip(instances, numbers, strict=True), changed))
        else:
            ops = memoryview(batch.op).tobytes()
            self._record_each(batch, compress(zip(instances, numbers, ops, strict=True), changed))
        self._rows += sum(changed)

    def _record_players(self, batch: UpdateBatch, rows: Iterable[tuple[int, int]]) -> None:
        """Record the changed players of a batch without removals."""
        by_instance: defaultdict[int, list[int]] = defaultdict(list)
        for instance, number in rows:
            by_instance[instance].append(number)
        for instance, numbers in by_instance.items():
            key, rules = batch.instances[instance]
            if not is_team_scope(key.scope):
                self._find(key, rules).players.update(dict.fromkeys(map(batch.players.__getitem__, numbers)))

    def _record_each(self, batch: UpdateBatch, rows: Iterable[tuple[int, int, int]]) -> None:
        players = batch.players
        for instance, number, operation in rows:
            key, rules = batch.instances[instance]
            if is_team_scope(key.scope):
                continue
            dirty = self._find(key, rules)
            if operation == Op.CLEAR:
                dirty.cleared = True
                dirty.players.clear()
                dirty.removed.clear()
            else:
                dirty.players[players[number]] = None
                if operation == Op.REMOVE:
                    dirty.removed[players[number]] = None

"""The projector's engine, which remembers what changed since somebody asked.

    Applier → RecordingStore.apply (the engine) → changed rows noted → `take` → the mirror

What is noted is who changed, not what to: what is kept of them is read when it is sent. So a player who changed ten
times is sent once, and what is sent twice does no harm.
"""

from __future__ import annotations

from itertools import compress
from typing import NamedTuple

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Rules
from rankd.projection.engine import EngineStore
from rankd.projection.placement import is_team_scope
from rankd.projection.port import Applied, Batch, Op, RowFlag, Verdict

# A row's flags to whether it changed something.
_CHANGED = bytes(1 if flags & RowFlag.SET else 0 for flags in range(256))


class Touched:
    """What changed in one instance."""

    __slots__ = ("captured", "cleared", "key", "players", "removed", "rules")

    def __init__(self, key: InstanceKey, rules: Rules | None) -> None:
        """`rules` are None for an instance that left the store."""
        self.key = key
        self.rules = rules
        self.players: dict[str, None] = {}  # in the order they came
        self.removed: dict[str, None] = {}  # those of them who left, whether or not they came back
        self.cleared = False  # everybody left, before these came
        self.captured = False  # places were remembered anew, or forgotten


class Changes(NamedTuple):
    """What changed since the last time, by board and instance."""

    boards: dict[str, dict[str, Touched]]
    rows: int  # at most so many entries


class RecordingStore(EngineStore):
    """The engine as the applier of a partitioned ledger uses it; by one thread."""

    __slots__ = ("_rows", "_touched")

    def __init__(self) -> None:
        """Begin without changes."""
        super().__init__()
        self._touched: dict[str, dict[str, Touched]] = {}
        self._rows = 0

    def apply(self, batch: Batch) -> Applied:
        """Apply a batch, and note what it changed."""
        applied = super().apply(batch)
        if applied.verdict is Verdict.APPLIED and len(applied):
            for key, _ in batch.instances:  # whoever waits for an event that changed nothing waits for its board
                self._touched.setdefault(key.board, {})
            self._note(batch, applied)
        return applied

    def drop(self, instance: InstanceKey) -> bool:
        """Take a whole instance out."""
        self._find(instance, None).cleared = True
        self._find(instance, None).players.clear()
        return super().drop(instance)

    def capture(self, instance: InstanceKey) -> None:
        """Remember every place as it is now."""
        super().capture(instance)
        self._find(instance, None).captured = True

    def forget_capture(self, instance: InstanceKey) -> None:
        """Forget the captured places of an instance."""
        super().forget_capture(instance)
        self._find(instance, None).captured = True

    @property
    def rows(self) -> int:
        """How many entries may have changed since the last time, at most."""
        return self._rows

    def take(self) -> Changes:
        """Return what changed, and begin anew."""
        changes = Changes(self._touched, self._rows)
        self._touched, self._rows = {}, 0
        return changes

    def give_back(self, changes: Changes) -> None:
        """Have changes sent later that could not be sent now."""
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

    def put_behind(self, changes: Changes) -> None:
        """Note changes that came after all that is noted."""
        earlier = self.take()
        self._touched, self._rows = changes.boards, changes.rows
        self.give_back(earlier)

    def _find(self, key: InstanceKey, rules: Rules | None) -> Touched:
        of_board = self._touched.get(key.board)
        if of_board is None:
            of_board = self._touched[key.board] = {}
        found = of_board.get(key.text)
        if found is None:
            found = of_board[key.text] = Touched(key, rules)
        elif rules is not None:
            found.rules = rules
        return found

    def _note(self, batch: Batch, applied: Applied) -> None:
        changed = bytes(applied.flags).translate(_CHANGED)
        if not any(changed):
            return
        numbers = range(len(changed)) if batch.player is None else memoryview(batch.player)
        instances = [0] * len(changed) if batch.instance is None else memoryview(batch.instance)
        players, op = batch.players, batch.op
        touched: Touched | None = None
        last = -1
        ops = bytes(len(changed)) if op is None else memoryview(op).tobytes()
        for instance, number, what in compress(zip(instances, numbers, ops, strict=True), changed):
            if instance != last:
                key, rules = batch.instances[instance]
                touched = None if is_team_scope(key.scope) else self._find(key, rules)
                last = instance
            if touched is None:
                continue
            if what == Op.CLEAR:
                touched.cleared = True
                touched.players.clear()
                touched.removed.clear()
            else:
                touched.players[players[number]] = None
                if what == Op.REMOVE:
                    touched.removed[players[number]] = None
        self._rows += sum(changed)

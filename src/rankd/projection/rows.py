"""Rows for the rank store: gathered one by one, sent as one batch of columns."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Rules
from rankd.ledger.event import EventSpan
from rankd.projection.port import Applied, Op, RankWriter, RowFlag, UpdateBatch, Verdict

# Plain integers: a flag of an enumeration costs a microsecond to test.
_WAS_PRESENT, _IS_PRESENT, _SET = map(int, (RowFlag.WAS_PRESENT, RowFlag.IS_PRESENT, RowFlag.SET))


class KeptChange(NamedTuple):
    """What a row changed in the kept score; None is an absent player."""

    changed: bool
    before: int | None
    after: int | None


def kept_change(applied: Applied | None, row: int) -> KeptChange:
    """Return what a row of an applied batch changed."""
    if applied is None:
        raise AssertionError("ask after the rows were applied")
    flags = applied.flags[row]
    return KeptChange(
        flags & _SET != 0,
        applied.old_score[row] if flags & _WAS_PRESENT else None,
        applied.new_score[row] if flags & _IS_PRESENT else None,
    )


class Rows:
    """Rows in the order of their events, and the answer to them."""

    def __init__(self) -> None:
        self._instances: list[tuple[InstanceKey, Rules]] = []
        self._instance_index: dict[str, int] = {}
        self._players: list[str] = []
        self._player_index: dict[str, int] = {}
        self._instance: array[int] = array("I")
        self._player: array[int] = array("I")
        self._score: array[int] = array("q")
        self._tie: array[int] = array("q")
        self._op = bytearray()
        self._applied: Applied | None = None

    def __len__(self) -> int:
        return len(self._score)

    def add(
        self, key: InstanceKey, rules: Rules, player: str, score: int = 0, tie: int = 0, *, op: Op = Op.APPLY
    ) -> int:
        """Add a row and return its number."""
        index = self._instance_index.get(key.text)
        if index is None:
            index = self._instance_index[key.text] = len(self._instances)
            self._instances.append((key, rules))
        player_index = self._player_index.get(player)
        if player_index is None:
            player_index = self._player_index[player] = len(self._players)
            self._players.append(player)
        self._instance.append(index)
        self._player.append(player_index)
        self._score.append(score)
        self._tie.append(tie)
        self._op.append(op)
        return len(self._score) - 1

    def clear(self, key: InstanceKey, rules: Rules) -> None:
        """Add a row that removes all players."""
        index = self._instance_index.setdefault(key.text, len(self._instances))
        if index == len(self._instances):
            self._instances.append((key, rules))
        self._instance.append(index)
        self._player.append(0)
        self._score.append(0)
        self._tie.append(0)
        self._op.append(Op.CLEAR)

    def apply(self, store: RankWriter, span: EventSpan) -> None:
        """Apply all rows as one batch of a span of events."""
        batch = UpdateBatch(
            instances=self._instances,
            players=self._players,
            score=self._score,
            tie=self._tie,
            instance=self._instance,
            player=self._player,
            op=bytes(self._op),
            partition=span.partition,
            after=span.after,
            upto=span.upto,
        )
        self._applied = send(store, batch)

    def change(self, row: int) -> KeptChange:
        """Return what a row changed; call it after `apply`."""
        return kept_change(self._applied, row)


def skip(store: RankWriter, span: EventSpan) -> None:
    """Move the position over events that change no rank."""
    partition, after, upto = span
    send(store, UpdateBatch(instances=[], players=[], partition=partition, after=after, upto=upto))


def send(store: RankWriter, batch: UpdateBatch) -> Applied:
    """Apply a batch that follows the store's position; any other verdict is a bug."""
    applied = store.apply(batch)
    if applied.verdict is not Verdict.APPLIED:
        raise AssertionError(f"events after {batch.after} were answered with {applied.verdict} at {applied.position}")
    return applied

"""Rows on their way to the rank store: gathered one by one, sent as one batch of columns."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Rules
from rankd.ledger.event import EventSpan
from rankd.projection.port import Applied, Batch, Op, RankWriter, RowFlag, Verdict


class Change(NamedTuple):
    """What a row did to what was kept; None is a player who is not there."""

    changed: bool
    before: int | None
    after: int | None


class Rows:
    """Rows in the order of their events, with what was asked for each remembered beside it."""

    def __init__(self) -> None:
        """Begin without rows."""
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
        """Return how many there are."""
        return len(self._score)

    def add(
        self, key: InstanceKey, rules: Rules, player: str, score: int = 0, tie: int = 0, *, op: Op = Op.APPLY
    ) -> int:
        """Add a row and return its number."""
        index = self._instance_index.get(key.text)
        if index is None:
            index = self._instance_index[key.text] = len(self._instances)
            self._instances.append((key, rules))
        who = self._player_index.get(player)
        if who is None:
            who = self._player_index[player] = len(self._players)
            self._players.append(player)
        self._instance.append(index)
        self._player.append(who)
        self._score.append(score)
        self._tie.append(tie)
        self._op.append(op)
        return len(self._score) - 1

    def clear(self, key: InstanceKey, rules: Rules) -> None:
        """Add a row that takes everybody out."""
        index = self._instance_index.setdefault(key.text, len(self._instances))
        if index == len(self._instances):
            self._instances.append((key, rules))
        self._instance.append(index)
        self._player.append(0)
        self._score.append(0)
        self._tie.append(0)
        self._op.append(Op.CLEAR)

    def apply(self, store: RankWriter, span: EventSpan) -> None:
        """Apply them all, as what the events of a span do."""
        batch = Batch(
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

    def change(self, row: int) -> Change:
        """Return what a row did, once it was applied."""
        applied = self._applied
        if applied is None:
            raise AssertionError("ask after the rows were applied")
        flags = applied.flags[row]
        return Change(
            bool(flags & RowFlag.SET),
            applied.old_score[row] if flags & RowFlag.WAS_PRESENT else None,
            applied.new_score[row] if flags & RowFlag.IS_PRESENT else None,
        )


def skip(store: RankWriter, span: EventSpan) -> None:
    """Move the position over events that change no rank."""
    partition, after, upto = span
    send(store, Batch(instances=[], players=[], partition=partition, after=after, upto=upto))


def send(store: RankWriter, batch: Batch) -> Applied:
    """Apply a batch that follows what the store has; anything else is a mistake of ours."""
    applied = store.apply(batch)
    if applied.verdict is not Verdict.APPLIED:
        raise AssertionError(f"events after {batch.after} were answered with {applied.verdict} at {applied.position}")
    return applied

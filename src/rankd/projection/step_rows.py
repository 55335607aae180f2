"""The rows of one step of ranking as columns: made by a step, applied by the store, read by the next step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Rules
from rankd.ledger.event import EventSpan
from rankd.projection.placement import RowTarget
from rankd.projection.port import Applied, RankWriter, UpdateBatch
from rankd.projection.rows import KeptChange, kept_change, send

if TYPE_CHECKING:
    from typing_extensions import Buffer


class StepRows:
    """The rows of one step as columns, and the answer to them."""

    __slots__ = ("applied", "event", "instance", "names", "score", "subject", "table", "targets", "tie")

    def __init__(
        self,
        targets: Sequence[RowTarget],
        table: Sequence[tuple[InstanceKey, Rules]],
        columns: Sequence[bytes],
        names: Sequence[str],
        subject: memoryview | None = None,
    ) -> None:
        """`columns` are instance, event, score and tie; `subject` is an index into the names, None: the event's."""
        instance, event, score, tie = columns
        self.targets = targets
        self.table = table
        self.names = names
        self.instance = memoryview(instance).cast("I")
        self.event = memoryview(event).cast("I")
        self.score = memoryview(score).cast("q")
        self.tie = memoryview(tie).cast("q")
        self.subject = self.event if subject is None else subject
        self.applied: Applied | None = None

    def apply(self, store: RankWriter, span: EventSpan) -> Applied:
        """Apply the rows as one batch of a span of events."""
        batch = UpdateBatch(
            instances=self.table,
            players=self.names,
            score=self.score,
            tie=self.tie,
            instance=self.instance,
            player=self.subject,
            partition=span.partition,
            after=span.after,
            upto=span.upto,
        )
        self.applied = send(store, batch)
        return self.applied

    @property
    def changed(self) -> tuple[Buffer, Buffer, Buffer, Buffer, Buffer, Buffer]:
        """The columns instance, event and tie, and what each row did: flags, score before and after."""
        applied = self.applied
        if applied is None:
            raise AssertionError("ask after the rows were applied")
        return self.instance, self.event, self.tie, applied.flags, applied.old_score, applied.new_score

    def change(self, row: int) -> KeptChange:
        """Return what a row changed; call it after `apply`."""
        return kept_change(self.applied, row)

"""Batches for rank stores, made from rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking, Rules
from rankd.projection.port import UpdateBatch


def batch_of_rows(
    instance: tuple[InstanceKey, Rules],
    rows: Iterable[tuple[str, int] | tuple[str, int, int]],
    *,
    partition: int = 0,
    epoch: int = 0,
    after: int = 0,
    upto: int = 0,
    ranks: Ranking | None = None,
) -> UpdateBatch:
    """Make a batch for one instance from (player, score[, tie]) rows."""
    listed = [(*row, 0)[:3] for row in rows]
    return UpdateBatch(
        instances=[instance],
        players=[player for player, _, _ in listed],
        score=array("q", [score for _, score, _ in listed]),
        tie=array("q", [tie for _, _, tie in listed]),
        partition=partition,
        epoch=epoch,
        after=after,
        upto=upto,
        ranks=ranks,
    )

"""The least positions that each shard must have, to detect a Redis that has lost writes.

    before a call: HighWater.of → the call → its head → HighWater.note: is the shard behind what it had before the call?

A shard had what this process has read from it, and what the projector's heartbeat says that every shard has. A server
answers in order, so a later answer has as much. Otherwise Redis restarted from an older log, or promoted a replica that
lagged. Its answers are stale until the backfill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rankd.domain.position import is_upto
from rankd.redis.heads import ShardHead

SHARDS_MAX = 100_000  # with more, all are dropped


class Expected(NamedTuple):
    """What a shard had at an instant."""

    head: ShardHead | None  # the highest read from it
    floor: Mapping[int, int]  # sequences by partition that every shard has, without those at 0


class HighWater:
    """The highest head this process read from each shard; from any thread."""

    def __init__(self, floor: Callable[[], Mapping[int, int]] = dict) -> None:
        """`floor` returns sequences by partition that every shard has."""
        self._floor = floor
        self._heads: dict[tuple[str, int], ShardHead] = {}

    def of(self, board: str, shard: int) -> Expected:
        """Return what a shard has now; call it before the call whose head is passed to `note`."""
        return Expected(self._heads.get((board, shard)), self._floor())

    def note(self, board: str, shard: int, head: ShardHead, before: Expected | None) -> bool:
        """Store a shard's head; return whether it is behind what it had before."""
        known = self._heads.get((board, shard))
        if head is not known and (known is None or is_upto(head.sequences, known.sequences)):
            if len(self._heads) >= SHARDS_MAX:
                self._heads.clear()
            self._heads[board, shard] = head
        if before is None:
            return False
        if not is_upto(head.sequences, before.floor):
            return True
        return (
            before.head is not None and head is not before.head and not is_upto(head.sequences, before.head.sequences)
        )

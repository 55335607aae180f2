"""The highest positions read from each shard, to detect a Redis that has lost writes.

    before a call: HighWater.of → the call → its head → HighWater.note: is the shard behind its own high water?

A server answers in order, so a call made after a position was read returns that position or a later one. Otherwise
Redis restarted from an older log, or promoted a replica that lagged. Its answers are stale until the backfill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankd.projection.port import START
from rankd.redis.heads import ShardHead

SHARDS_MAX = 100_000  # with more, all are dropped


class HighWater:
    """The highest head this process read from each shard; from any thread."""

    def __init__(self, floor: Callable[[], Sequence[int]] = tuple) -> None:
        """`floor` returns sequences that every shard reached some time ago, by the heartbeat."""
        self._floor = floor
        self._heads: dict[tuple[str, int], ShardHead] = {}

    def of(self, board: str, shard: int) -> ShardHead | None:
        """Return the highest head of a shard; call it before the call whose head is passed to `note`."""
        return self._heads.get((board, shard))

    def note(self, board: str, shard: int, head: ShardHead, before: ShardHead | None) -> bool:
        """Store a shard's head; return whether it is behind `before` or the floor."""
        known = self._heads.get((board, shard))
        if head is not known and (known is None or _has_all(head, known)):
            if len(self._heads) >= SHARDS_MAX:
                self._heads.clear()
            self._heads[board, shard] = head
        if before is not None and head is not before and not _has_all(head, before):
            return True
        positions = head.positions
        return any(positions.get(number, START).sequence < least for number, least in enumerate(self._floor()))


def _has_all(head: ShardHead, other: ShardHead) -> bool:
    positions = head.positions
    return all(
        positions.get(partition, START).sequence >= position.sequence for partition, position in other.positions.items()
    )

"""How far shards have been shown to be: Redis may come back with less.

    before a call: HighWater.of → the call → its head → HighWater.note: does the shard lack what it has shown?

A server answers in order, so whoever asks after a position was shown gets that position or a later one. Where not,
Redis has lost something: it started from an older log, or a replica that lacked something was promoted. What it answers
is stale until the projector has sent it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankd.projection.port import START
from rankd.projection.redis.heads import Head

SHARDS_MAX = 100_000  # remembered; when there are more, all are forgotten
Vector = Sequence[int]  # sequences by partition


class HighWater:
    """The furthest that each shard was seen by this process; from any thread."""

    def __init__(self, floor: Callable[[], Vector] = tuple) -> None:
        """`floor` is what every shard has had for a while, whether or not it was asked by this process."""
        self._floor = floor
        self._heads: dict[tuple[str, int], Head] = {}

    def of(self, board: str, shard: int) -> Head | None:
        """Return the furthest head of a shard so far: to be asked before the call whose head is noted."""
        return self._heads.get((board, shard))

    def note(self, board: str, shard: int, head: Head, before: Head | None) -> bool:
        """Remember how far a shard is; tell whether it lacks something that was there `before`."""
        known = self._heads.get((board, shard))
        if head is not known and (known is None or _has_all(head, known)):
            if len(self._heads) >= SHARDS_MAX:
                self._heads.clear()
            self._heads[board, shard] = head
        if before is not None and head is not before and not _has_all(head, before):
            return True
        positions = head.positions
        return any(positions.get(number, START).sequence < least for number, least in enumerate(self._floor()))


def _has_all(head: Head, other: Head) -> bool:
    positions = head.positions
    return all(positions.get(partition, START).sequence >= one.sequence for partition, one in other.positions.items())

"""Merges a block of consecutive entries of each shard, and knows which part of the merge is complete.

    shard 0:        …[a  c  d  g]…
    shard 1:     …[b  e  f]…            → c d e f are complete: before c and behind f the other shard may have more

A block says nothing about entries outside it. So the merge is complete from the last of the first entries to the first
of the last entries, except at the ends of a shard, beyond which there is nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain, pairwise
from math import ceil, sqrt
from operator import attrgetter
from typing import NamedTuple

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.projection.port import RankedEntry
from rankd.redis.read.lines import EntryLine, entries_of, known_distinct, lines_of
from rankd.redis.read.query import RedisQuery, ShardReply

_key = attrgetter("key")


class Block(NamedTuple):
    """Consecutive entries of one shard; counts are of this shard."""

    total: int
    origin: int  # players before the requested place
    start: int  # players before the first entry
    better: int  # players with a better score than the first entry; 0 where not requested
    distinct: int | None  # the same in distinct scores; None where Redis does not keep them
    lines: list[EntryLine]


NO_BLOCK = Block(0, 0, 0, 0, 0, [])


def block_of(replies: Sequence[ShardReply], query: RedisQuery) -> Block | None:
    """Decode the replies of one shard to rankd_read_page, one per call; None where the player is absent."""
    blocks: list[Block] = []
    for reply in replies:
        if not reply.values:
            return NO_BLOCK
        total, origin, *rest = reply.values
        if origin is None:
            return None
        start, better, distinct, flat, metadata = rest
        lines = lines_of(reply.form, flat[::2], flat[1::2])
        if metadata is not None:
            query.note_metadata([line.player for line in lines], metadata)
        blocks.append(Block(total, origin, start, better or 0, distinct, lines))
    first, *others = [block for block in blocks if block.lines] or blocks[:1]
    for other in others:
        first.lines.extend(other.lines)
    return first


class MergedEntries:
    """The entries of some blocks in standing order; indices count from the first of all shards."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        """Each block has an entry before the requested place and one from it on, where its shard has them."""
        self._blocks = blocks
        self.lines = (
            blocks[0].lines if len(blocks) == 1 else sorted(chain.from_iterable(block.lines for block in blocks))
        )
        self.start = sum(block.start for block in blocks)
        self.total = sum(block.total for block in blocks)
        self.origin = sum(block.origin for block in blocks)
        first, last = 0, len(self.lines)
        if len(blocks) > 1:
            for block in blocks:
                if not block.lines:
                    continue
                if block.start > 0:
                    first = max(first, bisect_left(self.lines, block.lines[0]))
                if block.start + len(block.lines) < block.total:
                    last = min(last, bisect_left(self.lines, block.lines[-1]) + 1)
        self._complete_first, self._complete_last = self.start + first, self.start + last

    def has(self, first: int, last: int) -> bool:
        """Return whether all existing entries from index `first` to before `last` are here."""
        first, last = max(first, 0), min(last, self.total)
        return first >= last or (self._complete_first <= first and last <= self._complete_last)

    def between(self, first: int, last: int) -> list[EntryLine]:
        """Return the entries from index `first` to before `last`."""
        return self.lines[max(first, 0) - self.start : max(last - self.start, 0)]

    def better(self, index: int) -> int:
        """Return the number of players with a better score than the entry at an index of this window."""
        key = self.lines[index - self.start].key
        better = 0
        for block in self._blocks:
            if block.start > 0 and block.lines and block.lines[0].key == key:
                better += block.better
            else:
                better += block.start + bisect_left(block.lines, key, key=_key)
        return better

    def distinct(self, index: int, instance: InstanceKey) -> int:
        """Return the number of distinct scores better than an entry's; for a single block only."""
        (block,) = self._blocks
        count = known_distinct(block.distinct, instance.text)
        lines = self.lines[: index - self.start + 1]
        return count + sum(line.key != following.key for line, following in pairwise(lines))

    def entries(self, first: int, last: int, ranking: Ranking, instance: InstanceKey) -> list[RankedEntry]:
        """Return the entries from index `first` to before `last` with their places."""
        first = max(first, 0)
        lines = self.between(first, last)
        if not lines:
            return []
        better = self.better(first) if ranking is Ranking.COMPETITION else 0
        distinct = self.distinct(first, instance) if ranking is Ranking.DENSE else 0
        return entries_of(lines, ranking, first, better, distinct)


def quota(entries: int, shards: int) -> int:
    """Return the entries that each shard should send so that the merge hardly ever lacks one of `entries`.

    Players are spread by a hash: a shard's share of any range varies by a few times its square root.
    """
    share = entries / shards
    return min(entries, ceil(share + 6 * sqrt(share)) + 8) if shards > 1 else entries

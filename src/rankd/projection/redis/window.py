"""Entries next to each other, merged from a block of each shard, and how far the merge can be trusted.

    shard 0:        …[a  c  d  g]…
    shard 1:     …[b  e  f]…            → c d e f are sure: before c and behind f the other shard may have more

A block cut from a shard's order says nothing of what stands outside it. So the merge is sure from the last of the
first entries to the first of the last entries, except at the ends of a shard, beyond which there is nothing.
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
from rankd.projection.port import Entry
from rankd.projection.redis.lines import Line, entries_of, known_distinct, lines_of
from rankd.projection.redis.query import RedisQuery, Reply

_key = attrgetter("key")


class Block(NamedTuple):
    """Entries of one shard that stand next to each other."""

    total: int  # in the shard
    origin: int  # how many of the shard stand before what was asked for
    start: int  # how many stand before the first entry
    better: int  # how many of the shard have a better score than the first entry; 0 where not asked for
    distinct: int | None  # the same in distinct scores; None where these are not kept
    lines: list[Line]


NO_BLOCK = Block(0, 0, 0, 0, 0, [])


def block_of(replies: Sequence[Reply], query: RedisQuery) -> Block | None:
    """Read the replies of one shard to rankd_read_page, one for each stretch; None where a player is absent."""
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


class Window:
    """The entries of some blocks in standing order; indices count from the first of all shards."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        """Each block has an entry before and one from what was asked for, where its shard has them."""
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
        self._sure_first, self._sure_last = self.start + first, self.start + last

    def has(self, first: int, last: int) -> bool:
        """Say whether the entries from index `first` to before `last` are all here, as far as there are any."""
        first, last = max(first, 0), min(last, self.total)
        return first >= last or (self._sure_first <= first and last <= self._sure_last)

    def between(self, first: int, last: int) -> list[Line]:
        """Return the entries from index `first` to before `last`."""
        return self.lines[max(first, 0) - self.start : max(last - self.start, 0)]

    def better(self, index: int) -> int:
        """Return how many have a better score than the entry at an index that the window has."""
        key = self.lines[index - self.start].key
        better = 0
        for block in self._blocks:
            if block.start > 0 and block.lines and block.lines[0].key == key:
                better += block.better
            else:
                better += block.start + bisect_left(block.lines, key, key=_key)
        return better

    def distinct(self, index: int, instance: InstanceKey) -> int:
        """Return how many distinct scores are better than that of an entry; of a single block only."""
        (block,) = self._blocks
        count = known_distinct(block.distinct, instance.text)
        lines = self.lines[: index - self.start + 1]
        return count + sum(one.key != other.key for one, other in pairwise(lines))

    def entries(self, first: int, last: int, ranking: Ranking, instance: InstanceKey) -> list[Entry]:
        """Return the entries from index `first` to before `last` with their places."""
        first = max(first, 0)
        lines = self.between(first, last)
        if not lines:
            return []
        better = self.better(first) if ranking is Ranking.COMPETITION else 0
        distinct = self.distinct(first, instance) if ranking is Ranking.DENSE else 0
        return entries_of(lines, ranking, first, better, distinct)


def quota(entries: int, shards: int) -> int:
    """Return how many entries each shard should send so that together they hardly ever lack one of `entries`.

    Players are spread by a hash: a shard has its share of any stretch, give or take a few times its square root.
    """
    share = entries / shards
    return min(entries, ceil(share + 6 * sqrt(share)) + 8) if shards > 1 else entries

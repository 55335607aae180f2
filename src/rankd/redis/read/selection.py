"""Finds the entry at a place among several shards, without reading the entries before it.

    samples of every shard (index, entry) → two entries that the place lies between → samples between these → …

The samples of each shard bound the number of players before any entry, and so does the sum over shards. The entries
whose bounds are certainly before and behind a place bracket it. The first samples are taken where evenly hashed players
would put the place, so that the first bracket is usually small enough; each further round narrows it by about SAMPLES,
however players are spread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from rankd.redis.read.lines import EntryLine, MarkKind, lines_of, mark
from rankd.redis.read.query import Arguments, RedisQuery, ShardReply

SAMPLES = 64  # of each shard in a round, for one place
CANDIDATES_MAX = 4_000  # entries in all brackets over all shards, few enough to read them
ROUNDS_MAX = 12
_SAMPLES_MIN = 6
_EVEN_SAMPLES = 33


class Bracket(NamedTuple):
    """The range of a place: from `low` on (None: the start), at most `spans` entries in each shard."""

    low: EntryLine | None
    high: EntryLine | None
    spans: list[int]
    total: int


class Samples:
    """One round of samples: for each shard, the entries at some indices."""

    def __init__(self, replies: Sequence[ShardReply]) -> None:
        """Decode the replies of all shards, in the order of shards."""
        self.total = sum(reply.total for reply in replies)
        self._totals = [reply.total for reply in replies]
        self._indices: list[list[int]] = []
        self._lines: list[list[EntryLine]] = []
        for reply in replies:
            flat = reply.values[1] if reply.values else []
            lines = lines_of(reply.form, flat[1::3], flat[2::3]) if flat else []
            sampled = sorted(dict(zip(flat[::3], lines, strict=True)).items())
            self._indices.append([index for index, _ in sampled])
            self._lines.append([line for _, line in sampled])
        self._all = sorted(chain.from_iterable(self._lines))

    def bracket(self, place: int) -> Bracket:
        """Return the closest samples between which the place (an index) certainly lies."""
        behind = self._first(lambda line: self._most_before(line) > place)
        low = self._all[behind - 1] if behind > 0 else None
        beyond = self._first(lambda line: self._least_before(line) > place)
        high = self._all[beyond] if beyond < len(self._all) else None
        spans = []
        for shard, total in enumerate(self._totals):
            first = 0 if low is None else self._bounds(shard, low)[0]
            last = total if high is None else self._bounds(shard, high)[1]
            spans.append(last - first)
        return Bracket(low, high, spans, self.total)

    def _first(self, holds: Callable[[EntryLine], bool]) -> int:
        """Return the index of the first sample for which a monotonic predicate holds."""
        low, high = 0, len(self._all)
        while low < high:
            middle = (low + high) // 2
            if holds(self._all[middle]):
                high = middle
            else:
                low = middle + 1
        return low

    def _least_before(self, line: EntryLine) -> int:
        return sum(self._bounds(shard, line)[0] for shard in range(len(self._totals)))

    def _most_before(self, line: EntryLine) -> int:
        return sum(self._bounds(shard, line)[1] for shard in range(len(self._totals)))

    def _bounds(self, shard: int, line: EntryLine) -> tuple[int, int]:
        """Return the least and the most entries of a shard before an entry."""
        indices, lines = self._indices[shard], self._lines[shard]
        at = bisect_left(lines, line)
        if at < len(lines) and lines[at] == line:
            return indices[at], indices[at]
        return indices[at - 1] + 1 if at > 0 else 0, indices[at] if at < len(lines) else self._totals[shard]


def bracket_of_place(query: RedisQuery, place: int) -> Bracket:
    """Return the bracket of a place (an index from 0): one round trip, more where players are spread unevenly."""
    replies = query.every("rankd_read_samples", _EVEN_SAMPLES, SAMPLES, "i", place // query.shards)
    return narrowed(query, Samples(replies), lambda _: [place])[1][0]


def narrowed(
    query: RedisQuery, samples: Samples, places_of: Callable[[int], Sequence[int]]
) -> tuple[Sequence[int], list[Bracket]]:
    """Return the places and their brackets, narrowed until all their entries can be read.

    `places_of` returns the places for a total; no round trip where the brackets are small already.
    """
    for _ in range(ROUNDS_MAX):
        places = places_of(samples.total)
        brackets = [samples.bracket(place) for place in places]
        if sum(sum(bracket.spans) for bracket in brackets) <= max(CANDIDATES_MAX, 2 * query.shards * len(places)):
            break
        pairs: list[bytes] = []
        for bracket in brackets:
            pairs += _mark(bracket.low, start=True)
            pairs += _mark(bracket.high, start=False)
        count = max(_SAMPLES_MIN, SAMPLES // len(places))
        arguments: Arguments = (count, *pairs)
        samples = Samples(query.every("rankd_read_between", *arguments))
    return places, brackets


def _mark(line: EntryLine | None, *, start: bool) -> tuple[bytes, bytes]:
    if line is not None:
        return mark(MarkKind.AT, line.score, line.tie, line.player_bytes)
    return b"" if start else b"end", b""

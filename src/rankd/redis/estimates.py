"""Estimated places below the exact top, from the number of players in each score step.

    step            0   1   2 … 1,023   1,024–1,025   1,026–1,027 …       (and the same below zero)
    players         …                                                   → bounds of the place, and a guess

A player below the top stands behind everyone in a better step and before everyone in a worse one. The bounds always
contain the true place as of the positions that were read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import frexp
from typing import NamedTuple

from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE, Order, Ranking
from rankd.projection.port import QUANTILE_PPM_MAX, Bounds, RankedBucket
from rankd.redis.forms import Form
from rankd.redis.read.query import RedisQuery, ShardReply
from rankd.redis.read.tail import shape_of

STEPS_AN_OCTAVE = 512
COARSE_STEPS = 64
STEPS_SENT_MAX = 8_192  # per shard, within 5 ms; a shard with more sends coarse steps
_STEPS_MAX = 2 * 66 * STEPS_AN_OCTAVE  # above the number of possible steps
_LOW_BITS = 11  # the largest scores exceed a double's mantissa by this
_ROUNDED_FROM = 2**52  # from here on, the step calculation may round a score, by less than _ROUNDED_BY
_ROUNDED_BY = 4_096


class Estimate(NamedTuple):
    """An estimated place: `least` ≤ place ≤ `most`, with `guess` in between."""

    guess: int
    least: int
    most: int

    @property
    def bounds(self) -> Bounds:
        """The lowest and the highest possible place."""
        return self.least, self.most


class StepCount(NamedTuple):
    """Counts around a score below the top: players in the top, in better steps, and in the score's own step."""

    order: Order
    score: int
    better: int
    level: int
    top: int

    def place(self, ranking: Ranking) -> Estimate:
        """Estimate the place of a player in this step."""
        before, width = self._before()
        if ranking is Ranking.ORDINAL:
            least, most = max(self.top, self.better) + 1, self.better + self.level
            return _between(least, most, self.better + round((before + 0.5) / width * self.level) + 1)
        most = self.better + (1 if width == 1 else self.level)
        return _between(self.better + 1, most, self.better + before * self.level // width + 1)

    def place_of_newcomer(self, ranking: Ranking) -> Estimate:
        """Estimate the place of a new player with this score, behind the whole top."""
        before, width = self._before()
        most = self.better + 1 + (0 if width == 1 and ranking is not Ranking.ORDINAL else self.level)
        guess = self.better + round((before + 0.5) / width * self.level) + 1
        return _between(max(self.top, self.better) + 1, most, guess)

    def _before(self) -> tuple[int, int]:
        """Return how many scores of the step are better, and its width; players are assumed to be spread evenly."""
        low, high = step_bounds(self.score)
        return high - self.score if self.order is Order.DESC else self.score - low, high - low + 1


def _between(least: int, most: int, guess: int) -> Estimate:
    most = max(least, most)
    return Estimate(max(least, min(most, guess)), least, most)


# Steps


def step_bounds(score: int) -> tuple[int, int]:
    """Return the lowest and the highest score that share a step with this one.

    >>> step_bounds(1_000), step_bounds(1_025), step_bounds(-1_025)
    ((1000, 1000), (1024, 1025), (-1025, -1024))
    """
    return scores_of_step(_step(float(score)))


def scores_of_step(step: int, steps: int = 1) -> tuple[int, int]:
    """Return the lowest and the highest score of `steps` consecutive steps.

    >>> scores_of_step(0), scores_of_step(11 * 512), scores_of_step(-11 * 512)
    ((0, 0), (1024, 1025), (-1025, -1024))
    """
    low, high = _edge(step), _edge(step + steps) - 1
    if step < 0:
        low, high = 1 - _edge(1 - step), -_edge(1 - step - steps)
    if max(abs(low), abs(high)) >= _ROUNDED_FROM:
        low, high = low - _ROUNDED_BY, high + _ROUNDED_BY
    return max(SCORE_MIN_POSSIBLE, low), min(SCORE_MAX_POSSIBLE, high)


def _edge(step: int) -> int:
    """Return the least score ≥ 0 whose step is not below this one."""
    if step <= 0:
        return 0
    exponent, part = divmod(step, STEPS_AN_OCTAVE)
    if exponent == 0:
        return 1
    return -(-((STEPS_AN_OCTAVE + part) << exponent) // (2 * STEPS_AN_OCTAVE))


def _step(score: float) -> int:
    """Return the step of a score; functions/tail.lua does the same."""
    if score == 0:
        return 0
    fraction, exponent = frexp(abs(score))
    step = exponent * STEPS_AN_OCTAVE + int((fraction - 0.5) * 2 * STEPS_AN_OCTAVE)
    return step if score > 0 else -step


def step_of(form: Form, score: int, tie: int = 0) -> int:
    """Return the step in which Redis counts a score; it rounds as functions/tail.lua does."""
    number, prefix = form.encode(score, tie)
    direction, origin = shape_of(form)
    if form.is_packed:
        return _step(float(origin) + direction * float(number >> form.tie_bits))
    key = float(number) * float(1 << _LOW_BITS) + float(int.from_bytes(prefix[:2], "big"))
    return _step(key if direction > 0 else -key - 1.0)


# Score distribution


class ScoreRange(NamedTuple):
    """The number of players with a score from `low` to `high`, inclusive."""

    low: int
    high: int
    players: int


class ScoreSpread:
    """The score distribution of an instance, in ascending ranges that do not overlap."""

    def __init__(self, score_ranges: Sequence[ScoreRange]) -> None:
        """Take at least one range, with at least one player."""
        self._score_ranges = score_ranges
        self._below = [0]  # players below the range of the same index
        for score_range in score_ranges:
            self._below.append(self._below[-1] + score_range.players)

    @property
    def total(self) -> int:
        """The number of players."""
        return self._below[-1]

    def quantile(self, ppm: int) -> int:
        """Estimate the quantile; the result is in the same range as the exact one."""
        wanted = max(1, -(-ppm * self.total // QUANTILE_PPM_MAX))
        at = next(at for at, below in enumerate(self._below) if below >= wanted) - 1
        low, high, count = self._score_ranges[at]
        return low + (2 * (wanted - self._below[at]) - 1) * (high - low + 1) // (2 * count)

    def histogram(self, buckets: int) -> list[RankedBucket]:
        """Estimate the number of players in each of `buckets` equal ranges."""
        lowest, highest = self._score_ranges[0].low, self._score_ranges[-1].high
        width = -(-(highest - lowest + 1) // buckets)
        starts = list(range(lowest, highest + 1, width))
        below = [self._count_below(start) for start in starts] + [self.total]
        ends = [*(start - 1 for start in starts[1:]), highest]
        return [
            RankedBucket(low, high, below[at + 1] - below[at])
            for at, (low, high) in enumerate(zip(starts, ends, strict=True))
        ]

    def _count_below(self, score: int) -> int:
        at = bisect_left(self._score_ranges, score, key=lambda score_range: score_range.high)
        if at == len(self._score_ranges):
            return self.total
        low, high, count = self._score_ranges[at]
        return self._below[at] + (max(0, score - low) * count // (high - low + 1))


def read_spread(query: RedisQuery) -> ScoreSpread | None:
    """Return the score distribution if some players are below the exact top, else None: one round trip."""
    replies = query.every("rankd_tail_steps", STEPS_SENT_MAX)
    if not query.is_cut:
        return None
    is_coarse = any(reply.values[1] for reply in replies if reply.values)
    counts: dict[int, int] = {}
    for reply in replies:
        for step, count in _counts(reply):
            number = step // COARSE_STEPS if is_coarse and not reply.values[1] else step
            counts[number] = counts.get(number, 0) + count
    if not counts:
        return None
    query.is_estimated = True
    steps = COARSE_STEPS if is_coarse else 1
    return ScoreSpread(
        [ScoreRange(*scores_of_step(number * steps, steps), counts[number]) for number in sorted(counts)]
    )


def read_steps(query: RedisQuery, *, is_coarse: bool) -> dict[int, int]:
    """Return the number of players in each step, without a limit on steps: one round trip."""
    counts: dict[int, int] = {}
    for reply in query.every("rankd_tail_steps", 0 if is_coarse else _STEPS_MAX):
        for step, count in _counts(reply):
            counts[step] = counts.get(step, 0) + count
    return counts


def _counts(reply: ShardReply) -> Iterator[tuple[int, int]]:
    if reply.values:
        flat = reply.values[2]
        yield from zip(flat[::2], flat[1::2], strict=True)

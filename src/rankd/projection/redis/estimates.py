"""Places below the exact top, from how many players have a score in each step.

    step            0   1   2 … 1,023   1,024–1,025   1,026–1,027 …       (and the same below zero)
    how many        …                                                   → least and most who stand before, and a guess

A player below the top stands behind all who have a better step, and before all who have a worse one. What is told is
between bounds that surely hold the truth as of the positions that were read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import frexp
from typing import NamedTuple

from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE, Order, Ranking
from rankd.projection.port import QUANTILE_PPM_MAX, Bounds, Bucket
from rankd.projection.redis.forms import Form
from rankd.projection.redis.query import RedisQuery, Reply
from rankd.projection.redis.tail import shape_of

STEPS_AN_OCTAVE = 512
COARSE_STEPS = 64
STEPS_SENT_MAX = 8_192  # of one shard: more are sent in coarse steps, within 5 ms
_STEPS_MAX = 2 * 66 * STEPS_AN_OCTAVE  # more than there are
_LOW_BITS = 11  # by which the largest scores are longer than a double is
_ROUNDED_FROM = 2**52  # scores from here on may be rounded when their step is looked for, by less than _ROUNDED_BY
_ROUNDED_BY = 4_096


class Estimate(NamedTuple):
    """A place that is not known exactly: `least` ≤ place ≤ `most`, and `guess` is in between."""

    guess: int
    least: int
    most: int

    @property
    def bounds(self) -> Bounds:
        """Between which places it is."""
        return self.least, self.most


class Counted(NamedTuple):
    """What is known of a score below the top: `top` are in it, `better` have a better step, `level` the same one."""

    order: Order
    score: int
    better: int
    level: int
    top: int

    def place(self, ranking: Ranking) -> Estimate:
        """Return about where one of those who share the step stands."""
        before, width = self._before()
        if ranking is Ranking.ORDINAL:
            least, most = max(self.top, self.better) + 1, self.better + self.level
            return _between(least, most, self.better + round((before + 0.5) / width * self.level) + 1)
        most = self.better + (1 if width == 1 else self.level)
        return _between(self.better + 1, most, self.better + before * self.level // width + 1)

    def place_of_newcomer(self, ranking: Ranking) -> Estimate:
        """Return about where somebody else with this score would stand, behind the whole top."""
        before, width = self._before()
        most = self.better + 1 + (0 if width == 1 and ranking is not Ranking.ORDINAL else self.level)
        guess = self.better + round((before + 0.5) / width * self.level) + 1
        return _between(max(self.top, self.better) + 1, most, guess)

    def _before(self) -> tuple[int, int]:
        """Return how many scores of the step are better, and how many it has: they are taken to be spread evenly."""
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
    """Return the lowest and the highest score that are in one of some steps, the first of which is named.

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
    """Return the least score, from zero up, whose step is not below this one."""
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
    """Return the step that Redis counts a score in, by the roundings of functions/tail.lua."""
    number, prefix = form.encode(score, tie)
    direction, origin = shape_of(form)
    if form.is_packed:
        return _step(float(origin) + direction * float(number >> form.tie_bits))
    key = float(number) * float(1 << _LOW_BITS) + float(int.from_bytes(prefix[:2], "big"))
    return _step(key if direction > 0 else -key - 1.0)


# How scores are spread


class Stretch(NamedTuple):
    """How many players have scores from `low` to `high`, both included."""

    low: int
    high: int
    players: int


class Spread:
    """How the scores of an instance are spread, in stretches that do not overlap, from the lowest on."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        """At least one stretch, in which somebody is."""
        self._stretches = stretches
        self._below = [0]  # how many have a score in one of the stretches before
        for stretch in stretches:
            self._below.append(self._below[-1] + stretch.players)

    @property
    def total(self) -> int:
        """How many there are."""
        return self._below[-1]

    def quantile(self, ppm: int) -> int:
        """Return about the smallest score that a part of the players do not exceed: it is in the true one's stretch."""
        wanted = max(1, -(-ppm * self.total // QUANTILE_PPM_MAX))
        at = next(at for at, below in enumerate(self._below) if below >= wanted) - 1
        low, high, count = self._stretches[at]
        return low + (2 * (wanted - self._below[at]) - 1) * (high - low + 1) // (2 * count)

    def histogram(self, buckets: int) -> list[Bucket]:
        """Return about how many scores are in each of some equal ranges."""
        lowest, highest = self._stretches[0].low, self._stretches[-1].high
        width = -(-(highest - lowest + 1) // buckets)
        starts = list(range(lowest, highest + 1, width))
        below = [self._count_below(start) for start in starts] + [self.total]
        ends = [*(start - 1 for start in starts[1:]), highest]
        return [
            Bucket(low, high, below[at + 1] - below[at])
            for at, (low, high) in enumerate(zip(starts, ends, strict=True))
        ]

    def _count_below(self, score: int) -> int:
        at = bisect_left(self._stretches, score, key=lambda one: one.high)
        if at == len(self._stretches):
            return self.total
        low, high, count = self._stretches[at]
        return self._below[at] + (max(0, score - low) * count // (high - low + 1))


def read_spread(query: RedisQuery) -> Spread | None:
    """Return how scores are spread where some are below the exact top, else None: one round trip."""
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
    return Spread([Stretch(*scores_of_step(number * steps, steps), counts[number]) for number in sorted(counts)])


def read_steps(query: RedisQuery, *, is_coarse: bool) -> dict[int, int]:
    """Return how many players have a score in each step, however many steps there are: one round trip."""
    found: dict[int, int] = {}
    for reply in query.every("rankd_tail_steps", 0 if is_coarse else _STEPS_MAX):
        for step, count in _counts(reply):
            found[step] = found.get(step, 0) + count
    return found


def _counts(reply: Reply) -> Iterator[tuple[int, int]]:
    if reply.values:
        flat = reply.values[2]
        yield from zip(flat[::2], flat[1::2], strict=True)

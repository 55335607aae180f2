"""Counts, what-if places, quantiles and histograms: probes in logarithmic time, on one shard or over several."""

from __future__ import annotations

from collections.abc import Sequence

from rankd.domain.order import Order, Ranking
from rankd.errors import RanksUnavailable
from rankd.projection.port import QUANTILE_PPM_MAX, Bucket, Place
from rankd.projection.redis.asking import Asking, form_of
from rankd.projection.redis.lines import Line, MarkKind, known_distinct, lines_of, mark
from rankd.projection.redis.lookups import count_before
from rankd.projection.redis.selection import SAMPLES, Samples, narrowed
from rankd.projection.redis.window import Window, block_of

_ATTEMPTS_MAX = 5
_SLACK = 2  # entries of each shard that may come or go between two round trips
_EVEN_SAMPLES = 9
_SAMPLES_MIN = 5


def place_of_score(asking: Asking, score: int, tie: int, ranking: Ranking) -> Place:
    """Return where a score would stand: one round trip."""
    asking.check_dense(ranking)
    kind = MarkKind.TIE if ranking is Ranking.ORDINAL else MarkKind.FIRST
    options = "d" if ranking is Ranking.DENSE else ""
    replies = asking.every("rankd_read_counts", options, *mark(kind, score, tie))
    if ranking is Ranking.DENSE:
        (reply,) = replies
        distinct = (None if reply.values[2] is None else reply.values[2][0]) if reply.values else 0
        return Place(1 + known_distinct(distinct, asking.instance.text), asking.total)
    return Place(1 + sum(reply.values[1][0] for reply in replies if reply.values), asking.total)


def count_between(asking: Asking, low: int, high: int) -> int:
    """Return how many scores lie from `low` to `high`: one round trip."""
    marks = (
        *mark(MarkKind.FIRST, low),
        *mark(MarkKind.LAST, high),
        *mark(MarkKind.FIRST, high),
        *mark(MarkKind.LAST, low),
    )
    replies = asking.every("rankd_read_counts", "", *marks)
    form = form_of(replies)
    if form is None or low > high:
        return 0
    # Which of the two ends stands first depends on the order, and that is known only now.
    first, last = (2, 3) if form.order is Order.DESC else (0, 1)
    return sum(reply.values[1][last] - reply.values[1][first] for reply in replies if reply.values)


def quantiles(asking: Asking, ppm: Sequence[int]) -> list[int] | None:
    """Return quantiles: one round trip; over several shards two, or more where players are spread unevenly."""
    if asking.shards == 1:
        (reply,) = asking.every("rankd_read_quantiles", *ppm)
        if not reply.values:
            return None
        flat = reply.values[1]
        return [line.score for line in lines_of(reply.form, flat[1::3], flat[2::3])]
    if not ppm:
        asking.every("rankd_read_total")
        return [] if asking.total else None
    for _ in range(_ATTEMPTS_MAX):
        lines = _entries_at_shares(asking, ppm)
        if lines is not None:
            return [line.score for line in lines] or None
    raise RanksUnavailable(f"{asking.instance.text} changes faster than its shards can be asked; try again in a moment")


def _entries_at_shares(asking: Asking, ppm: Sequence[int]) -> list[Line] | None:
    """Return the entries whose scores are the quantiles; none where nobody stands, None where too much changed."""
    each = max(_SAMPLES_MIN, SAMPLES // len(ppm))
    # The order is not known yet, so guesses are made for both: the samples for one of them are of little use.
    guesses = [part for q in sorted({*ppm, *(QUANTILE_PPM_MAX - q for q in ppm)}) for part in ("f", q)]
    replies = asking.every("rankd_read_samples", _EVEN_SAMPLES, each, *guesses)
    form = form_of(replies)
    if form is None:
        return []

    def places_of(total: int) -> list[int]:
        wanted = [max(1, -(-q * total // QUANTILE_PPM_MAX)) for q in ppm]
        return [total - one if form.order is Order.DESC else one - 1 for one in wanted]

    places, brackets = narrowed(asking, Samples(replies), places_of)
    questions = []
    for bracket in brackets:
        origin = (
            mark(MarkKind.AT, bracket.low.score, bracket.low.tie, bracket.low.player_bytes)
            if bracket.low
            else ("",) * 2
        )
        questions += [
            (shard, ("", _SLACK, bracket.spans[shard] + _SLACK, "mark", *origin)) for shard in range(asking.shards)
        ]
    answers = asking.some("rankd_read_page", questions)
    lines = []
    for number, place in enumerate(places):
        part = answers[number * asking.shards : (number + 1) * asking.shards]
        window = Window([block for reply in part if (block := block_of([reply], asking)) is not None])
        if window.total == 0 or place >= window.total or not window.has(place, place + 1):
            return None
        lines += window.between(place, place + 1)
    return lines


def histogram(asking: Asking, buckets: int) -> list[Bucket]:
    """Return how many scores are in each of some equal ranges: one round trip, two over several shards."""
    if asking.shards == 1:
        (reply,) = asking.every("rankd_read_histogram", buckets)
        if not reply.values:
            return []
        total, flat, below = reply.values
        ends = sorted(line.score for line in lines_of(reply.form, flat[1::3], flat[2::3]))
        return _buckets(ends[0], ends[-1], buckets, [*below, total])
    replies = asking.every("rankd_read_samples", 2, 0)
    scores = [
        line.score
        for reply in replies
        if reply.values
        for line in lines_of(reply.form, reply.values[1][1::3], reply.values[1][2::3])
    ]
    form = form_of(replies)
    if form is None:
        return []
    lowest, highest = min(scores), max(scores)
    starts = [low for low, _ in _ranges(lowest, highest, buckets)]
    if form.order is Order.DESC:
        # Those at least as good as a score stand before the end of it.
        *at_least, above = count_before(
            asking, [*(mark(MarkKind.LAST, low) for low in starts), mark(MarkKind.FIRST, highest)]
        )
        return _buckets(lowest, highest, buckets, [asking.total - count for count in [*at_least, above]])
    counts = count_before(asking, [*(mark(MarkKind.FIRST, low) for low in starts), mark(MarkKind.LAST, highest)])
    return _buckets(lowest, highest, buckets, counts)


def _ranges(lowest: int, highest: int, buckets: int) -> list[tuple[int, int]]:
    width = -(-(highest - lowest + 1) // buckets)
    return [(low, min(low + width - 1, highest)) for low in range(lowest, highest + 1, width)]


def _buckets(lowest: int, highest: int, buckets: int, below: Sequence[int]) -> list[Bucket]:
    """Return the ranges; `below` says how many scores are below each, and below the end of the last."""
    ranges = _ranges(lowest, highest, buckets)
    return [Bucket(low, high, below[at + 1] - below[at]) for at, (low, high) in enumerate(ranges)]

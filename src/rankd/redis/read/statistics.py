"""Counts, what-if places, quantiles and histograms: probes in logarithmic time, on one shard or over several."""

from __future__ import annotations

from collections.abc import Sequence

from rankd.domain.order import Order, Ranking
from rankd.errors import RankingUnavailable, RanksUnavailable
from rankd.projection.port import QUANTILE_PPM_MAX, RankedBucket, RankedPlace
from rankd.redis.estimates import ScoreSpread, StepCount, read_spread
from rankd.redis.read.lines import MarkKind, known_distinct, lines_of, mark
from rankd.redis.read.lookups import count_before
from rankd.redis.read.query import RedisQuery, ShardReply, form_of
from rankd.redis.read.selection import SAMPLES, Samples, narrowed
from rankd.redis.read.window import MergedEntries, block_of

_ATTEMPTS_MAX = 5
_SLACK = 2  # entries of each shard that may come or go between two round trips
_EVEN_SAMPLES = 9
_SAMPLES_MIN = 5


def place_of_score(query: RedisQuery, score: int, tie: int, ranking: Ranking) -> RankedPlace:
    """Return the place that a score would have: one round trip."""
    query.check_dense(ranking)
    kind = MarkKind.TIE if ranking is Ranking.ORDINAL else MarkKind.FIRST
    options = "d" if ranking is Ranking.DENSE else ""
    steps = (*mark(MarkKind.STEP, score), *mark(MarkKind.STEP_END, score))
    replies = query.every("rankd_read_counts", options, *mark(kind, score, tie), *steps)
    if ranking is Ranking.DENSE:
        (reply,) = replies
        distinct = (None if reply.values[2] is None else reply.values[2][0]) if reply.values else 0
        return RankedPlace(1 + known_distinct(distinct, query.instance.text), query.total)
    counts = [reply.values[1] for reply in replies if reply.values]
    before, better, end = (sum(count[part] for count in counts) for part in range(3))
    if not query.is_cut or before < query.top:
        return RankedPlace(1 + before, query.total)
    query.is_estimated = True
    counted = StepCount(query.form.order, score, better, end - better, query.top)
    estimate = counted.place_of_newcomer(ranking)
    return RankedPlace(estimate.guess, query.total, estimate.bounds)


def count_between(query: RedisQuery, low: int, high: int) -> int:
    """Return the number of scores from `low` to `high`: one round trip. Refused where it is not exact."""
    marks = (
        *mark(MarkKind.FIRST, low),
        *mark(MarkKind.LAST, high),
        *mark(MarkKind.FIRST, high),
        *mark(MarkKind.LAST, low),
    )
    replies = query.every("rankd_read_counts", "", *marks)
    form = form_of(replies)
    if form is None or low > high:
        return 0
    # The order decides which end comes first, and is known only from the replies.
    first, last = (2, 3) if form.order is Order.DESC else (0, 1)
    firsts: int = sum(reply.values[1][first] for reply in replies if reply.values)
    lasts: int = sum(reply.values[1][last] for reply in replies if reply.values)
    if query.is_cut and lasts >= query.top:
        raise RankingUnavailable(
            f"{query.instance.text}: below its exact top, scores are not counted one by one; ask for the distribution"
        )
    return lasts - firsts


def quantiles(query: RedisQuery, ppm: Sequence[int]) -> list[int] | None:
    """Return quantiles: one round trip; over several shards two, or more where players are spread unevenly.

    With players below an exact top, quantiles are estimates: one round trip more.
    """
    if query.shards == 1:
        (reply,) = query.every("rankd_read_quantiles", *ppm)
        if spread := _spread(query):
            return [spread.quantile(q) for q in ppm]
        if not reply.values:
            return None
        flat = reply.values[1]
        return [line.score for line in lines_of(reply.form, flat[1::3], flat[2::3])]
    if not ppm:
        query.every("rankd_read_total")
        return [] if query.total else None
    for _ in range(_ATTEMPTS_MAX):
        scores = _scores_at_shares(query, ppm)
        if scores is not None:
            return scores or None
    raise RanksUnavailable(f"{query.instance.text} changes faster than its shards can be asked; try again in a moment")


def _spread(query: RedisQuery) -> ScoreSpread | None:
    """Return the score distribution if some players are below an exact top: one round trip, or none."""
    return read_spread(query) if query.is_cut else None


def _scores_at_shares(query: RedisQuery, ppm: Sequence[int]) -> list[int] | None:
    """Return the quantiles; an empty list for an empty instance, None where too much changed."""
    each = max(_SAMPLES_MIN, SAMPLES // len(ppm))
    # The order is not known yet, so samples are taken for both.
    guesses = [part for q in sorted({*ppm, *(QUANTILE_PPM_MAX - q for q in ppm)}) for part in ("f", q)]
    replies = query.every("rankd_read_samples", _EVEN_SAMPLES, each, *guesses)
    if spread := _spread(query):
        return [spread.quantile(q) for q in ppm]
    form = form_of(replies)
    if form is None:
        return []

    def places_of(total: int) -> list[int]:
        wanted = [max(1, -(-q * total // QUANTILE_PPM_MAX)) for q in ppm]
        return [total - place if form.order is Order.DESC else place - 1 for place in wanted]

    places, brackets = narrowed(query, Samples(replies), places_of)
    questions = []
    for bracket in brackets:
        origin = (
            mark(MarkKind.AT, bracket.low.score, bracket.low.tie, bracket.low.player_bytes)
            if bracket.low
            else ("",) * 2
        )
        questions += [
            (shard, ("", _SLACK, bracket.spans[shard] + _SLACK, "mark", *origin)) for shard in range(query.shards)
        ]
    answers = query.some("rankd_read_page", questions)
    scores = []
    for number, place in enumerate(places):
        part = answers[number * query.shards : (number + 1) * query.shards]
        window = MergedEntries([block for reply in part if (block := block_of([reply], query)) is not None])
        if window.total == 0 or place >= window.total or not window.has(place, place + 1):
            return None
        scores += [line.score for line in window.between(place, place + 1)]
    return scores


def histogram(query: RedisQuery, buckets: int) -> list[RankedBucket]:
    """Return the number of scores in each of `buckets` equal ranges: one round trip, two over several shards.

    With players below an exact top, the counts and both ends are estimates: two round trips.
    """
    if query.shards == 1:
        (reply,) = query.every("rankd_read_histogram", buckets)
        if spread := _spread(query):
            return spread.histogram(buckets)
        if not reply.values:
            return []
        total, flat, below = reply.values
        ends = sorted(line.score for line in lines_of(reply.form, flat[1::3], flat[2::3]))
        return _buckets(ends[0], ends[-1], buckets, [*below, total])
    replies = query.every("rankd_read_samples", 2, 0)
    spread = _spread(query)
    return _histogram_over_shards(query, replies, buckets) if spread is None else spread.histogram(buckets)


def _histogram_over_shards(query: RedisQuery, replies: Sequence[ShardReply], buckets: int) -> list[RankedBucket]:
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
        # Players at least as good as a score stand before its LAST mark.
        *at_least, above = count_before(
            query, [*(mark(MarkKind.LAST, low) for low in starts), mark(MarkKind.FIRST, highest)]
        )
        return _buckets(lowest, highest, buckets, [query.total - count for count in [*at_least, above]])
    counts = count_before(query, [*(mark(MarkKind.FIRST, low) for low in starts), mark(MarkKind.LAST, highest)])
    return _buckets(lowest, highest, buckets, counts)


def _ranges(lowest: int, highest: int, buckets: int) -> list[tuple[int, int]]:
    width = -(-(highest - lowest + 1) // buckets)
    return [(low, min(low + width - 1, highest)) for low in range(lowest, highest + 1, width)]


def _buckets(lowest: int, highest: int, buckets: int, below: Sequence[int]) -> list[RankedBucket]:
    """Return the ranges; `below` is the number of scores below each, and below the end of the last."""
    ranges = _ranges(lowest, highest, buckets)
    return [RankedBucket(low, high, below[at + 1] - below[at]) for at, (low, high) in enumerate(ranges)]

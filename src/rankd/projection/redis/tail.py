"""Boards with exact_top: the first so many are ranked exactly, the rest within bounds, for a third of the memory.

    sorted set   the first exact_top, kept exact by the projector, whose engine knows everybody
    s            scores of all players, packed
    t            how many players have a score in each of some steps

A player below the top stands behind all who have a better step, and before all who have a worse one: between
`better_min` and `better_max` of them are better. functions/tail.lua says how steps are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp

import msgspec

from rankd.domain.order import Kept, Order
from rankd.projection.redis.asking import Asking
from rankd.projection.redis.changes import InstanceChange
from rankd.projection.redis.forms import Form, read_described
from rankd.projection.redis.keys import bucket_hash, shard_of, tail_buckets_for
from rankd.projection.redis.operations import Operation, ShardCall

STEPS_AN_OCTAVE = 512
_NUMBER_BYTES = 8


class TailStanding(msgspec.Struct, frozen=True):
    """Where about a player stands who is not in the top: `rank_min` ≤ place ≤ `rank_max`, and `rank` our best guess."""

    player: str
    score: int
    tie: int
    rank: int
    rank_min: int
    rank_max: int
    total: int


def set_tail(call: ShardCall, operation: Operation, change: InstanceChange, form: Form, left: Sequence[str]) -> None:
    """Let an operation also write the scores of all players, in the top or not, and cut the top off."""
    prefixes = b""
    if form.is_packed:
        numbers = form.encode_packed(change.score, change.tie)
    else:
        numbers, prefixes = form.encode_prefixed(change.score, change.tie)
    rows: list[str | int] = [""] * (3 * len(change.players))
    rows[::3] = change.players
    rows[1::3] = [bucket_hash(player) for player in change.players]
    rows[2::3] = numbers
    gone = [part for player in left for part in (player, bucket_hash(player))]
    cut: list[str | int] = ["", "", 0]
    if change.last_of_top is not None:
        kept, player = change.last_of_top
        number, prefix = form.encode(*kept)
        cut = [str(number), player, call.blob(prefix) if prefix else 0]
    buckets = str(tail_buckets_for(max(2 * change.exact_top, change.total)))
    operation.tail = [buckets, *_shape(form), rows, call.blob(prefixes) if prefixes else 0, gone, *cut]


def read_tail(asking: Asking, player: str) -> TailStanding | None:
    """Return where about a player below the top stands: two round trips.

    None when the player is in the top, where other reads are exact, or is not there at all.
    """
    shard = shard_of(player, asking.shards)
    found = asking.some("rankd_tail_find", [(shard, (player, bucket_hash(player)))])[0]
    if not found.values or not found.values[0] or found.values[1]:
        return None
    value, described = found.values[0], read_described(found.described)
    form = described.form
    kept = form.decode(int.from_bytes(value[:_NUMBER_BYTES], "big", signed=True), value[_NUMBER_BYTES:])
    scale = 1 << form.tie_bits if form.is_packed else 0
    replies = asking.every("rankd_tail_count", value, scale, *_shape(form))
    top, better, level = (sum(reply.values[part] for reply in replies if reply.values) for part in range(3))
    rank_min, rank_max = max(top, better) + 1, better + level
    # Within a step, scores are taken to be spread evenly.
    guess = better + round(_share_before(kept, form) * level) + 1
    return TailStanding(
        player,
        kept.score,
        kept.tie,
        max(rank_min, min(rank_max, guess)),
        rank_min,
        max(rank_min, rank_max),
        described.total,
    )


def _shape(form: Form) -> tuple[int, str]:
    """Return which way scores go as keys grow, and the score of the lowest key."""
    direction = -1 if form.order is Order.DESC else 1
    return direction, str(~form.lowest_key if form.order is Order.DESC else form.lowest_key)


def step_bounds(score: int) -> tuple[int, int]:
    """Return the lowest and the highest score that share a step with this one.

    >>> step_bounds(1_000), step_bounds(1_025), step_bounds(-1_025)
    ((1000, 1000), (1024, 1025), (-1025, -1024))
    """
    if score == 0:
        return 0, 0
    size = abs(score)
    width = max(1, 2 ** (frexp(size)[1] - 1) // STEPS_AN_OCTAVE)
    low = size // width * width
    return (low, low + width - 1) if score > 0 else (-low - width + 1, -low)


def _share_before(kept: Kept, form: Form) -> float:
    """Return which share of a step's players stand before one of them, going by the score alone."""
    low, high = step_bounds(kept.score)
    before = high - kept.score if form.order is Order.DESC else kept.score - low
    return (before + 0.5) / (high - low + 1)

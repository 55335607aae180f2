"""Boards with exact_top: the top is ranked exactly, the rest within bounds, for a third of the memory.

    sorted set   the first exact_top players, kept exact by the projector, whose engine has all players
    s            scores of all players, packed
    t            number of players in each score step

functions/tail.lua writes them; estimates.py turns steps into places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankd.domain.order import Kept, Order
from rankd.redis.forms import Form, read_described
from rankd.redis.read.query import RedisQuery
from rankd.redis.write.changes import InstanceChange
from rankd.redis.write.operations import Operation, ShardCall

_NUMBER_BYTES = 8
_SCANNED_BUCKETS = 500  # about; sent within 5 ms


def set_tail(call: ShardCall, operation: Operation, change: InstanceChange, form: Form, left: Sequence[str]) -> None:
    """Extend an operation to write the scores of all changed players, and to trim the top."""
    prefixes = b""
    if form.is_packed:
        numbers = form.encode_packed(change.score, change.tie)
    else:
        numbers, prefixes = form.encode_prefixed(change.score, change.tie)
    rows: list[str] = [""] * (2 * len(change.players))
    rows[::2] = change.players
    rows[1::2] = numbers
    cut: list[str | int] = ["", "", 0]
    if change.last_of_top is not None:
        kept, player = change.last_of_top
        number, prefix = form.encode(*kept)
        cut = [str(number), player, call.blob(prefix) if prefix else 0]
    operation.tail = [
        change.total // change.shards,
        *shape_of(form),
        rows,
        call.blob(prefixes) if prefixes else 0,
        left,
        *cut,
    ]


def shape_of(form: Form) -> tuple[int, str]:
    """Return the direction of scores as keys grow, and the score of the lowest key."""
    direction = -1 if form.order is Order.DESC else 1
    return direction, str(~form.lowest_key if form.order is Order.DESC else form.lowest_key)


def scan_all(query: RedisQuery) -> Iterator[tuple[str, Kept]]:
    """Iterate over the kept scores of all players, in and below the top: a round trip for some thousands.

    A player who does not change meanwhile is yielded at least once.
    """
    for shard in range(query.shards):
        cursor = b"0"
        while True:
            (reply,) = query.some("rankd_tail_scan", [(shard, (cursor, _SCANNED_BUCKETS))])
            if not reply.values:
                break
            _, cursor, buckets = reply.values
            form = read_described(reply.described).form
            for text in buckets:
                yield from _records(text, form)
            if cursor == b"0":
                break


def _records(text: bytes, form: Form) -> Iterator[tuple[str, Kept]]:
    value_bytes = _NUMBER_BYTES if form.is_packed else 2 * _NUMBER_BYTES
    at = 0
    while at < len(text):
        first = at + 1 + text[at]
        value = text[first : first + value_bytes]
        number = int.from_bytes(value[:_NUMBER_BYTES], "big", signed=True)
        yield text[at + 1 : first].decode(), form.decode(number, value[_NUMBER_BYTES:])
        at = first + value_bytes

"""What a read saw: its answer, and how far the shards it asked were applied.

the line a shard begins its reply with → Head → over all shards the least → Seen
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import msgspec

from rankd.domain.position import tokens
from rankd.errors import RanksNewer, RanksUnavailable
from rankd.projection.port import START, Position
from rankd.projection.redis.keys import LAYOUT_VERSION

Result = TypeVar("Result")
_POSITION_MARK = "p"


class Head(NamedTuple):
    """How far one board shard is, as its meta says."""

    line: bytes  # equal lines are of one instant
    time_ms: int  # of the last write
    positions: dict[int, Position]
    token: str  # the same as clients see it


class Seen(msgspec.Struct, Generic[Result], frozen=True):
    """An answer, and what it is an answer of: over several shards the least of what each had.

    `captured` and `metadata` hold only what was asked for and is there: places at the last capture, and partition and
    sequence of the event that a score's metadata came with.
    """

    result: Result
    positions: dict[int, Position]  # of every partition
    time_ms: int  # when the oldest of the shards was written to
    captured: dict[str, int] = {}
    metadata: dict[str, tuple[int, int]] = {}
    exact: bool = True  # nothing of the answer is an estimate, and nobody is left out who has no exact place


@lru_cache(maxsize=1_024)
def read_head(line: bytes, board: str, shard: int) -> Head:
    """Read what a shard says of itself: RanksUnavailable when it is not there, RanksNewer when it is beyond us."""
    if not line:
        raise RanksUnavailable(
            f"shard {shard} of {board} is not in Redis: wait for the projector, which brings it back", is_missing=True
        )
    words = line.decode().split(" ")
    fields = dict(zip(words[::2], words[1::2], strict=True))
    if int(fields.get("version", 0)) != LAYOUT_VERSION:
        raise RanksNewer(
            f"shard {shard} of {board} is written in layout {fields.get('version')}, this node knows {LAYOUT_VERSION}: "
            "upgrade rankd"
        )
    positions = {}
    for field, value in fields.items():
        if field.startswith(_POSITION_MARK) and field[1:].isdigit():
            epoch, sequence = value.split(":")
            positions[int(field[1:])] = Position(int(epoch), int(sequence))
    token = tokens({partition: one.sequence for partition, one in positions.items()})
    return Head(line, int(fields.get("time", 0)), positions, token)


def least_positions(heads: Iterable[Head]) -> dict[int, Position]:
    """Return how far every one of these shards is applied, for each partition."""
    first, *others = heads
    least = dict(first.positions)
    for head in others:
        for partition in least.keys() | head.positions.keys():
            one, other = least.get(partition, START), head.positions.get(partition, START)
            least[partition] = Position(min(one.epoch, other.epoch), min(one.sequence, other.sequence))
    return least

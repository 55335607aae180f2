"""How far a shard of a board is applied: the line that each of its replies begins with."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from rankd.domain.position import tokens
from rankd.errors import RanksNewer, RanksUnavailable
from rankd.projection.port import START, Position
from rankd.projection.redis.keys import LAYOUT_VERSION

_POSITION_MARK = "p"


class Head(NamedTuple):
    """How far one board shard is, as its meta says."""

    line: bytes  # equal lines are of one instant
    positions: dict[int, Position]
    token: str  # the same as clients see it


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
    return Head(line, positions, token)


def least_positions(heads: Iterable[Head]) -> dict[int, Position]:
    """Return how far every one of these shards is applied, for each partition."""
    first, *others = heads
    least = dict(first.positions)
    for head in others:
        for partition in least.keys() | head.positions.keys():
            one, other = least.get(partition, START), head.positions.get(partition, START)
            least[partition] = Position(min(one.epoch, other.epoch), min(one.sequence, other.sequence))
    return least

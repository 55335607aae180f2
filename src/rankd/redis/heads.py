"""The head of a shard's reply: a line with the positions applied to the shard."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from rankd.domain.position import tokens
from rankd.errors import RanksNewer, RanksUnavailable
from rankd.projection.port import START, Position
from rankd.redis.keys import LAYOUT_VERSION

_POSITION_MARK = "p"


class ShardHead(NamedTuple):
    """The applied positions of one board shard."""

    line: bytes  # equal lines belong to the same state
    positions: dict[int, Position]
    sequences: dict[int, int]  # of the positions, without those at 0
    token: str  # the positions as clients see them


@lru_cache(maxsize=1_024)
def read_head(line: bytes, board: str, shard: int) -> ShardHead:
    """Parse a shard's head; RanksUnavailable when the shard is missing, RanksNewer when its layout is newer."""
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
    sequences = {partition: position.sequence for partition, position in positions.items()}
    above_0 = {partition: sequence for partition, sequence in sequences.items() if sequence}
    return ShardHead(line, positions, above_0, tokens(sequences))


def least_positions(heads: Iterable[ShardHead]) -> dict[int, Position]:
    """Return the lowest position of each partition over these shards."""
    first, *others = heads
    least = dict(first.positions)
    for head in others:
        for partition in least.keys() | head.positions.keys():
            lowest, position = least.get(partition, START), head.positions.get(partition, START)
            least[partition] = Position(min(lowest.epoch, position.epoch), min(lowest.sequence, position.sequence))
    return least

"""The projector's heartbeat: that it keeps up, for whoever serves what it ranks.

rankd:{projector}:heartbeat   hash   epoch, time (ms, when all that was in the ledger was mirrored), positions
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rankd.projection.redis.client import Call, Client

KEY = b"rankd:{projector}:heartbeat"


class Beat(NamedTuple):
    """What the projector said last."""

    epoch: int
    time_ms: int
    positions: tuple[int, ...]


def write_beat(client: Client, beat: Beat) -> bool:
    """Say that all is mirrored; False when a successor has spoken."""
    answer = client.call(Call("rankd_beat", [KEY], [beat.epoch, beat.time_ms, ",".join(map(str, beat.positions))]))
    return bool(answer[0] == b"applied")


def read_beat(client: Client) -> Beat | None:
    """Return what the projector said last; None when none ever ran on this Redis."""
    answer: Sequence[bytes | None] = client.call(Call("rankd_read_beat", [KEY], read_only=True))
    epoch, time_ms, positions = answer
    if epoch is None or time_ms is None or positions is None:
        return None
    return Beat(int(epoch), int(time_ms), tuple(map(int, positions.split(b","))))

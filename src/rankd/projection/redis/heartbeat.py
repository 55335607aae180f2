"""The projector's heartbeat: that it keeps up, for whoever serves what it ranks.

rankd:{projector}:heartbeat   hash   epoch, time (ms, when all that was in the ledger was mirrored), positions
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rankd.errors import RanksUnfit
from rankd.projection.redis.client import Call, Client
from rankd.projection.redis.query import Caller

KEY = b"rankd:{projector}:heartbeat"


class Beat(NamedTuple):
    """What the projector said last."""

    ledger: str  # whose events are ranked
    epoch: int
    time_ms: int
    positions: tuple[int, ...]


def write_beat(client: Client, beat: Beat) -> bool:
    """Say that all is mirrored; False when a successor has spoken, RanksUnfit when another ledger's projector has."""
    positions = ",".join(map(str, beat.positions))
    answer = client.call(Call("rankd_beat", [KEY], [beat.epoch, beat.time_ms, positions, beat.ledger]))
    if answer[0] == b"other":
        raise other_ledger()
    return bool(answer[0] == b"applied")


def claim_redis(client: Caller, ledger: str) -> None:
    """Refuse to write where the ranks of another ledger are: they would be mixed."""
    beat = read_beat(client)
    if beat is not None and beat.ledger != ledger:
        raise other_ledger()


def read_beat(client: Caller) -> Beat | None:
    """Return what the projector said last; None when none ever ran on this Redis."""
    answer: Sequence[bytes | None]
    (answer,) = client.call_all([Call("rankd_read_beat", [KEY], read_only=True)])
    epoch, time_ms, positions, ledger = answer
    if epoch is None or time_ms is None or positions is None or ledger is None:
        return None
    return Beat(ledger.decode(), int(epoch), int(time_ms), tuple(map(int, positions.split(b","))))


def other_ledger() -> RanksUnfit:
    """Return the error for a Redis that serves somebody else."""
    return RanksUnfit(
        "this Redis holds the ranks of another ledger: give each installation one of its own, or FLUSHALL it if the "
        "other one is gone"
    )

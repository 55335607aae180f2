"""The projector's heartbeat in Redis, by which processes that append know its lag.

rankd:{projector}:heartbeat   hash   epoch, time (ms, when the mirror last reached the ledger's head), positions,
                                     mirrored (positions that every shard of every board has)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rankd.errors import RanksUnfit
from rankd.redis.connection.client import FunctionCall, RedisClient
from rankd.redis.read.query import Caller

KEY = b"rankd:{projector}:heartbeat"


class HeartbeatRecord(NamedTuple):
    """One heartbeat."""

    ledger: str  # identity of the ledger that the projector ranks
    epoch: int
    time_ms: int
    positions: tuple[int, ...]  # that the projector has ranked
    mirrored: tuple[int, ...] = ()  # that every shard of every board has; none while that is not known


def write_beat(client: RedisClient, beat: HeartbeatRecord) -> bool:
    """Write a heartbeat; False when a successor has written one, RanksUnfit when another ledger's projector has."""
    positions, mirrored = (",".join(map(str, vector)) for vector in (beat.positions, beat.mirrored))
    arguments: list[int | str] = [beat.epoch, beat.time_ms, positions, beat.ledger, mirrored]
    answer = client.call(FunctionCall("rankd_beat", [KEY], arguments))
    if answer[0] == b"other":
        raise other_ledger()
    return bool(answer[0] == b"applied")


def claim_redis(client: Caller, ledger: str) -> None:
    """Refuse a Redis that holds the ranks of another ledger."""
    beat = read_beat(client)
    if beat is not None and beat.ledger != ledger:
        raise other_ledger()


def read_beat(client: Caller) -> HeartbeatRecord | None:
    """Return the last heartbeat; None when no projector ever ran on this Redis."""
    answer: Sequence[bytes | None]
    (answer,) = client.call_all([FunctionCall("rankd_read_beat", [KEY], read_only=True)])
    epoch, time_ms, positions, ledger, mirrored = answer
    if epoch is None or time_ms is None or positions is None or ledger is None:
        return None
    return HeartbeatRecord(ledger.decode(), int(epoch), int(time_ms), _vector(positions), _vector(mirrored or b""))


def _vector(written: bytes) -> tuple[int, ...]:
    return tuple(map(int, written.split(b","))) if written else ()


def other_ledger() -> RanksUnfit:
    """Return the error for a Redis that holds the ranks of another ledger."""
    return RanksUnfit(
        "this Redis holds the ranks of another ledger: give each installation one of its own, or FLUSHALL it if the "
        "other one is gone"
    )

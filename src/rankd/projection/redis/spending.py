"""What callers have spent of their rates over all API processes, summed up in Redis.

rankd:{rates}:<limit>:<hash of the caller>   when the bucket is full again, ms by Redis' own clock; gone when it is
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from rankd.projection.redis.client import Call
from rankd.projection.redis.query import Caller

_PREFIX = b"rankd:{rates}:"
_CALLER_BYTES = 12
CALLERS_A_CALL_MAX = 1_000


class Spent(NamedTuple):
    """What one caller spent of one limit since the last time: so many ms of the time its bucket fills in."""

    limit: str
    caller: str
    ms: float


def share_spending(client: Caller, spent: Sequence[Spent]) -> list[int]:
    """Add what was spent here to what was spent anywhere; return how many ms each bucket needs to be full again."""
    owed: list[int] = []
    for start in range(0, len(spent), CALLERS_A_CALL_MAX):
        some = spent[start : start + CALLERS_A_CALL_MAX]
        call = Call("rankd_rates", [_key(one) for one in some], [f"{one.ms:.3f}" for one in some])
        owed += client.call_all([call])[0]
    return owed


def _key(one: Spent) -> bytes:
    # Callers may be long, and addresses are nobody's business.
    caller = blake2b(one.caller.encode(), digest_size=_CALLER_BYTES).hexdigest()
    return _PREFIX + f"{one.limit}:{caller}".encode()

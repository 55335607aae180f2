"""Rate limits shared by all API processes: the sum of what each caller has spent, in Redis.

rankd:{rates}:<limit>:<hash of the caller>   when the bucket is full again, ms by Redis' clock; expires then
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from rankd.redis.connection.client import FunctionCall
from rankd.redis.read.query import Caller

_PREFIX = b"rankd:{rates}:"
_CALLER_BYTES = 12
CALLERS_A_CALL_MAX = 1_000


class LimitSpending(NamedTuple):
    """What one caller spent of one limit since the last call, in ms of refill time."""

    limit: str
    caller: str
    ms: float


def share_spending(client: Caller, spent: Sequence[LimitSpending]) -> list[int]:
    """Add this process's spending to the shared sums; return the ms until each bucket is full again."""
    owed: list[int] = []
    for start in range(0, len(spent), CALLERS_A_CALL_MAX):
        some = spent[start : start + CALLERS_A_CALL_MAX]
        call = FunctionCall("rankd_rates", [_key(item) for item in some], [f"{item.ms:.3f}" for item in some])
        owed += client.call_all([call])[0]
    return owed


def _key(spent: LimitSpending) -> bytes:
    # Hashed: callers may be long, and their addresses are private.
    caller = blake2b(spent.caller.encode(), digest_size=_CALLER_BYTES).hexdigest()
    return _PREFIX + f"{spent.limit}:{caller}".encode()

"""How far the ranks in Redis are behind the ledger, in a process that appends to it."""

from __future__ import annotations

from contextlib import ExitStack

from rankd.clock import SystemClock
from rankd.ledger.port import SharedLedger
from rankd.node.lag import LagMonitor
from rankd.redis.connection.client import RedisClient, connect
from rankd.redis.connection.late import LateClient
from rankd.redis.heartbeat import claim_redis
from rankd.redis.read.rank_source import Heartbeat

READ_WAIT_S = 0.3  # then a read falls back to stored standings


def open_projector_lag(
    opened: ExitStack, ledger: SharedLedger, ranks_url: str, *, stale_after_ms: int, lag_max_ms: int
) -> tuple[LateClient, Heartbeat, LagMonitor]:
    """Connect to Redis, now or when it is there, and measure the lag of the projector; `opened` closes all of it."""
    client = LateClient(lambda: _connect_claimed(ranks_url, ledger.identity))
    opened.callback(client.close)
    heartbeat = Heartbeat(client, stale_after_ms, SystemClock().now)
    opened.callback(heartbeat.close)
    lag = LagMonitor(
        lambda: ledger.heads().sequences,
        lambda: heartbeat.positions,
        lag_max_ms,
        is_held=lambda: ledger.backlog.read().is_held,
    )
    opened.callback(lag.close)
    return client, heartbeat, lag


def _connect_claimed(ranks_url: str, ledger: str) -> RedisClient:
    client = connect(ranks_url, answer_wait_s=READ_WAIT_S)
    try:
        claim_redis(client, ledger)
    except BaseException:
        client.close()
        raise
    return client

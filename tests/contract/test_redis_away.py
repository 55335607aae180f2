"""Redis, or a part of it, is away: whoever asks for the rest of it is answered, and nobody waits for long."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Any, cast

import pytest
from tests.servers.redis import RedisCluster, RedisServer
from tests.servers.waiting import wait_until
from tests.timing import BUSY_MACHINE

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Rules
from rankd.errors import RanksUnavailable, RanksUnfit
from rankd.redis.connection.breaker import Breaker
from rankd.redis.connection.client import UNKNOWN_SERVER, FunctionCall, RedisClient, connect
from rankd.redis.connection.late import LateClient
from rankd.redis.heartbeat import HeartbeatRecord, claim_redis, read_beat, write_beat
from rankd.redis.keys import ShardKeys
from rankd.redis.read.rank_source import Heartbeat, Layout, RedisRankSource
from rankd.redis.write.changes import InstanceChange, PartitionMove
from rankd.redis.write.mirror import Mirror

ANSWER_WAIT_S = 0.3
AT_ONCE_S = 0.05 * BUSY_MACHINE
RULES = Rules(keep=Keep.LATEST)
KEYS = [b"{b%d}" % number for number in range(30)]


class CountedServers:
    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self.node_of = client.node_of
        self.round_trips = 0

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        self.round_trips += 1
        return self._client.call_all(calls)

    def call_each(self, calls: Sequence[FunctionCall]) -> list[Any]:
        self.round_trips += 1
        return self._client.call_each(calls)


def get(key: bytes) -> list[FunctionCall]:
    return [FunctionCall("GET", [key], is_command=True)]


def connected(server: RedisServer, ledger: str = "ours") -> RedisClient:
    client = connect(server.url, answer_wait_s=ANSWER_WAIT_S)
    try:
        claim_redis(client, ledger)
    except BaseException:
        client.close()
        raise
    return client


@pytest.mark.timed
def test_one_master_of_a_cluster_that_is_away_holds_no_reads_of_the_others_up(own_cluster: RedisCluster) -> None:
    with connect(own_cluster.url, answer_wait_s=ANSWER_WAIT_S) as client:
        breaker = Breaker(client, away_s=60.0)
        lost = KEYS[0]
        name = client.node_of(lost)
        others = [key for key in KEYS if client.node_of(key) != name]
        own_cluster.master_of(lost).kill()

        with pytest.raises(RanksUnavailable) as refused:
            breaker.call_all(get(lost))
        assert refused.value.away == name
        assert "127.0.0.1" in str(refused.value)
        assert "127.0.0.1" not in refused.value.public_message
        began = time.monotonic()
        for key in others:
            assert breaker.call_all(get(key)) == [None]
        with pytest.raises(RanksUnavailable, match="is away"):
            breaker.call_all(get(lost))
        assert time.monotonic() - began < AT_ONCE_S * len(KEYS)
        assert breaker.away == (name,)


def test_digests_of_many_boards_are_asked_for_at_once_and_answered_where_possible(own_cluster: RedisCluster) -> None:
    keys = [InstanceKey(f"b{number}") for number in range(12)]
    with connect(own_cluster.url, answer_wait_s=ANSWER_WAIT_S) as client:
        for number, key in enumerate(keys):
            change = InstanceChange(
                key, RULES, players=["p"], score=array("q", [1]), tie=array("q", [1]), total=1, digest=number
            )
            Mirror(client).write(key.board, 1, 1, [PartitionMove(0, 0, 5)], [change], time_ms=1)
        servers = CountedServers(client)
        rank_source = RedisRankSource(Breaker(servers, away_s=60.0), Layout(dict), cast(Heartbeat, None))
        absent = InstanceKey("absent")

        assert rank_source.digests([*keys, absent]) == {key: (number, "0-5") for number, key in enumerate(keys)}
        assert servers.round_trips == 1

        name = client.node_of(ShardKeys(keys[0].board, 0).meta)
        there = [key for key in keys if client.node_of(ShardKeys(key.board, 0).meta) != name]
        own_cluster.master_of(ShardKeys(keys[0].board, 0).meta).kill()
        for _ in range(3):
            assert list(rank_source.digests(keys)) == there
        assert servers.round_trips == 4


def test_a_call_that_redis_refuses_says_nothing_against_the_server(redis_client: RedisClient) -> None:
    with pytest.raises(RanksUnavailable) as refused:
        redis_client.call(FunctionCall("rankd_write", [b"rankd:{b#0}:meta"], ["nonsense"]))
    assert refused.value.away is None


def test_keys_of_a_master_that_is_replaced_are_read_again(own_cluster: RedisCluster) -> None:
    with connect(own_cluster.url, answer_wait_s=ANSWER_WAIT_S) as client:
        breaker = Breaker(client)
        lost = KEYS[0]
        own_cluster.master_of(lost).kill()

        def is_read() -> bool:
            try:
                return breaker.call_all(get(lost)) == [None]
            except RanksUnavailable:
                return False

        wait_until(is_read)


def test_a_redis_that_comes_later_is_found(own_redis: RedisServer) -> None:
    own_redis.stop()
    client = LateClient(lambda: connected(own_redis))
    try:
        with pytest.raises(RanksUnavailable) as refused:
            read_beat(client)
        assert refused.value.away == client.node_of(KEYS[0]) == UNKNOWN_SERVER
        assert str(own_redis.port) not in refused.value.public_message
        own_redis.start()
        assert read_beat(client) is None
        assert client.node_of(KEYS[0]) != UNKNOWN_SERVER
    finally:
        client.close()


def test_a_redis_that_comes_later_and_is_anothers_is_not_read(own_redis: RedisServer) -> None:
    with connect(own_redis.url) as theirs:
        write_beat(theirs, HeartbeatRecord("theirs", 1, 1, (1,)))
    with pytest.raises(RanksUnfit, match="another ledger"):
        LateClient(lambda: connected(own_redis))
    own_redis.stop()
    client = LateClient(lambda: connected(own_redis))
    try:
        own_redis.start()
        with pytest.raises(RanksUnavailable, match="another ledger"):
            read_beat(client)
    finally:
        client.close()

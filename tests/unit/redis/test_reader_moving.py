"""A slot on its way to another server: a read waits or fails, and never takes a part of a board for the whole."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from tests.servers.redis import RedisCluster, RedisServer

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Rules
from rankd.errors import RanksUnavailable
from rankd.projection.port import RankedStanding
from rankd.redis.connection.client import connect
from rankd.redis.keys import ShardKeys
from rankd.redis.read.reader import RedisReader
from rankd.redis.write.changes import InstanceChange, PartitionMove
from rankd.redis.write.mirror import Mirror

KEY = InstanceKey("arcade")
ANSWER_WAIT_S = 0.3
MOVE_WAIT_MS = 5_000


class Moving:
    """The slot of a board, on its way from the server that has it to another."""

    def __init__(self, cluster: RedisCluster) -> None:
        meta = ShardKeys("arcade", 0).meta
        self._source = cluster.master_of(meta)
        self._target = next(server for server in cluster.masters() if server.port != self._source.port)
        with self._source.client() as source, self._target.client() as target:
            self._slot = source.execute_command("CLUSTER", "KEYSLOT", meta)
            self._ids: list[Any] = [client.execute_command("CLUSTER", "MYID") for client in (source, target)]
            target.execute_command("CLUSTER", "SETSLOT", self._slot, "IMPORTING", self._ids[0])
            source.execute_command("CLUSTER", "SETSLOT", self._slot, "MIGRATING", self._ids[1])

    def keys(self) -> list[bytes]:
        with self._source.client() as source:
            keys: list[bytes] = source.execute_command("CLUSTER", "GETKEYSINSLOT", self._slot, 100)
            return keys

    def move(self, key: bytes) -> None:
        with self._source.client() as source:
            source.execute_command("MIGRATE", "127.0.0.1", self._target.port, key, 0, MOVE_WAIT_MS)

    def finish(self, servers: list[RedisServer]) -> None:
        for server in servers:
            with server.client() as client:
                client.execute_command("CLUSTER", "SETSLOT", self._slot, "NODE", self._ids[1])


@pytest.mark.parametrize("high", [100, 2**60], ids=["packed", "prefixed"])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_board_on_its_way_to_another_server_is_whole_or_not_there(
    own_cluster: RedisCluster, *, high: int, backwards: bool
) -> None:
    players = [f"p{n}" for n in range(50)]
    with connect(own_cluster.url, answer_wait_s=ANSWER_WAIT_S) as client:
        rules = Rules(score_min=0, score_max=high)
        scores = array("q", range(50))
        change = InstanceChange(KEY, rules, players=players, score=scores, tie=array("q", bytes(400)), total=50)
        Mirror(client).write("arcade", 1, 1, [PartitionMove(0, 0, 5)], [change], time_ms=1)
        reader = RedisReader(client, lambda _: 1)
        right = RankedStanding(rank=50, player="p0", score=0, tie=0, better=49, total=50)
        assert reader.rank(KEY, "p0") == right

        moving = Moving(own_cluster)
        answers = []
        for key in sorted(moving.keys(), reverse=backwards):
            moving.move(key)
            try:
                answers.append(reader.rank(KEY, "p0"))
            except RanksUnavailable:
                answers.append(right)
        moving.finish(own_cluster.masters())

        assert answers == [right] * len(answers)
        assert reader.rank(KEY, "p0") == right

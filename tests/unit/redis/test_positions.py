"""How far boards are applied, as Redis says: of many boards in one round trip, and of those that are not there yet."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Rules
from rankd.errors import RanksUnavailable
from rankd.projection.port import Position
from rankd.redis.connection.client import FunctionCall, RedisClient
from rankd.redis.read.reader import RedisReader
from rankd.redis.write.changes import InstanceChange, PartitionMove
from rankd.redis.write.mirror import Mirror

SHARDS = {"arcade": 3, "words": 1}


class Counting:
    """The client, with what is sent to Redis."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self.sent: list[list[str]] = []

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        self.sent.append([call.function for call in calls])
        return self._client.call_all(calls)


def shards_of(board: str) -> int:
    return SHARDS.get(board, 1)


def written(client: RedisClient, board: str, upto: int) -> None:
    change = InstanceChange(
        InstanceKey(board), Rules(keep=Keep.LATEST), players=["a"], score=array("q", [1]), tie=array("q", [0]), total=1
    )
    Mirror(client).write(
        board, shards_of(board), 1, [PartitionMove(0, 0, upto), PartitionMove(3, 0, 9)], [change], time_ms=1_000
    )


def test_many_boards_are_asked_in_one_round_trip_and_for_nothing_else(redis_client: RedisClient) -> None:
    written(redis_client, "arcade", 5)
    written(redis_client, "words", 7)
    counting = Counting(redis_client)
    positions = RedisReader(counting, shards_of).positions_of(["words", "arcade", "nowhere"])
    assert positions[:2] == [{0: Position(1, 7), 3: Position(1, 9)}, {0: Position(1, 5), 3: Position(1, 9)}]
    assert isinstance(positions[2], RanksUnavailable)
    assert counting.sent == [["rankd_read_positions"] * 5]


def test_a_shard_that_is_being_filled_for_the_first_time_is_not_there_yet(redis_client: RedisClient) -> None:
    assert Mirror(redis_client).begin("words", 1, 1) is not None
    reader = RedisReader(redis_client, shards_of)
    for read in (reader.positions, reader.instances_of, lambda board: reader.total(InstanceKey(board))):
        with pytest.raises(RanksUnavailable, match="is not in Redis"):
            read("words")

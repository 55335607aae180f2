"""Calls about players of one instance, put together and taken apart again."""

from __future__ import annotations

from array import array
from random import Random

from tests.servers.redis import RedisServer

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Rules
from rankd.redis.connection.client import FunctionCall, RedisClient
from rankd.redis.keys import ShardKeys, bucket_hash, instance_name
from rankd.redis.read.coalescing import Plan
from rankd.redis.read.lookups import PLAYERS_PER_CALL, READ_PLAYERS
from rankd.redis.write.changes import InstanceChange, PartitionMove
from rankd.redis.write.mirror import Mirror

RULES = Rules(keep=Keep.LATEST)
KEYS = [InstanceKey("arcade"), InstanceKey("arcade", "all_time", "country:BR"), InstanceKey("words")]
PLAYERS = [f"p{number}" for number in range(40)]
SEED = 20_261_115


def written(client: RedisClient) -> None:
    """Write two instances of one board and one of another; nobody stands in a third."""
    for board, keys in (("arcade", KEYS[:2]), ("words", KEYS[2:])):
        scores = array("q", range(len(PLAYERS)))
        changes = [
            InstanceChange(key, RULES, players=PLAYERS, score=scores, tie=array("q", scores), total=len(PLAYERS))
            for key in keys
        ]
        Mirror(client).write(board, 1, 1, [PartitionMove(0, 0, 5)], changes, time_ms=1_000)


def asking(key: InstanceKey, options: str, *players: str) -> FunctionCall:
    buckets = [bucket_hash(player) for player in players] if "p" in options else []
    ids = [player.encode() for player in players]
    arguments: list[bytes | int | str] = [instance_name(key), options, len(players), *ids, *buckets]
    return FunctionCall(READ_PLAYERS, (ShardKeys(key.board, 0).meta,), arguments, read_only=True)


def test_answers_are_those_of_calls_made_one_by_one(redis_client: RedisClient, redis_server: RedisServer) -> None:
    written(redis_client)
    random = Random(SEED)
    nowhere = InstanceKey("arcade", "all_time", "country:AQ")
    calls = [
        asking(
            random.choice([*KEYS, nowhere]),
            random.choice(["rbmp", "rb", "", "p"]),
            *random.sample([*PLAYERS, "nobody"], random.randint(0, 4)),
        )
        for _ in range(200)
    ]
    calls.insert(50, FunctionCall("rankd_read_total", (ShardKeys("arcade", 0).meta,), (instance_name(KEYS[0]),), True))
    plan = Plan(calls)
    assert len(plan.calls) <= 17
    assert plan.split(redis_client.call_all(plan.calls)) == [redis_client.call_all([call])[0] for call in calls], SEED


def test_no_call_has_more_players_than_keep_redis_busy_for_a_moment() -> None:
    calls = [asking(KEYS[0], "rb", *(f"p{number}-{player}" for player in range(120))) for number in range(10)]
    sent = [int(call.arguments[2]) for call in Plan(calls).calls]
    assert (max(sent) <= PLAYERS_PER_CALL, sum(sent)) == (True, 1_200)


def test_what_is_alone_is_sent_as_it_is() -> None:
    calls = [asking(KEYS[0], "rb", "a"), asking(KEYS[0], "rbm", "a"), asking(KEYS[2], "rb", "a")]
    assert Plan(calls).calls == calls

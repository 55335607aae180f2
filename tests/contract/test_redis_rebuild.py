"""A rebuild fills a new generation beside the live one and takes its place in one step."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from tests.servers.redis import RedisServer
from tests.servers.redis_contents import contents, described_of, engine_contents, keys_of

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Rules, Ties
from rankd.errors import RanksUnavailable
from rankd.projection.engine import EngineStore
from rankd.projection.port import Op, Position, UpdateBatch, Verdict
from rankd.redis.connection.client import RedisClient
from rankd.redis.write.changes import InstanceChange, PartitionMove, WriteReply, changed, whole_instance
from rankd.redis.write.mirror import Mirror

KEY = InstanceKey("arcade")
RULES = Rules(ties=Ties.PLAYER, score_min=0, score_max=1_000)
PLAYERS = [f"p{number}" for number in range(100)]


@pytest.fixture
def plain(redis_server: RedisServer, redis_client: RedisClient) -> Any:
    return redis_server.client()


@pytest.fixture
def engine() -> EngineStore:
    store = EngineStore()
    store.apply(UpdateBatch([(KEY, RULES)], PLAYERS, array("q", range(100)), upto=9))
    return store


def rows(*entries: tuple[str, int]) -> InstanceChange:
    players = [player for player, _ in entries]
    scores = array("q", [score for _, score in entries])
    return InstanceChange(KEY, RULES, players=players, score=scores, tie=array("q", bytes(8 * len(players))), total=1)


def write(
    mirror: Mirror, move: PartitionMove, *changes: InstanceChange, epoch: int = 0, shards: int = 2
) -> list[WriteReply]:
    return mirror.write("arcade", shards, epoch, [move], changes, time_ms=1_000)


@pytest.mark.parametrize("page_entries", [7, 1_000])
def test_what_is_loaded_is_seen_when_it_is_finished(
    redis_client: RedisClient, plain: Any, engine: EngineStore, page_entries: int
) -> None:
    mirror = Mirror(redis_client, call_updates_max=5)
    write(mirror, PartitionMove(0, 0, 3), rows(("old", 1)))
    loading = mirror.begin("arcade", 2, 1)
    assert loading is not None
    for page in whole_instance(engine, KEY, RULES, page_entries=page_entries):
        loading.load([page])
        assert contents(plain, "arcade", 2) == {KEY: [("old", Kept(1, 0))]}

    answers = loading.finish([(0, 9), (1, 4)], time_ms=2_000)

    assert answers == [WriteReply(Verdict.APPLIED, {0: Position(1, 9), 1: Position(1, 4)})] * 2
    assert contents(plain, "arcade", 2) == engine_contents(engine, "arcade")
    assert keys_of(plain) == {"meta": 2, "2:i": 2, "2:z": 2}
    assert write(mirror, PartitionMove(0, 9, 10), rows(("new", 5)), epoch=1)[0].verdict is Verdict.APPLIED


def test_a_live_writer_goes_on_while_a_rebuild_loads_and_notices_the_switch(
    redis_client: RedisClient, plain: Any, engine: EngineStore
) -> None:
    live, rebuilding = Mirror(redis_client), Mirror(redis_client)
    write(live, PartitionMove(0, 0, 3), rows(("old", 1)))
    loading = rebuilding.begin("arcade", 2, 0)
    assert loading is not None
    assert write(live, PartitionMove(0, 3, 5), rows(("old", 2)))[0].verdict is Verdict.APPLIED
    loading.load(list(whole_instance(engine, KEY, RULES)))
    loading.finish([(0, 9)], time_ms=1)

    answers = write(live, PartitionMove(0, 9, 12), rows(("p0", 500)))

    assert [answer.verdict for answer in answers] == [Verdict.APPLIED] * 2
    assert contents(plain, "arcade", 2)[KEY][0] == ("p0", Kept(500, 0))


def test_a_rebuild_does_not_take_a_board_back_unless_it_is_forced(
    redis_client: RedisClient, engine: EngineStore
) -> None:
    mirror = Mirror(redis_client)
    write(mirror, PartitionMove(0, 0, 20), rows(("old", 1)))
    loading = mirror.begin("arcade", 2, 0)
    assert loading is not None
    loading.load(list(whole_instance(engine, KEY, RULES)))

    assert loading.finish([(0, 9)], time_ms=1) == [WriteReply(Verdict.GAP, {0: Position(0, 20)})] * 2
    assert mirror.positions("arcade", 2) == [{0: Position(0, 20)}] * 2
    loading.load([rows(("p0", 7))])
    assert loading.finish([(0, 9)], time_ms=1, forced=True)[0].verdict is Verdict.APPLIED


def test_an_older_writer_begins_and_finishes_nothing(redis_client: RedisClient, engine: EngineStore) -> None:
    mirror = Mirror(redis_client)
    write(mirror, PartitionMove(0, 0, 3), epoch=4)
    assert mirror.begin("arcade", 2, 3) is None
    loading = mirror.begin("arcade", 2, 4)
    assert loading is not None
    write(mirror, PartitionMove(0, 3, 4), epoch=5)

    assert {answer.verdict for answer in loading.finish([(0, 9)], time_ms=1)} == {Verdict.FENCED}


def test_a_rebuild_that_begins_later_takes_the_place_of_an_earlier_one(
    redis_client: RedisClient, plain: Any, engine: EngineStore
) -> None:
    mirror = Mirror(redis_client)
    first = mirror.begin("arcade", 1, 0)
    assert first is not None
    first.load(list(whole_instance(engine, KEY, RULES)))
    second = mirror.begin("arcade", 1, 0)
    assert second is not None

    first.load([rows(("late", 1))])
    with pytest.raises(RanksUnavailable):
        first.finish([(0, 9)], time_ms=1)
    second.load(list(whole_instance(engine, KEY, RULES)))
    assert second.finish([(0, 9)], time_ms=1)[0].verdict is Verdict.APPLIED
    assert contents(plain, "arcade") == engine_contents(engine, "arcade")
    assert keys_of(plain) == {"meta": 1, "2:i": 1, "2:z": 1}


def test_an_abandoned_rebuild_leaves_nothing(redis_client: RedisClient, plain: Any, engine: EngineStore) -> None:
    mirror = Mirror(redis_client)
    write(mirror, PartitionMove(0, 0, 3), rows(("old", 1)), shards=1)
    before = keys_of(plain)
    loading = mirror.begin("arcade", 1, 0)
    assert loading is not None
    loading.load(list(whole_instance(engine, KEY, RULES)))
    loading.abandon()

    assert keys_of(plain) == before


@pytest.mark.parametrize("lost", ["loaded", "loading"])
def test_a_rebuild_of_which_something_was_lost_is_not_finished(
    redis_client: RedisClient, plain: Any, engine: EngineStore, lost: str
) -> None:
    """As after a replica was promoted that had not got all of it."""
    mirror = Mirror(redis_client)
    write(mirror, PartitionMove(0, 0, 3), rows(("old", 1)), shards=1)
    loading = mirror.begin("arcade", 1, 0)
    assert loading is not None
    for page in whole_instance(engine, KEY, RULES, page_entries=30):
        loading.load([page])
    loading.settle()
    if lost == "loaded":
        plain.hset("rankd:{arcade#0}:meta", "loaded", "2")
    else:
        plain.hdel("rankd:{arcade#0}:meta", "loading")

    with pytest.raises(RanksUnavailable):
        loading.finish([(0, 9)], time_ms=1)
    assert contents(plain, "arcade") == {KEY: [("old", Kept(1, 0))]}


def test_a_new_board_begins_where_the_ledger_is(redis_client: RedisClient, plain: Any) -> None:
    mirror = Mirror(redis_client)
    loading = mirror.begin("arcade", 2, 3)
    assert loading is not None
    loading.finish([(0, 5_000), (1, 70)], time_ms=1)

    assert mirror.positions("arcade", 2) == [{0: Position(3, 5_000), 1: Position(3, 70)}] * 2
    assert contents(plain, "arcade", 2) == {}


def test_a_deleted_board_leaves_no_key(redis_client: RedisClient, plain: Any, engine: EngineStore) -> None:
    mirror = Mirror(redis_client)
    write(mirror, PartitionMove(0, 0, 3), changed(engine, KEY, RULES, PLAYERS), epoch=2)

    assert not mirror.drop("arcade", 2, 1)
    assert mirror.positions("arcade", 2)[0] is not None
    assert mirror.drop("arcade", 2, 2)
    assert keys_of(plain) == {}
    assert mirror.positions("arcade", 2) == [None, None]


# Forms


def test_a_score_outside_its_form_changes_the_form_of_the_whole_instance(
    redis_client: RedisClient, plain: Any, engine: EngineStore
) -> None:
    mirror = Mirror(
        redis_client, whole=lambda key: whole_instance(engine, key, RULES, page_entries=9), call_updates_max=4
    )
    write(mirror, PartitionMove(0, 0, 9), changed(engine, KEY, RULES, PLAYERS))
    far = UpdateBatch(
        [(KEY, RULES)], ["p5", "far"], array("q", [-(2**63), 2**63 - 1]), op=bytes([Op.PUT] * 2), after=9, upto=11
    )
    engine.apply(far)

    answers = write(mirror, PartitionMove(0, 9, 11), changed(engine, KEY, RULES, ["p5", "far"]))

    assert [answer.verdict for answer in answers] == [Verdict.APPLIED] * 2
    assert contents(plain, "arcade", 2) == engine_contents(engine, "arcade")
    assert keys_of(plain) == {"meta": 2, "1:i": 2, "1:z": 2, "1:h": 2}
    described = described_of(plain, KEY)
    assert described is not None
    assert (described.kind, described.total) == ("prefixed", 101)


def test_a_later_page_that_does_not_fit_is_loaded_in_another_form(
    redis_client: RedisClient, plain: Any, engine: EngineStore
) -> None:
    engine.apply(UpdateBatch([(KEY, RULES)], ["low"], array("q", [-5]), op=bytes([Op.PUT]), after=9, upto=10))
    mirror = Mirror(redis_client, whole=lambda key: whole_instance(engine, key, RULES))
    loading = mirror.begin("arcade", 2, 0)
    assert loading is not None
    for page in whole_instance(engine, KEY, RULES, page_entries=30):
        loading.load([page])
    loading.finish([(0, 10)], time_ms=1)

    assert contents(plain, "arcade", 2) == engine_contents(engine, "arcade")


def test_distinct_scores_are_kept_from_when_they_are_asked_for(
    redis_client: RedisClient, plain: Any, engine: EngineStore
) -> None:
    mirror = Mirror(redis_client, whole=lambda key: whole_instance(engine, key, RULES))
    write(mirror, PartitionMove(0, 0, 9), changed(engine, KEY, RULES, PLAYERS), shards=1)
    assert "1:d" not in keys_of(plain)
    for at, dense in ((9, True), (10, False), (11, True)):
        mirror.write(
            "arcade",
            1,
            0,
            [PartitionMove(0, at, at + 1)],
            [changed(engine, KEY, RULES, ["p1"])],
            time_ms=1,
            dense=dense,
        )
        assert ("1:d" in keys_of(plain)) is dense
        assert contents(plain, "arcade") == engine_contents(engine, "arcade")


def test_a_shard_in_another_form_than_its_siblings_is_written_anew(
    redis_client: RedisClient, plain: Any, engine: EngineStore
) -> None:
    """As after a restart with an old log, from before the form was changed."""
    mirror = Mirror(redis_client, whole=lambda key: whole_instance(engine, key, RULES))
    write(mirror, PartitionMove(0, 0, 9), changed(engine, KEY, RULES, PLAYERS))
    old = {key: plain.dump(key) for key in plain.scan_iter("rankd:{arcade#1}*")}
    engine.apply(UpdateBatch([(KEY, RULES)], ["far"], array("q", [2**60]), op=bytes([Op.PUT]), after=9, upto=10))
    write(mirror, PartitionMove(0, 9, 10), changed(engine, KEY, RULES, ["far"]))
    plain.delete(*plain.scan_iter("rankd:{arcade#1}*"))
    for key, dump in old.items():
        plain.restore(key, 0, dump)
    assert mirror.positions("arcade", 2) == [{0: Position(0, 10)}, {0: Position(0, 9)}]

    again = changed(engine, KEY, RULES, ["far"])
    mirror.write("arcade", 2, 0, [PartitionMove(0, 9, 10)], [again], time_ms=1, shards_only=[1])

    assert contents(plain, "arcade", 2) == engine_contents(engine, "arcade")
    assert {described_of(plain, KEY, shard).kind for shard in range(2)} == {"prefixed"}  # type: ignore[union-attr]

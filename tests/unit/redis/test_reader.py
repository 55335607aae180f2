"""What a read from Redis says beside its answer, and what it refuses."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.batches import batch_of_rows
from tests.servers.mirrored import KeepingReader, MirroredStore
from tests.servers.redis import RedisServer

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Kept, Ranking, Rules
from rankd.domain.position import tokens
from rankd.errors import RankingUnavailable, RanksNewer, RanksUnavailable
from rankd.projection.port import Position, RankedPage, RankedStanding
from rankd.redis.connection.client import FunctionCall, RedisClient
from rankd.redis.keys import ShardKeys, shard_of
from rankd.redis.read import lookups, pages
from rankd.redis.read.reader import RedisReader
from rankd.redis.write.changes import InstanceChange, PartitionMove
from rankd.redis.write.mirror import Mirror

KEY = InstanceKey("arcade")
RULES = Rules(keep=Keep.LATEST)
SHARDS = 3
PLAYERS = [f"p{n}" for n in range(30)]

READS: list[Callable[[RedisReader], Any]] = [
    lambda reader: reader.instances_of("arcade"),
    lambda reader: reader.total(KEY),
    lambda reader: reader.rank(KEY, "p1"),
    lambda reader: reader.ranks(KEY, PLAYERS),
    lambda reader: reader.friends(KEY, PLAYERS),
    lambda reader: reader.range(KEY, 1, 10),
    lambda reader: reader.following(KEY, (Kept(5, 0), "p"), 10),
    lambda reader: reader.around(KEY, "p1", 2, 2),
    lambda reader: reader.rank_of_score(KEY, 5, 0),
    lambda reader: reader.count(KEY, 0, 10),
    lambda reader: reader.quantiles(KEY, [500_000]),
    lambda reader: reader.histogram(KEY, 5),
]


def written(
    client: RedisClient, *moves: PartitionMove, shards: int = SHARDS, time_ms: int = 1_000, **change: Any
) -> Mirror:
    """Write a board of thirty players, at these positions."""
    mirror = Mirror(client)
    scores = array("q", range(len(PLAYERS)))
    whole = InstanceChange(
        KEY, RULES, players=PLAYERS, score=scores, tie=array("q", scores), total=len(PLAYERS), digest=7, **change
    )
    mirror.write("arcade", shards, 1, moves or [PartitionMove(0, 0, 5)], [whole], time_ms=time_ms)
    return mirror


def reader_of(client: RedisClient, shards: int = SHARDS) -> KeepingReader:
    return KeepingReader(client, lambda _: shards, with_metadata=True)


# How old an answer is


def test_an_answer_says_how_far_its_shards_are_applied(redis_client: RedisClient) -> None:
    written(redis_client, PartitionMove(0, 0, 5), PartitionMove(3, 0, 9))
    for read in READS:
        reader = reader_of(redis_client)
        read(reader)
        assert reader.query.position == tokens({0: 5, 3: 9})
    assert reader_of(redis_client).positions("arcade") == {0: Position(1, 5), 3: Position(1, 9)}


def test_over_several_shards_the_one_furthest_behind_counts(
    redis_client: RedisClient, redis_server: RedisServer
) -> None:
    written(redis_client, PartitionMove(0, 0, 5), PartitionMove(1, 0, 9))
    with redis_server.client() as plain:
        plain.hset(ShardKeys("arcade", 2).meta, mapping={"p0": "1:4"})
        plain.hdel(ShardKeys("arcade", 1).meta, "p1")
    reader = reader_of(redis_client)
    reader.total(KEY)

    assert reader.query.position == tokens({0: 4, 1: 0})
    assert reader.positions("arcade") == {0: Position(1, 4), 1: Position(0, 0)}


# What is not there


@pytest.mark.parametrize("read", READS)
def test_a_shard_that_is_not_there_is_an_error_and_not_an_empty_board(
    redis_client: RedisClient, redis_server: RedisServer, read: Callable[[RedisReader], Any]
) -> None:
    written(redis_client)
    with redis_server.client() as plain:
        for shard in {shard_of("p1", SHARDS)} if read in READS[2:3] else {1}:
            plain.delete(ShardKeys("arcade", shard).meta)

    with pytest.raises(RanksUnavailable, match="is not in Redis"):
        read(reader_of(redis_client))


def test_a_board_nobody_wrote_is_not_there_either(redis_client: RedisClient) -> None:
    for read in READS:
        with pytest.raises(RanksUnavailable):
            read(reader_of(redis_client))


def test_an_instance_nobody_stands_in_is_empty(redis_client: RedisClient) -> None:
    written(redis_client)
    reader = reader_of(redis_client)

    assert reader.range(InstanceKey("arcade", "daily:2026-05-04"), 1, 10) == RankedPage([], 0)
    assert reader.query.position == tokens({0: 5})


@pytest.mark.parametrize("read", READS)
def test_a_layout_of_a_newer_version_is_refused(
    redis_client: RedisClient, redis_server: RedisServer, read: Callable[[RedisReader], Any]
) -> None:
    written(redis_client)
    with redis_server.client() as plain:
        for shard in range(SHARDS):
            plain.hset(ShardKeys("arcade", shard).meta, "version", "2")

    with pytest.raises(RanksNewer, match="layout 2, this node knows 1: upgrade"):
        read(reader_of(redis_client))


# Dense


def test_dense_places_need_distinct_scores_beside(redis_client: RedisClient) -> None:
    written(redis_client, shards=1)
    reader = reader_of(redis_client, shards=1)
    for refused in (
        lambda: reader.rank(KEY, "p1", Ranking.DENSE),
        lambda: reader.range(KEY, 1, 5, Ranking.DENSE),
        lambda: reader.around(KEY, "p1", 1, 1, Ranking.DENSE),
        lambda: reader.friends(KEY, ["p1"], Ranking.DENSE),
        lambda: reader.rank_of_score(KEY, 5, 0, Ranking.DENSE),
    ):
        with pytest.raises(RankingUnavailable):
            refused()


def test_dense_places_cannot_be_counted_over_shards(redis_client: RedisClient) -> None:
    written(redis_client)
    with pytest.raises(RankingUnavailable, match="over 3 shards"):
        reader_of(redis_client).rank(KEY, "p1", Ranking.DENSE)


# Captured places and metadata


@pytest.mark.parametrize("shards", [1, SHARDS])
def test_captured_places_and_metadata_come_with_the_same_round_trips(redis_client: RedisClient, shards: int) -> None:
    places = {player: 30 - n for n, player in enumerate(PLAYERS)}
    events = {"p1": (2, 77), "p4": (0, 2**40)}
    written(redis_client, shards=shards, captured=places, metadata=events)
    reader = reader_of(redis_client, shards)

    assert reader.rank(KEY, "p1") == RankedStanding(29, "p1", 1, 1, 28, 30)
    assert (reader.query.captured, reader.query.metadata) == ({"p1": 29}, {"p1": (2, 77)})
    for read, metadata in (
        (lambda: reader.ranks(KEY, ["p1", "nobody", "p4", "p5"]), events),
        (lambda: reader.range(KEY, 1, 30), events),
        (lambda: reader.following(KEY, None, 30), events),
        (lambda: reader.friends(KEY, ["p1", "p2"]), {"p1": (2, 77)}),
    ):
        read()
        assert (reader.query.captured, reader.query.metadata) == ({}, metadata)
    reader.around(KEY, "p4", 2, 3)
    assert reader.query.metadata.items() >= events.items()
    assert reader.captured(KEY, "p4") == 26
    without = KeepingReader(redis_client, lambda _: shards)
    without.range(KEY, 1, 30)
    assert without.query.metadata == {}


# Reads that are cut into several calls


class WritesBetween:
    """A client whose store is written to between the first and the second call of every round trip."""

    def __init__(self, client: RedisClient, write: Callable[[], None]) -> None:
        self._client = client
        self._write = write
        self.calls: list[int] = []

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        self.calls.append(len(calls))
        answers = self._client.call_all(calls[:1])
        if len(calls) > 1:
            self._write()
            answers += self._client.call_all(calls[1:])
        return answers


@pytest.mark.parametrize(
    "read",
    [
        lambda reader, players: [entry.score for entry in reader.ranks(KEY, players)],
        lambda reader, players: [entry.score for entry in reader.scores(KEY, players)],
        lambda reader, players: [entry.score for entry in reader.friends(KEY, players)],
        lambda reader, _: [entry.score for entry in reader.range(KEY, 1, 100).entries],
        lambda reader, _: [entry.score for entry in reader.following(KEY, None, 100).entries],
        lambda reader, _: [entry.score for entry in reader.around(KEY, "p50", 100, 100).above],
    ],
)
def test_a_read_in_several_calls_is_of_one_instant(
    redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch, read: Callable[[RedisReader, list[str]], list[int]]
) -> None:
    monkeypatch.setattr(lookups, "PLAYERS_PER_CALL", 7)
    monkeypatch.setattr(pages, "ENTRIES_PER_CALL", 7)
    store = MirroredStore(redis_client)
    players = [f"p{n}" for n in range(100)]

    def write() -> None:
        position = store.position(0).sequence
        rows = [(player, position + 1, n) for n, player in enumerate(players)]
        store.apply(batch_of_rows((KEY, RULES), rows, after=position, upto=position + 1))

    write()
    disturbed = WritesBetween(redis_client, write)
    scores = read(RedisReader(disturbed, lambda _: 1), players)

    assert len(scores) >= 50
    assert len(set(scores)) == 1, "every batch gives everybody the same score"
    assert len(disturbed.calls) == 2
    assert disturbed.calls[0] > 1 == disturbed.calls[1]


def test_undisturbed_calls_take_one_round_trip(redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "PLAYERS_PER_CALL", 7)
    monkeypatch.setattr(pages, "ENTRIES_PER_CALL", 7)
    written(redis_client, shards=1)
    quiet = WritesBetween(redis_client, lambda: None)
    reader = RedisReader(quiet, lambda _: 1)

    assert [entry and entry.rank for entry in reader.ranks(KEY, PLAYERS)] == list(range(30, 0, -1))
    assert [entry.rank for entry in reader.range(KEY, 2, 29).entries] == list(range(2, 30))
    assert len(reader.scores(KEY, PLAYERS)) == 30
    assert quiet.calls == [5, 4, 5]

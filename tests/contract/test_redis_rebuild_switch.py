"""The switch to another generation, shard by shard, while somebody else writes and answers are lost."""

from __future__ import annotations

import socket
import threading
from array import array
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from tests.servers.redis import RedisServer
from tests.servers.redis_contents import contents, engine_contents, generation_of, keys_of
from tests.servers.waiting import join_all

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Rules, Ties
from rankd.errors import RanksUnavailable
from rankd.projection.engine import EngineStore
from rankd.projection.port import Position, UpdateBatch, Verdict
from rankd.redis.connection.client import RedisClient, connect
from rankd.redis.write.changes import PartitionMove, WriteReply, changed, dropped, whole_instance
from rankd.redis.write.loading import Loading
from rankd.redis.write.mirror import Mirror

KEY = InstanceKey("arcade")
RULES = Rules(ties=Ties.PLAYER, score_min=0, score_max=1_000)
PLAYERS = [f"p{number}" for number in range(100)]
CHUNK_BYTES = 65_536


@pytest.fixture
def plain(redis_server: RedisServer, redis_client: RedisClient) -> Any:
    return redis_server.client()


@pytest.fixture
def engine() -> EngineStore:
    store = EngineStore()
    store.apply(UpdateBatch([(KEY, RULES)], PLAYERS, array("q", range(100)), upto=9))
    return store


def begun(mirror: Mirror, engine: EngineStore, shards: int = 2, epoch: int = 0) -> Loading:
    """A rebuild that has loaded everybody."""
    loading = mirror.begin("arcade", shards, epoch)
    assert loading is not None
    loading.load(list(whole_instance(engine, KEY, RULES)))
    return loading


def verdicts(answers: list[WriteReply]) -> list[Verdict]:
    return [answer.verdict for answer in answers]


def test_a_shard_that_was_switched_keeps_everybody_when_another_is_switched_later(
    redis_client: RedisClient, plain: Any, engine: EngineStore
) -> None:
    live, mirror = Mirror(redis_client), Mirror(redis_client)
    live.write("arcade", 2, 0, [PartitionMove(0, 0, 5)], [changed(engine, KEY, RULES, PLAYERS[:50])], time_ms=1)
    loading = begun(mirror, engine)
    engine.apply(UpdateBatch([(KEY, RULES)], PLAYERS[:20], array("q", range(500, 520)), after=9, upto=12))
    newer = changed(engine, KEY, RULES, PLAYERS[:20])
    live.write("arcade", 2, 0, [PartitionMove(0, 5, 12)], [newer], time_ms=1, shards_only=[1])

    assert verdicts(loading.finish([(0, 9)], time_ms=2)) == [Verdict.APPLIED, Verdict.GAP]
    live.write("arcade", 2, 0, [PartitionMove(0, 9, 12)], [newer], time_ms=1, shards_only=[0])
    loading.load([changed(engine, KEY, RULES, PLAYERS[:20])])
    answers = loading.finish([(0, 12)], time_ms=3)

    assert loading.finish([(0, 12)], time_ms=3) == answers
    assert answers == [
        WriteReply(Verdict.APPLIED, {0: Position(0, 9)}),
        WriteReply(Verdict.APPLIED, {0: Position(0, 12)}),
    ]
    assert contents(plain, "arcade", 2) == engine_contents(engine, "arcade")
    assert keys_of(plain) == {"meta": 2, "2:i": 2, "2:z": 2}


def test_a_shard_that_was_switched_is_not_taken_back_by_rows_that_come_later(
    redis_client: RedisClient, plain: Any, engine: EngineStore
) -> None:
    live, mirror = Mirror(redis_client), Mirror(redis_client)
    live.write("arcade", 2, 0, [PartitionMove(0, 0, 12)], [], time_ms=1, shards_only=[1])
    loading = begun(mirror, engine)
    older = changed(engine, KEY, RULES, PLAYERS)
    assert verdicts(loading.finish([(0, 9)], time_ms=2)) == [Verdict.APPLIED, Verdict.GAP]
    engine.apply(UpdateBatch([(KEY, RULES)], PLAYERS[:20], array("q", range(500, 520)), after=9, upto=12))
    newer = changed(engine, KEY, RULES, PLAYERS[:20])
    live.write("arcade", 2, 0, [PartitionMove(0, 9, 12)], [newer], time_ms=1, shards_only=[0])

    loading.load([older])
    loading.load([newer])
    loading.finish([(0, 12)], time_ms=3)

    assert contents(plain, "arcade", 2) == engine_contents(engine, "arcade")


def test_a_rebuild_that_ends_half_way_leaves_what_is_live_on_each_shard(
    redis_client: RedisClient, plain: Any, engine: EngineStore
) -> None:
    live, mirror = Mirror(redis_client), Mirror(redis_client)
    live.write(
        "arcade", 2, 0, [PartitionMove(0, 0, 12)], [changed(engine, KEY, RULES, PLAYERS)], time_ms=1, shards_only=[1]
    )
    loading = begun(mirror, engine)
    assert verdicts(loading.finish([(0, 9)], time_ms=2)) == [Verdict.APPLIED, Verdict.GAP]

    loading.abandon()

    assert contents(plain, "arcade", 2) == engine_contents(engine, "arcade")
    assert [generation_of(plain, "arcade", shard) for shard in range(2)] == [1, 1]
    assert keys_of(plain).total() == 6


def test_what_a_rebuild_that_was_overtaken_has_left_is_removed_and_nothing_else(
    redis_client: RedisClient, plain: Any, engine: EngineStore
) -> None:
    mirror = Mirror(redis_client)
    overtaken = begun(mirror, engine)
    overtaken.settle()
    plain.hdel("rankd:{arcade#1}:meta", "loading", "loaded")  # as if another had been given up there
    plain.hset("rankd:{arcade#0}:meta", mapping={"generation": 1, "p0": "0:9"})
    plain.hdel("rankd:{arcade#0}:meta", "loading", "loaded")  # switched, and nobody said so

    overtaken.load([changed(engine, KEY, RULES, PLAYERS)])
    with pytest.raises(RanksUnavailable):
        overtaken.settle()

    assert plain.zcard("rankd:{arcade#0}:1:z:all_time@global") > 0
    assert not plain.exists("rankd:{arcade#1}:1:z:all_time@global")


def test_a_rebuild_does_not_give_up_what_another_loads(
    redis_client: RedisClient, plain: Any, engine: EngineStore
) -> None:
    mirror = Mirror(redis_client)
    first = begun(mirror, engine)
    second = begun(mirror, engine)

    first.abandon()

    assert verdicts(second.finish([(0, 9)], time_ms=1)) == [Verdict.APPLIED] * 2
    assert contents(plain, "arcade", 2) == engine_contents(engine, "arcade")


def test_no_generation_has_the_number_of_one_that_was_given_up(
    redis_client: RedisClient, plain: Any, engine: EngineStore
) -> None:
    mirror = Mirror(redis_client)
    first = begun(mirror, engine)
    first.abandon()
    second = begun(mirror, engine)
    second.abandon()
    third = begun(mirror, engine)
    third.finish([(0, 9)], time_ms=1)

    assert [generation_of(plain, "arcade", shard) for shard in range(2)] == [3, 3]


def test_an_instance_that_left_while_a_rebuild_went_on_is_not_there(
    redis_client: RedisClient, plain: Any, engine: EngineStore
) -> None:
    other = InstanceKey("arcade", "daily:2026-05-04")
    engine.apply(UpdateBatch([(other, RULES)], PLAYERS, array("q", range(100)), after=9, upto=10))
    mirror = Mirror(redis_client)
    loading = begun(mirror, engine)
    loading.load(list(whole_instance(engine, other, RULES)))
    engine.drop(other)
    loading.load([dropped(other, RULES)])
    loading.finish([(0, 10)], time_ms=1)

    assert contents(plain, "arcade", 2) == engine_contents(engine, "arcade")
    assert keys_of(plain) == {"meta": 2, "1:i": 2, "1:z": 2}


# Lost answers


class LossyLine:
    """A line to Redis on which the first answer to a function is lost, with the connection."""

    def __init__(self, port: int, function: str) -> None:
        self._to = port
        self._function = function.encode()
        self.lost = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._ends += near, far
                is_lost = threading.Event()
                for work, about in ((self._ask, (near, far, is_lost)), (self._answer, (far, near, is_lost))):
                    self._threads.append(threading.Thread(target=work, args=about, daemon=True))
                    self._threads[-1].start()

    def _ask(self, near: socket.socket, far: socket.socket, is_lost: threading.Event) -> None:
        with suppress(OSError):
            while piece := near.recv(CHUNK_BYTES):
                if self._function in piece and not self.lost:
                    self.lost += 1
                    is_lost.set()
                far.sendall(piece)

    def _answer(self, far: socket.socket, near: socket.socket, is_lost: threading.Event) -> None:
        with suppress(OSError):
            while piece := far.recv(CHUNK_BYTES):
                if is_lost.is_set():
                    break
                near.sendall(piece)
            for end in (near, far):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        _break(self._listener)
        join_all(self._threads[:1])  # after which no connection is added
        for end in self._ends:
            _break(end)
        join_all(self._threads)


def _break(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@pytest.fixture
def line(redis_server: RedisServer, redis_client: RedisClient) -> Iterator[LossyLine]:
    """A line on which the first answer to rankd_finish is lost."""
    with closing(LossyLine(redis_server.port, "rankd_finish")) as line:
        yield line


@pytest.mark.parametrize("shards", [1, 3])
def test_a_switch_whose_answer_was_lost_has_happened(
    redis_server: RedisServer, line: LossyLine, plain: Any, engine: EngineStore, shards: int
) -> None:
    with connect(redis_server.url.replace(f":{redis_server.port}", f":{line.port}")) as client:
        mirror = Mirror(client)
        mirror.write(
            "arcade", shards, 0, [PartitionMove(0, 0, 3)], [changed(engine, KEY, RULES, PLAYERS[:9])], time_ms=1
        )
        loading = begun(mirror, engine, shards)

        assert verdicts(loading.finish([(0, 9)], time_ms=2)) == [Verdict.APPLIED] * shards

    assert line.lost == 1
    assert contents(plain, "arcade", shards) == engine_contents(engine, "arcade")
    assert keys_of(plain) == {"meta": shards, "2:i": shards, "2:z": shards}

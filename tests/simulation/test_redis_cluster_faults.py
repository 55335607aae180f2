"""A cluster changes under a writer: masters die or step down, slots move. Nothing is lost and nothing counts twice."""

from __future__ import annotations

import random
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import redis
from tests.servers.fixtures_redis import needs_redis
from tests.servers.load_bound import LoadBound
from tests.servers.redis import RedisCluster, RedisServer, cluster_info, running_cluster
from tests.servers.redis_contents import contents, engine_contents
from tests.servers.waiting import WAIT_S, join_all, wait_until

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Rules, Ties
from rankd.errors import RanksUnavailable
from rankd.projection.engine import EngineStore
from rankd.projection.port import Position, UpdateBatch, Verdict
from rankd.redis.connection.client import connect
from rankd.redis.keys import ShardKeys
from rankd.redis.read.high_water import HighWater
from rankd.redis.read.pages import instance_total
from rankd.redis.read.query import RedisQuery
from rankd.redis.write.changes import PartitionMove, changed, whole_instance
from rankd.redis.write.mirror import Mirror

pytestmark = pytest.mark.timeout(300)  # processes that start, fail and catch up
KEYS = [InstanceKey("arcade"), InstanceKey("arcade", "weekly:2026-W18")]
FORMS = {
    "packed": Rules(keep=Keep.SUM, ties=Ties.PLAYER, score_min=0, score_max=1_000_000),
    "prefixed": Rules(keep=Keep.SUM, ties=Ties.EARLIEST),
}
SHARDS = 4
PLAYERS = 300
EVENTS = 40  # a batch
SEED = 20_261_115
FAILOVER_ROUND_S = 6.0  # Redis gives up a manual failover after 5


class Projector:
    """Applies batches to an engine and mirrors them; after trouble it asks what is stored and sends what is missing."""

    def __init__(self, url: str, rules: Rules) -> None:
        self.engine = EngineStore()
        self._client = connect(url, answer_wait_s=1.0)
        self._mirror = Mirror(
            self._client, whole=lambda key: whole_instance(self.engine, key, rules), call_updates_max=50
        )
        self._rules = rules
        self._rng = random.Random(SEED)
        self._touched: list[list[str]] = []  # by batch
        self.repaired = 0

    @property
    def batches(self) -> int:
        return len(self._touched)

    def step(self) -> None:
        """One more batch of sums: applied twice or not at all, a sum would tell."""
        after = len(self._touched)
        players = [f"p{self._rng.randrange(PLAYERS)}" for _ in range(EVENTS)]
        instances = [(key, self._rules) for key in KEYS]
        rows = range(2 * EVENTS)
        self.engine.apply(
            UpdateBatch(
                instances,
                players,
                score=array("q", [self._rng.randrange(100) for _ in rows]),
                tie=array("q", [after] * len(rows)),
                instance=array("I", [row % 2 for row in rows]),
                player=array("I", [row // 2 for row in rows]),
                after=after,
                upto=after + 1,
            )
        )
        self._touched.append(players)
        try:
            answers = self._write(after, range(SHARDS))
        except RanksUnavailable:
            answers = []
        if [answer.verdict for answer in answers] != [Verdict.APPLIED] * SHARDS:
            self.repaired += 1
            self.catch_up()

    def catch_up(self) -> None:
        wait_until(self._is_caught_up)

    def _is_caught_up(self) -> bool:
        try:
            for shard, stored in enumerate(self._mirror.positions("arcade", SHARDS)):
                after = stored[0].sequence if stored else 0
                if after < self.batches:
                    self._write(after, [shard])
            positions = self._mirror.positions("arcade", SHARDS)
        except RanksUnavailable:
            return False
        return positions == [{0: Position(0, self.batches)}] * SHARDS

    def _write(self, after: int, shards: Any) -> list[Any]:
        players = list(dict.fromkeys(player for batch in self._touched[after:] for player in batch))
        changes = [changed(self.engine, key, self._rules, players) for key in KEYS]
        move = PartitionMove(0, after, self.batches)
        return self._mirror.write("arcade", SHARDS, 0, [move], changes, time_ms=1, shards_only=shards)

    def close(self) -> None:
        self._client.close()


@contextmanager
def at_work(projector: Projector) -> Iterator[None]:
    """Let it write batch after batch while the block lasts, and a few more after it."""
    bound = LoadBound()
    done = threading.Event()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            while not done.is_set() and bound.take():
                projector.step()
            for _ in range(5):
                projector.step()
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        before = projector.batches
        wait_until(lambda: projector.batches > before + 5 or bool(problems))
        yield
    finally:
        done.set()
        join_all([thread])
    assert not problems, problems


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """A cluster that only these tests share, since they move its slots and masters about."""
    needs_redis()
    with running_cluster() as running:
        yield running


@pytest.fixture(params=list(FORMS))
def projector(request: pytest.FixtureRequest, cluster: RedisCluster) -> Iterator[Projector]:
    cluster.flush()
    made = Projector(cluster.url, FORMS[request.param])
    yield made
    made.close()


def check(cluster: RedisCluster, projector: Projector) -> None:
    """Compare what the masters have, read key by key, with the engine."""
    alive = next(server for server in cluster.masters())
    plain = redis.RedisCluster(host="127.0.0.1", port=alive.port, protocol=2)
    try:
        assert contents(plain, "arcade", SHARDS) == engine_contents(projector.engine, "arcade"), f"seed {SEED}"
    finally:
        plain.close()


def answers_as_master(server: RedisServer) -> Callable[[], bool]:
    def holds() -> bool:
        with server.client() as client:
            is_master = client.info("replication")["role"] == "master"
            return bool(is_master) and cluster_info(client)["cluster_state"] == "ok"

    return holds


def follows(server: RedisServer, master: RedisServer) -> Callable[[], bool]:
    def holds() -> bool:
        with server.client() as client:
            replication = client.info("replication")
            linked = replication.get("master_link_status") == "up" and int(replication["master_port"]) == master.port
            return linked and cluster_info(client)["cluster_state"] == "ok"

    return holds


def test_a_master_dies_and_its_replica_goes_on(cluster: RedisCluster, projector: Projector) -> None:
    with at_work(projector):
        master = cluster.master_of(ShardKeys("arcade", 0).meta)
        replica = cluster.replica_of(master)
        master.kill()
        wait_until(answers_as_master(replica))
    projector.catch_up()

    assert projector.repaired > 0
    check(cluster, projector)
    master.start()
    wait_until(follows(master, replica))


def test_a_master_steps_down_for_its_replica(cluster: RedisCluster, projector: Projector) -> None:
    with at_work(projector):
        master = cluster.master_of(ShardKeys("arcade", 1).meta)
        replica = cluster.replica_of(master)
        promote(replica)
        before = projector.batches
        wait_until(lambda: projector.batches > before + 5)
    projector.catch_up()

    check(cluster, projector)


def test_slots_move_key_by_key_while_they_are_written(cluster: RedisCluster, projector: Projector) -> None:
    with at_work(projector):
        for shard in range(SHARDS):
            move_slot(cluster, ShardKeys("arcade", shard).meta)
            before = projector.batches
            wait_until(lambda before=before: projector.batches > before + 2)  # type: ignore[misc]
    projector.catch_up()

    check(cluster, projector)


def test_a_master_that_lost_everything_is_filled_again(cluster: RedisCluster, projector: Projector) -> None:
    with at_work(projector):
        with cluster.master_of(ShardKeys("arcade", 2).meta).client() as client:
            client.flushall()
            client.execute_command("FUNCTION", "FLUSH")
        before = projector.batches
        wait_until(lambda: projector.batches > before + 2)
    projector.catch_up()

    assert projector.repaired > 0
    check(cluster, projector)


def test_what_a_forced_takeover_has_lost_is_noticed_until_it_is_there_again(
    cluster: RedisCluster, projector: Projector
) -> None:
    client = connect(cluster.url)
    seen, floor = HighWater(), dict[int, int]()
    unseen = HighWater(lambda: floor)

    def read(marks: HighWater) -> tuple[int, bool]:
        query = RedisQuery(client, KEYS[0], SHARDS, marks)
        return instance_total(query), query.has_lost

    def read_after_takeover(marks: HighWater) -> bool:
        try:
            return read(marks) != (total, False)
        except RanksUnavailable:
            return False

    projector.step()
    master = cluster.master_of(ShardKeys("arcade", 3).meta)
    replica = cluster.replica_of(master)
    with stopped_replication(master, replica):
        projector.step()
        floor[0] = projector.batches
        total, has_lost = read(seen)
        assert (total, has_lost) == (projector.engine.total(KEYS[0]), False)

        with replica.client() as server:
            server.execute_command("CLUSTER", "FAILOVER", "TAKEOVER")
        wait_until(follows(master, replica))
        for marks in (seen, unseen):
            wait_until(lambda marks=marks: read_after_takeover(marks))  # type: ignore[misc]
            less, has_lost = read(marks)
            assert less < total
            assert has_lost

    projector.step()
    projector.catch_up()
    for marks in (seen, unseen):
        assert read(marks) == (projector.engine.total(KEYS[0]), False)
    check(cluster, projector)
    client.close()


@contextmanager
def stopped_replication(master: RedisServer, replica: RedisServer) -> Iterator[None]:
    """Let a replica receive nothing while the block lasts: it cannot log in to its master."""
    with replica.client() as replica_client, master.client() as master_client:
        replica_client.config_set("masterauth", "wrong")
        master_client.execute_command("CLIENT", "KILL", "TYPE", "REPLICA")
        wait_until(lambda: replica_client.info("replication").get("master_link_status") == "down")
    try:
        yield
    finally:
        with replica.client() as replica_client:
            replica_client.config_set("masterauth", "")


def promote(replica: RedisServer) -> None:
    """Let a replica take over, asking again when the others did not agree in the five seconds that Redis gives them."""
    is_master = answers_as_master(replica)

    def agreed() -> bool:
        with replica.client() as client, suppress(redis.ResponseError):
            client.execute_command("CLUSTER", "FAILOVER")
        try:
            wait_until(is_master, within_s=FAILOVER_ROUND_S)
        except AssertionError:
            return False
        return True

    wait_until(agreed, within_s=WAIT_S)


def move_slot(cluster: RedisCluster, key: bytes) -> None:
    """Move the slot of a key to another master as redis-cli does: declared on both, then key by key, then settled."""
    source = cluster.master_of(key)
    target = next(server for server in cluster.masters() if server is not source)
    with source.client() as source_client, target.client() as target_client:
        slot = source_client.execute_command("CLUSTER", "KEYSLOT", key)
        source_name, target_name = (
            client.execute_command("CLUSTER", "MYID").decode() for client in (source_client, target_client)
        )
        target_client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", source_name)
        source_client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", target_name)
        while keys := source_client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source_client.execute_command("MIGRATE", "127.0.0.1", target.port, keys[0], 0, 5_000)
        target_client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", target_name)
        source_client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", target_name)
    assert cluster.master_of(key) is target

"""Redis is filled anew while a projector ranks a steady load: nobody is missing afterwards, and no answer is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.servers.redis import RedisServer
from tests.servers.waiting import wait_until

from rankd.clock import SystemClock
from rankd.ledger.backlog import Backlog
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.node.shared_stores import SharedStores
from rankd.operations.rebuild import HOLD_AFTER, Rebuild
from rankd.redis.connection.client import FunctionCall, RedisClient, connect
from rankd.redis.write.mirror import Mirror

from .scaled_load import BOARDS, Load
from .scaled_processes import Projectors

pytestmark = pytest.mark.timeout(300)  # processes that start, fail and catch up
REBUILDS = 3
EVENTS = 300  # between two rebuilds, and while a shard waits for its switch


@pytest.fixture
def load(tmp_path: Path, postgres_url: str, own_redis: RedisServer) -> Iterator[Load]:
    """A steady load that one projector ranks."""
    SharedStores(postgres_url).migrate()
    projectors = Projectors(postgres_url, own_redis.url, tmp_path)
    try:
        projectors.start()
        with closing(Load(postgres_url, own_redis.url)) as load:
            projectors.wait_for_holder()
            wait_until(lambda: bool(load.seen))
            yield load
    finally:
        projectors.end()


class SlowSwitch:
    """Calls Redis, and lets the projector write between the switches of two shards."""

    def __init__(self, client: RedisClient, plain: Any, load: Load) -> None:
        self._call_all = client.call_all
        self._load = load
        self._plain = plain
        self.overtaken = 0

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        if not calls or calls[0].function != "rankd_finish":
            return self._call_all(calls)
        answers = []
        for number, call in enumerate(calls):
            answers += self._call_all([call])
            if answers[-1][0] == b"applied" and number + 1 < len(calls):
                self._wait_for_write(calls[number + 1])
        self.overtaken += any(answer[0] == b"gap" for answer in answers)
        return answers

    def _wait_for_write(self, call: FunctionCall) -> None:
        meta = call.keys[0]
        before = self._plain.hgetall(meta)
        self._load.go_on_to(self._load.acknowledged + EVENTS)
        wait_until(lambda: self._plain.hgetall(meta) != before)


def test_sharded_boards_are_rebuilt_again_and_again_under_load(
    load: Load, postgres_url: str, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(own_redis.url) as client, own_redis.client() as plain, closing(PostgresLedger(postgres_url)) as ledger:
        switch = SlowSwitch(client, plain, load)
        monkeypatch.setattr(client, "call_all", switch.call_all)
        for _ in range(REBUILDS):
            wanted = load.acknowledged + EVENTS
            load.go_on_to(wanted + EVENTS)  # some of them beside the rebuild
            wait_until(lambda wanted=wanted: load.acknowledged >= wanted)  # type: ignore[misc]
            rebuilding = Rebuild(ledger, lambda follower: Mirror(client, whole=follower.whole))
            assert rebuilding.run(SystemClock().now()).boards == len(BOARDS)
        assert switch.overtaken, "no shard was ahead when its turn came"
    load.check(load.finish())


class ChasedSwitch:
    """Calls Redis, and lets the projector write before each switch, as long as anything is written."""

    def __init__(self, client: RedisClient, plain: Any, backlog: Backlog) -> None:
        self._call_all = client.call_all
        self._plain = plain
        self._backlog = backlog
        self.held = 0
        self.overtaken = 0

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        if not calls or calls[0].function != "rankd_finish":
            return self._call_all(calls)
        if self._backlog.read().is_held:
            self.held += 1
        else:
            wait_until(lambda: self._is_ahead(calls[0]))
        answers = self._call_all(calls)
        self.overtaken += any(answer[0] == b"gap" for answer in answers)
        return answers

    def _is_ahead(self, call: FunctionCall) -> bool:
        """Return whether the projector has written what the rebuild, whose positions end the call, lacks."""
        upto = {int(partition): int(end) for partition, end in batched_pairs(call.arguments[5:])}
        stored = self._plain.hmget(call.keys[0], [f"p{partition}" for partition in upto])
        ends = [0 if value is None else int(bytes(value).rpartition(b":")[2]) for value in stored]
        return any(end > ours for end, ours in zip(ends, upto.values(), strict=True))


def batched_pairs(values: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(values[::2], values[1::2], strict=True)


def test_a_rebuild_that_is_overtaken_at_every_switch_asks_for_a_moment_without_writes(
    load: Load, postgres_url: str, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(own_redis.url) as client, own_redis.client() as plain, closing(PostgresLedger(postgres_url)) as ledger:
        switch = ChasedSwitch(client, plain, ledger.backlog)
        monkeypatch.setattr(client, "call_all", switch.call_all)
        rebuilding = Rebuild(ledger, lambda follower: Mirror(client, whole=follower.whole))
        assert rebuilding.run(SystemClock().now(), "counts").boards == 1
        assert switch.overtaken > HOLD_AFTER
        assert switch.held
        assert not ledger.backlog.read().is_held
    load.check(load.finish())

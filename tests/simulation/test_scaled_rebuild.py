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
from rankd.ledger.postgres.ledger import PostgresLedger
from rankd.projection.redis.client import Call, Client, connect
from rankd.projection.redis.mirror import Mirror
from rankd.scaled.compose import migrate
from rankd.scaled.rebuilding import Rebuilding

from .scaled_load import BOARDS, Load
from .scaled_processes import Projectors

pytestmark = pytest.mark.timeout(300)  # processes that start, fail and catch up
REBUILDS = 3
EVENTS = 300  # between two rebuilds, and while a shard waits for its switch


@pytest.fixture
def load(tmp_path: Path, postgres_url: str, own_redis: RedisServer) -> Iterator[Load]:
    """A steady load that one projector ranks."""
    migrate(postgres_url)
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

    def __init__(self, client: Client, plain: Any, load: Load) -> None:
        self._call_all = client.call_all
        self._load = load
        self._plain = plain
        self.overtaken = 0

    def call_all(self, calls: Sequence[Call]) -> list[Any]:
        if not calls or calls[0].function != "rankd_finish":
            return self._call_all(calls)
        answers = []
        for number, call in enumerate(calls):
            answers += self._call_all([call])
            if answers[-1][0] == b"applied" and number + 1 < len(calls):
                self._wait_for_write(calls[number + 1])
        self.overtaken += any(answer[0] == b"gap" for answer in answers)
        return answers

    def _wait_for_write(self, call: Call) -> None:
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
            rebuilding = Rebuilding(ledger, lambda follower: Mirror(client, whole=follower.whole))
            assert rebuilding.run(SystemClock().now()).boards == len(BOARDS)
        assert switch.overtaken, "no shard was ahead when its turn came"
    load.check(load.finish())

"""Databases and a Redis for runs of the scaled-out composition: one server of each a session, emptied for each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

from rankd.node import projector
from rankd.node.shared_stores import SharedStores

from .playing import folders
from .scaled_by_hand import Installation

__all__ = ["folders"]


class Stores(NamedTuple):
    """Where a run writes."""

    ledger_url: str
    ranks_url: str


LendStores = Callable[[int], AbstractContextManager[Stores]]  # by the number of partitions


@pytest.fixture(scope="session")
def lend_stores(postgres: PostgresServer, redis_server: RedisServer) -> LendStores:
    """Lend an empty ledger of so many partitions and an empty Redis; copies of a template are made quickly."""
    templates: dict[int, str] = {}

    @contextmanager
    def lend(partitions: int) -> Iterator[Stores]:
        if partitions not in templates:
            template = postgres.make_database()
            SharedStores(postgres.url(template)).migrate(partitions)
            templates[partitions] = template
        with redis_server.client() as client:
            client.flushall()
        name = postgres.make_database(templates[partitions])
        try:
            yield Stores(postgres.url(name), redis_server.url)
        finally:
            postgres.drop_database(name)

    return lend


@pytest.fixture
def installation(
    postgres_url: str, own_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Installation]:
    """A projector that works when it is asked to, and boards whose clock is set by hand."""
    monkeypatch.setattr(projector, "BOARD_IDLE_MS", 0)
    SharedStores(postgres_url).migrate()
    with closing(Installation(postgres_url, own_redis.url, tmp_path)) as made:
        yield made


@pytest.fixture
def plain(own_redis: RedisServer) -> Iterator[Any]:
    """A client of the Redis that is the test's own."""
    with own_redis.client() as client:
        yield client

"""Redis for tests: one server and one cluster a session, empty for each test; or servers of a test's own.

Without Redis such tests are skipped with a sentence how to get it; where CI=true, they fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.servers.redis import (
    HOW_TO_GET_REDIS,
    RedisCluster,
    RedisServer,
    redis_is_installed,
    running_cluster,
    running_redis,
)

from rankd.redis.connection.client import RedisClient, connect

NOTHING_KEPT = ("--appendonly", "no")


def needs_redis() -> None:
    """Skip, or fail where nothing may be missing."""
    if not redis_is_installed():
        if os.environ.get("CI") == "true":
            pytest.fail(HOW_TO_GET_REDIS)
        pytest.skip(HOW_TO_GET_REDIS)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A server that many tests share: none of them stops it, so it need not keep anything."""
    needs_redis()
    with running_redis(NOTHING_KEPT) as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server of the test's own, which it may stop, kill and start again."""
    needs_redis()
    with running_redis() as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """A cluster that many tests share: none of them stops or moves anything."""
    needs_redis()
    with running_cluster(NOTHING_KEPT) as cluster:
        yield cluster


@pytest.fixture
def own_cluster() -> Iterator[RedisCluster]:
    """A cluster of the test's own."""
    needs_redis()
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def redis_client(redis_server: RedisServer) -> Iterator[RedisClient]:
    """A client of an empty server."""
    with redis_server.client() as plain:
        plain.flushall()
    with connect(redis_server.url) as client:
        yield client


@pytest.fixture
def cluster_client(redis_cluster: RedisCluster) -> Iterator[RedisClient]:
    """A client of an empty cluster."""
    redis_cluster.flush()
    with connect(redis_cluster.url) as client:
        yield client

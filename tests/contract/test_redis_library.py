"""Which Redis is taken, and who loads the functions: every master has them, and nobody replaces newer ones."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from tests.servers.redis import RedisCluster, RedisServer

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Rules
from rankd.errors import InvalidValue, RanksNewer, RanksUnavailable, RanksUnfit
from rankd.projection.port import Position, Verdict
from rankd.projection.redis.changes import InstanceChange, Move
from rankd.projection.redis.client import Client, connect
from rankd.projection.redis.library import LIBRARY_VERSION, ensure_library, library_code
from rankd.projection.redis.mirror import Mirror

CHANGE = InstanceChange(InstanceKey("arcade"), Rules(), 1_000, ["ann"], array("q", [5]), array("q", [0]), total=1)


def stored_version(plain: Any) -> str:
    (library,) = plain.execute_command("FUNCTION", "LIST", "LIBRARYNAME", "rankd", "WITHCODE")
    code = dict(zip(library[::2], library[1::2], strict=True))[b"library_code"].decode()
    return str(code.splitlines()[1])


def test_functions_that_were_lost_are_loaded_again(redis_server: RedisServer, redis_client: Client) -> None:
    mirror = Mirror(redis_client)
    mirror.write("arcade", 1, 0, [Move(0, 0, 1)], [CHANGE], time_ms=1)
    with redis_server.client() as plain:
        plain.execute_command("FUNCTION", "FLUSH")

    assert mirror.write("arcade", 1, 0, [Move(0, 1, 2)], [CHANGE], time_ms=1)[0].verdict is Verdict.APPLIED
    with redis_server.client() as plain:
        plain.execute_command("FUNCTION", "FLUSH")
    assert mirror.positions("arcade", 1) == [{0: Position(0, 2)}]


def test_a_flushed_redis_has_no_shards(redis_server: RedisServer, redis_client: Client) -> None:
    mirror = Mirror(redis_client)
    mirror.write("arcade", 1, 0, [Move(0, 0, 1)], [CHANGE], time_ms=1)
    with redis_server.client() as plain:
        plain.flushall()

    assert mirror.write("arcade", 1, 0, [Move(0, 1, 2)], [CHANGE], time_ms=1)[0].positions is None
    assert mirror.positions("arcade", 1) == [None]


def test_every_master_of_a_cluster_has_the_functions(redis_cluster: RedisCluster, cluster_client: Client) -> None:
    for server in redis_cluster.masters():
        with server.client() as plain:
            plain.execute_command("FUNCTION", "FLUSH")
    mirror = Mirror(cluster_client)

    answers = mirror.write("arcade", 9, 0, [Move(0, 0, 1)], [CHANGE], time_ms=1)

    assert {answer.verdict for answer in answers} == {Verdict.APPLIED}
    for server in redis_cluster.masters():
        with server.client() as plain:
            assert stored_version(plain) == f"-- version {LIBRARY_VERSION}"


@pytest.fixture
def server(redis_server: RedisServer) -> Any:
    """A plain client of a server without functions."""
    with redis_server.client() as plain:
        plain.execute_command("FUNCTION", "FLUSH")
        yield plain
        plain.execute_command("FUNCTION", "FLUSH")


def test_an_older_library_is_replaced(server: Any) -> None:
    assert ensure_library(server, library_code(LIBRARY_VERSION))
    assert ensure_library(server, library_code(LIBRARY_VERSION + 1))
    assert stored_version(server) == f"-- version {LIBRARY_VERSION + 1}"


def test_a_library_newer_by_one_version_serves_this_node_and_is_left(server: Any) -> None:
    ensure_library(server, library_code(LIBRARY_VERSION + 1))

    assert not ensure_library(server)
    assert stored_version(server) == f"-- version {LIBRARY_VERSION + 1}"


def test_a_library_newer_by_two_versions_is_refused(server: Any) -> None:
    ensure_library(server, library_code(LIBRARY_VERSION + 2))

    with pytest.raises(RanksNewer, match="upgrade rankd"):
        ensure_library(server)
    assert stored_version(server) == f"-- version {LIBRARY_VERSION + 2}"


def test_a_redis_that_may_evict_is_refused(redis_server: RedisServer, server: Any) -> None:
    server.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(RanksUnfit, match="maxmemory-policy"):
            connect(redis_server.url)
    finally:
        server.config_set("maxmemory-policy", "noeviction")


def test_a_redis_without_room_refuses_writes_and_keeps_what_it_has(
    redis_server: RedisServer, redis_client: Client
) -> None:
    mirror = Mirror(redis_client)
    mirror.write("arcade", 1, 0, [Move(0, 0, 1)], [CHANGE], time_ms=1)
    with redis_server.client() as plain:
        plain.config_set("maxmemory", "1mb")
        try:
            with pytest.raises(RanksUnavailable, match="maxmemory"):
                mirror.write("arcade", 1, 0, [Move(0, 1, 2)], [CHANGE], time_ms=1)
        finally:
            plain.config_set("maxmemory", "0")

    assert mirror.positions("arcade", 1) == [{0: Position(0, 1)}]


def test_nobody_there_is_unavailable() -> None:
    for url in ("redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1", "unix:///nowhere/redis.sock"):
        with pytest.raises(RanksUnavailable):
            connect(url)


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidValue, match="redis://"):
        connect("http://127.0.0.1:6379")

"""Which Redis is taken, and who loads the functions: every master has them, and every build calls its own."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from tests.servers.redis import RedisCluster, RedisServer

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Rules
from rankd.errors import InvalidValue, RanksNewer, RanksUnavailable, RanksUnfit
from rankd.projection.port import Position, Verdict
from rankd.redis.connection.client import RedisClient, connect
from rankd.redis.connection.library import LIBRARY_VERSION, Library, ensure_library, make_library, our_library
from rankd.redis.keys import LAYOUT_VERSION, ShardKeys
from rankd.redis.write.changes import InstanceChange, PartitionMove
from rankd.redis.write.mirror import Mirror

CHANGE = InstanceChange(InstanceKey("arcade"), Rules(), 1_000, ["ann"], array("q", [5]), array("q", [0]), total=1)


def stored_names(plain: Any) -> list[str]:
    """The libraries of a server, by name."""
    libraries = plain.execute_command("FUNCTION", "LIST")
    return sorted(
        dict(zip(library[::2], library[1::2], strict=True))[b"library_name"].decode() for library in libraries
    )


def stored_functions(plain: Any) -> list[str]:
    """The functions of all libraries of a server, by name."""
    libraries = plain.execute_command("FUNCTION", "LIST")
    functions = [dict(zip(library[::2], library[1::2], strict=True))[b"functions"] for library in libraries]
    return sorted(
        dict(zip(function[::2], function[1::2], strict=True))[b"name"].decode() for of in functions for function in of
    )


def small_library(version: int, answer: str) -> Library:
    """A library with one function, which says whose it is."""
    code = f"redis.register_function{{function_name = 'rankd_tell', callback = function() return '{answer}' end}}"
    return make_library(version, [("tell.lua", code)])


def test_functions_that_were_lost_are_loaded_again(redis_server: RedisServer, redis_client: RedisClient) -> None:
    mirror = Mirror(redis_client)
    mirror.write("arcade", 1, 0, [PartitionMove(0, 0, 1)], [CHANGE], time_ms=1)
    with redis_server.client() as plain:
        plain.execute_command("FUNCTION", "FLUSH")

    assert mirror.write("arcade", 1, 0, [PartitionMove(0, 1, 2)], [CHANGE], time_ms=1)[0].verdict is Verdict.APPLIED
    with redis_server.client() as plain:
        plain.execute_command("FUNCTION", "FLUSH")
    assert mirror.positions("arcade", 1) == [{0: Position(0, 2)}]


def test_a_flushed_redis_has_no_shards(redis_server: RedisServer, redis_client: RedisClient) -> None:
    mirror = Mirror(redis_client)
    mirror.write("arcade", 1, 0, [PartitionMove(0, 0, 1)], [CHANGE], time_ms=1)
    with redis_server.client() as plain:
        plain.flushall()

    assert mirror.write("arcade", 1, 0, [PartitionMove(0, 1, 2)], [CHANGE], time_ms=1)[0].positions is None
    assert mirror.positions("arcade", 1) == [None]


def test_every_master_of_a_cluster_has_the_functions(redis_cluster: RedisCluster, cluster_client: RedisClient) -> None:
    for server in redis_cluster.masters():
        with server.client() as plain:
            plain.execute_command("FUNCTION", "FLUSH")
    mirror = Mirror(cluster_client)

    answers = mirror.write("arcade", 9, 0, [PartitionMove(0, 0, 1)], [CHANGE], time_ms=1)

    assert {answer.verdict for answer in answers} == {Verdict.APPLIED}
    for server in redis_cluster.masters():
        with server.client() as plain:
            assert stored_names(plain) == [our_library().name]


@pytest.fixture
def server(redis_server: RedisServer) -> Any:
    """A plain client of a server without functions."""
    with redis_server.client() as plain:
        plain.execute_command("FUNCTION", "FLUSH")
        yield plain
        plain.execute_command("FUNCTION", "FLUSH")


def test_every_function_carries_the_build(server: Any) -> None:
    assert ensure_library(server)
    assert not ensure_library(server)

    names = stored_functions(server)
    assert len(names) == our_library().code.count("register_function") > 1
    assert all(name.startswith("rankd_") and name.endswith(f"_{our_library().build}") for name in names)


def test_libraries_of_versions_one_apart_stand_side_by_side(server: Any) -> None:
    newer = our_library(LIBRARY_VERSION + 1)
    assert ensure_library(server)
    assert ensure_library(server, newer)

    assert not ensure_library(server)
    assert not ensure_library(server, newer)
    assert stored_names(server) == sorted([our_library().name, newer.name])


def test_two_builds_of_one_version_call_functions_of_their_own(server: Any) -> None:
    first_library, second_library = small_library(LIBRARY_VERSION, "one"), small_library(LIBRARY_VERSION, "other")
    for library in (first_library, second_library, first_library):
        ensure_library(server, library)

    answers = [
        server.execute_command("FCALL", library.function("rankd_tell"), 0)
        for library in (first_library, second_library)
    ]
    assert answers == [b"one", b"other"]


def test_who_is_quicker_to_load_a_library_does_no_harm(server: Any) -> None:
    class Late:
        """Sees no libraries, as one who looked a moment too early."""

        def execute_command(self, *command: str) -> Any:
            return [] if command[:2] == ("FUNCTION", "LIST") else server.execute_command(*command)

    ensure_library(server)
    assert ensure_library(Late())
    assert stored_names(server) == [our_library().name]


def test_functions_newer_by_two_versions_are_refused(server: Any) -> None:
    newest = our_library(LIBRARY_VERSION + 2)
    ensure_library(server, newest)

    with pytest.raises(RanksNewer, match=f"of version {newest.version}, .* {LIBRARY_VERSION}: upgrade rankd"):
        ensure_library(server)
    assert stored_names(server) == [newest.name]


def test_a_node_two_versions_behind_is_refused_once_the_newer_one_is_there(
    redis_client: RedisClient, redis_server: RedisServer, server: Any
) -> None:
    ensure_library(server)
    ensure_library(server, our_library(LIBRARY_VERSION + 1))
    ensure_library(server, our_library(LIBRARY_VERSION + 2))  # takes away those of the version two before

    with pytest.raises(RanksNewer, match="upgrade rankd"):
        Mirror(redis_client).write("arcade", 1, 0, [PartitionMove(0, 0, 1)], [CHANGE], time_ms=1)
    with pytest.raises(RanksNewer, match="upgrade rankd"):
        connect(redis_server.url)
    assert our_library().name not in stored_names(server)


def test_a_shard_in_another_layout_is_refused_and_left_as_it_is(
    redis_server: RedisServer, redis_client: RedisClient
) -> None:
    mirror, other = Mirror(redis_client), Mirror(redis_client)
    mirror.write("arcade", 1, 0, [PartitionMove(0, 0, 1)], [CHANGE], time_ms=1)
    meta = ShardKeys("arcade", 0).meta
    with redis_server.client() as plain:
        plain.hset(meta, "version", LAYOUT_VERSION + 1)
        before = plain.hgetall(meta)

        with pytest.raises(RanksNewer, match=f"has layout {LAYOUT_VERSION + 1}, .* upgrade rankd"):
            mirror.write("arcade", 1, 0, [PartitionMove(0, 1, 2)], [CHANGE], time_ms=1)
        with pytest.raises(RanksNewer, match=f"has layout {LAYOUT_VERSION + 1}, .* upgrade rankd"):
            other.positions("arcade", 1)
        with pytest.raises(RanksNewer, match=f"has layout {LAYOUT_VERSION + 1}, .* upgrade rankd"):
            other.begin("arcade", 1, 1)
        assert plain.hgetall(meta) == before


def test_a_redis_that_may_evict_is_refused(redis_server: RedisServer, server: Any) -> None:
    server.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(RanksUnfit, match="maxmemory-policy"):
            connect(redis_server.url)
    finally:
        server.config_set("maxmemory-policy", "noeviction")


def test_a_redis_without_room_refuses_writes_and_keeps_what_it_has(
    redis_server: RedisServer, redis_client: RedisClient
) -> None:
    mirror = Mirror(redis_client)
    mirror.write("arcade", 1, 0, [PartitionMove(0, 0, 1)], [CHANGE], time_ms=1)
    with redis_server.client() as plain:
        plain.config_set("maxmemory", "1mb")
        try:
            with pytest.raises(RanksUnavailable, match="maxmemory"):
                mirror.write("arcade", 1, 0, [PartitionMove(0, 1, 2)], [CHANGE], time_ms=1)
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

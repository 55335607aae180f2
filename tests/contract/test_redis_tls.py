"""The way to Redis is encrypted, the server proved by an authority of one's own, and passwords may hold anything."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from tests.servers.fixtures_redis import needs_redis
from tests.servers.redis import MASTERS, RedisServer
from tests.servers.tls import Authority, running_tls_cluster, running_tls_redis

from rankd.errors import RanksUnavailable, RanksUnfit
from rankd.redis.connection.client import FunctionCall, RedisClient, connect
from rankd.redis.heartbeat import HeartbeatRecord, read_beat, write_beat

PASSWORD = "a/b@c:d%41 e?&#"
BOARDS = 20


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    needs_redis()
    return Authority(tmp_path)


def check_both_ways(client: RedisClient) -> None:
    beat = HeartbeatRecord("ledger", 1, 2, (3, 4))
    assert write_beat(client, beat)
    assert read_beat(client) == beat
    calls = [FunctionCall("GET", [b"{b%d}" % number], is_command=True) for number in range(BOARDS)]
    assert client.call_all(calls) == [None] * BOARDS


def test_redis_is_asked_over_tls_by_an_authority_of_ones_own(authority: Authority) -> None:
    with running_tls_redis(authority) as server, connect(server.url) as client:
        check_both_ways(client)


def test_a_cluster_is_asked_over_tls_by_an_authority_of_ones_own(authority: Authority) -> None:
    with running_tls_cluster(authority, PASSWORD) as cluster:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in cluster.servers[:MASTERS])
        where = f"default:{quote(PASSWORD, safe='')}@{hosts}/?ssl_ca_certs={authority.certificate}"
        with connect(f"rediss+cluster://{where}") as client:
            check_both_ways(client)
            assert len({client.node_of(b"{b%d}" % number) for number in range(BOARDS)}) == MASTERS


def test_a_redis_that_cannot_prove_itself_is_refused(authority: Authority, tmp_path: Path) -> None:
    another = Authority(tmp_path, "another")
    with running_tls_redis(authority) as server:
        for scheme in ("rediss", "rediss+cluster"):
            with pytest.raises(RanksUnavailable, match="certificate"):
                connect(f"{scheme}://127.0.0.1:{server.port}/?ssl_ca_certs={another.certificate}")


def test_a_password_is_percent_encoded_in_the_url(own_redis: RedisServer) -> None:
    with own_redis.client() as plain:
        plain.config_set("requirepass", PASSWORD)
    with connect(f"redis://:{quote(PASSWORD, safe='')}@127.0.0.1:{own_redis.port}") as client:
        check_both_ways(client)
    with pytest.raises(RanksUnfit, match="check user and password"):
        connect(f"redis://:wrong@127.0.0.1:{own_redis.port}")

"""The address of Redis is read as it is written, and what cannot be meant is refused without repeating it."""

from __future__ import annotations

import pytest

from rankd.errors import InvalidValue
from rankd.redis.connection.address import RedisAddress
from rankd.redis.connection.client import connect

SECRET = "s3cret"


def test_the_servers_of_a_cluster_have_the_usual_port_unless_they_have_another() -> None:
    address = RedisAddress("rediss+cluster://ann:a%2Fb@one:7000,two,[::1]:7002/?ssl_ca_certs=ca.pem")

    assert address.is_cluster
    assert address.nodes == [("one", 7000), ("two", 6379), ("::1", 7002)]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://host", "must begin with redis://"),
        (f"redis://:{SECRET}@host:port", "cannot be read as the address"),
        (f"redis://:{SECRET}@host:66666", "cannot be read as the address"),
        (f"redis+cluster://:{SECRET}@one:7000,two:port", "cannot be read as the address"),
        (f"redis+cluster://:{SECRET}@one:7000,,two", "cannot be read as the address"),
        (f"redis://:{SECRET}@host?socket_timeout=soon", "cannot be read as the address"),
        (f"redis+cluster://:{SECRET}@one/3", "names a database"),
        (f"redis://:{SECRET}@host?ssl_ca_certs=ca.pem", "do not have: 'ssl_ca_certs'"),
        (f"rediss+cluster://:{SECRET}@host?ssl_ca_cert=ca.pem", "do not have: 'ssl_ca_cert'"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_its_password(url: str, problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem) as refused:
        connect(url)
    assert SECRET not in str(refused.value)

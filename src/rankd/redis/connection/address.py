"""The URL of a Redis server or Redis Cluster, with redis-py's syntax.

    rediss+cluster://user:password@host:port,host:port/?ssl_ca_certs=ca.pem → Address → a redis-py client

User and password are percent-decoded; the query sets options of redis-py's connections, such as `ssl_ca_certs`.
"""

from __future__ import annotations

import inspect
from typing import Any
from urllib.parse import SplitResult, urlsplit

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import Connection, SSLConnection, parse_url

from rankd.errors import InvalidValue

PORT = 6379
_SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")
_CLUSTER = "+cluster"
_OURS = ("protocol", "decode_responses", "retry")  # the client depends on its own values of these
_OF_THE_POOL = ("connection_class", "max_connections")
_HOW = "it is like redis://user:password@host:6379/0, or redis+cluster://host:6379,host:6379"


class RedisAddress:
    """A server, or some nodes of a cluster, and the connection options."""

    def __init__(self, url: str) -> None:
        """Parse and check a URL; no error repeats it, since it holds a password."""
        try:
            parts = urlsplit(url)
            if parts.scheme not in _SCHEMES:
                raise InvalidValue(
                    "url", f"must begin with redis://, rediss://, unix:// or redis+cluster://; got {parts.scheme!r:.40}"
                )
            self.is_cluster = parts.scheme.endswith(_CLUSTER)
            self.nodes = _nodes(parts) if self.is_cluster else []
            parse: Any = parse_url  # it has no types
            self._options: dict[str, Any] = parse(_of_one_server(parts) if self.is_cluster else url)
        except InvalidValue:
            raise
        except ValueError:
            raise InvalidValue("url", f"cannot be read as the address of a Redis; {_HOW}") from None
        self._check_options()

    def _check_options(self) -> None:
        kind = self._options.get("connection_class", Connection)
        known = _arguments_of(kind)
        unknown = [name for name in self._options if name not in known and name not in _OF_THE_POOL]
        if unknown:
            raise InvalidValue("url", f"has a setting that connections to Redis do not have: {unknown[0]!r:.40}")
        if self.is_cluster and self._options.get("db", 0) != 0:
            raise InvalidValue("url", "names a database; a Redis Cluster has only one, so leave it out")

    def opened(self, options: dict[str, Any]) -> redis.Redis | RedisCluster:
        """Return a client with these options, which the URL may override; a cluster's client has connected."""
        chosen = {**options, **{name: value for name, value in self._options.items() if name not in _OURS}}
        if not self.is_cluster:
            return redis.Redis(connection_pool=redis.ConnectionPool(**chosen))
        for name in ("host", "port", "db"):
            chosen.pop(name, None)
        if chosen.pop("connection_class", None) is SSLConnection:
            chosen["ssl"] = True
        node: Any = ClusterNode
        return RedisCluster(startup_nodes=[node(host, port) for host, port in self.nodes], **chosen)


def _nodes(parts: SplitResult) -> list[tuple[str, int]]:
    hosts = parts.netloc.rpartition("@")[2].split(",")
    nodes = []
    for host in hosts:
        address = urlsplit(f"redis://{host}")
        if not address.hostname:
            raise ValueError("a host is missing")
        nodes.append((address.hostname, PORT if address.port is None else address.port))
    return nodes


def _of_one_server(parts: SplitResult) -> str:
    """Return the URL with only the first of its hosts."""
    credentials, at, hosts = parts.netloc.rpartition("@")
    netloc = credentials + at + hosts.split(",")[0]
    return parts._replace(scheme=parts.scheme.removesuffix(_CLUSTER), netloc=netloc).geturl()


def _arguments_of(kind: type) -> set[str]:
    """Return the constructor arguments of a connection class and its bases."""
    makers = [vars(base)["__init__"] for base in kind.__mro__[:-1] if "__init__" in vars(base)]
    return {name for maker in makers for name in inspect.signature(maker).parameters} - {"self", "args", "kwargs"}

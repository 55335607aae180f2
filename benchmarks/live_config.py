"""The configuration of servers of live rows: more connections from one address than one address would have."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.http_servers import HttpServer, _running
from benchmarks.redis_server import free_port

STREAMS_MAX = 6_000
REQUESTS_MAX = 16_384
FILES_WANTED = 16_384
CONFIG = f"""
[push]
streams_max = {STREAMS_MAX}
streams_per_address_max = {STREAMS_MAX}
[limits]
requests_max = {REQUESTS_MAX}
connections_per_address_max = {REQUESTS_MAX}
"""


def allow_files() -> None:
    """Let this process, and those it starts, have as many connections as the rows need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


@contextmanager
def running_live(folder: Path) -> Iterator[HttpServer]:
    """`rankd serve` on a data folder, with the limits raised."""
    port = free_port()
    config = folder.with_name("live.toml")
    config.write_text(CONFIG)
    serve = ["rankd", "serve", "--data", str(folder), "--port", str(port), "--config", str(config)]
    with _running(serve, port, "/readyz", folder.with_name("live.log")) as server:
        yield server


@contextmanager
def running_bare_live(first_bytes: int, log: Path) -> Iterator[HttpServer]:
    """Streams that get the same bytes, and nothing else."""
    port = free_port()
    asked = msgspec.json.encode({"port": port, "first_bytes": first_bytes}).decode()
    with _running(["benchmarks.live_bare", asked], port, "/", log) as server:
        yield server

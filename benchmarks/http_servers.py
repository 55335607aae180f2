"""The servers of a run: ours and the bare one, each in a process of its own, on loopback, ended by its own id."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec

from benchmarks.bare_server import ServerName
from benchmarks.http_bare import Bare
from benchmarks.isolated import ROOT
from benchmarks.redis_server import free_port, stop_process

READY_WAIT_S = 300.0
POLL_S = 0.02


class ServerError(RuntimeError):
    """A server did not start."""


@dataclass(slots=True)
class HttpServer:
    """A server that takes requests."""

    process: subprocess.Popen[bytes]
    url: str

    def resident_bytes(self) -> int:
        return resident_bytes_of(self.process.pid)

    def processor_ns(self) -> int:
        """The processor time it has used."""
        return processor_ns_of(self.process.pid)


def processor_ns_of(process: int) -> int:
    """Return the processor time of a process, in steps of the kernel's clock, usually 10 ms."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def resident_bytes_of(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def running_rankd(folder: Path) -> Iterator[HttpServer]:
    """`rankd serve` on a data folder, with the configuration that everybody gets."""
    port = free_port()
    config = folder.with_name("rankd.toml")
    config.write_text("")
    serve = ["rankd", "serve", "--data", str(folder), "--port", str(port), "--config", str(config)]
    with _running(serve, port, "/readyz", folder.with_name("server.log")) as server:
        yield server


@contextmanager
def running_bare(body_bytes: int, log: Path, server_name: ServerName) -> Iterator[HttpServer]:
    """A handler that answers with so many bytes, and does nothing else."""
    port = free_port()
    asked = msgspec.json.encode(Bare(port, body_bytes, server_name)).decode()
    with _running(["benchmarks.http_bare", asked], port, "/", log) as server:
        yield server


@contextmanager
def _running(module: Sequence[str], port: int, path: str, log: Path) -> Iterator[HttpServer]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RANKD_")}
    with log.open("ab") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", *module],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
        )
    server = HttpServer(process, f"http://127.0.0.1:{port}")
    try:
        _wait_until_ready(server, path, log)
        yield server
    finally:
        stop_process(process)


def _wait_until_ready(server: HttpServer, path: str, log: Path) -> None:
    deadline = time.monotonic() + READY_WAIT_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise ServerError(f"the server ended with {server.process.returncode}: {log.read_text()[-2_000:]}")
        try:
            if httpx.get(f"{server.url}{path}", timeout=2.0).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(POLL_S)
    raise ServerError(f"the server was not ready after {READY_WAIT_S:.0f} s")

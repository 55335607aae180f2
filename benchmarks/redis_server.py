"""A redis-server of our own, on loopback, in a temporary directory; and the fastest honest way to talk to it.

Nothing is left behind: the process is ended by its own id and the directory removed, also when a benchmark fails.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

HOW_TO_GET_REDIS = "redis-server is not installed, so there is no rival to compare with: apt-get install redis-server"
READY_WAIT_S = 300.0
STOP_WAIT_S = 30.0
REPLY_WAIT_S = 300.0
PORT_ATTEMPTS_MAX = 5
POLL_S = 0.002
RECEIVE_BYTES = 1 << 18
DUMP_NAME = "dump.rdb"
APPEND_ONLY = ("--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")


class RedisError(RuntimeError):
    """The server did not start, or answered with an error."""


def redis_is_installed() -> bool:
    return shutil.which("redis-server") is not None


def redis_version() -> str | None:
    if not redis_is_installed():
        return None
    shown = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"v=(\S+)", shown)
    return match.group(1) if match else None


@dataclass(slots=True)
class RedisServer:
    """A running server. `start_s` is the time from starting the process to the first PONG."""

    port: int
    process: subprocess.Popen[bytes]
    directory: Path
    start_s: float

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def processor_ns(self) -> int:
        """The processor time the server has used, in steps of the kernel's clock, usually 10 ms."""
        after_name = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")

    @property
    def dump(self) -> Path:
        return self.directory / DUMP_NAME

    def logged_load_s(self) -> float:
        """What the server itself says its load took, without process start and our polling."""
        durations = re.findall(r"DB loaded from disk: ([0-9.]+) seconds", (self.directory / "redis.log").read_text())
        if not durations:
            raise RedisError("the server's log does not say that it loaded a dump")
        return float(durations[-1])


@contextmanager
def running_redis(
    dump: Path | None = None, *, append_only: bool = False, parent: Path | None = None
) -> Iterator[RedisServer]:
    """Run a server, empty or loaded from `dump`, for as long as the block lasts.

    It keeps nothing, or with `append_only` a log of all commands, synced once a second and never rewritten, which
    favours Redis: a rewrite would take a core from it. `parent` is where its directory is made.
    """
    with tempfile.TemporaryDirectory(prefix="rankd-bench-", dir=parent) as name:
        directory = Path(name)
        if dump is not None:
            (directory / DUMP_NAME).symlink_to(dump)
        server = _start(directory, APPEND_ONLY if append_only else ("--appendonly", "no"))
        try:
            yield server
        finally:
            stop_process(server.process)


def _start(directory: Path, persistence: tuple[str, ...]) -> RedisServer:
    for _ in range(PORT_ATTEMPTS_MAX):
        port = free_port()
        began = time.perf_counter()
        process = subprocess.Popen(
            [
                *("redis-server", "--bind", "127.0.0.1", "--port", str(port)),
                *("--dir", str(directory), "--dbfilename", DUMP_NAME, "--logfile", str(directory / "redis.log")),
                *("--save", "", "--daemonize", "no", *persistence),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            if _answers(port, process):
                return RedisServer(port, process, directory, time.perf_counter() - began)
        except BaseException:
            stop_process(process)
            raise
    raise RedisError(f"redis-server ended at once on {PORT_ATTEMPTS_MAX} different ports")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Wait until PING is answered by PONG (while loading it is an error); False when the process has ended."""
    deadline = time.monotonic() + READY_WAIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return False
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=READY_WAIT_S) as probe:
                probe.sendall(b"PING\r\n")
                if probe.recv(64).startswith(b"+PONG"):
                    return True
        except OSError:
            pass
        time.sleep(POLL_S)
    raise RedisError(f"redis-server was not ready after {READY_WAIT_S:.0f} s")


def stop_process(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_WAIT_S)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands encoded beforehand, each of which answers with one integer."""

    encoded: bytes
    replies: int


class RawConnection:
    """Sends encoded pipelines and counts reply lines: the least a Python client can do.

    One pipeline is always on its way while the replies of the one before are read, so the server never idles.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=REPLY_WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def exchange(self, pipelines: Iterable[Pipeline]) -> bytes:
        """Send all pipelines and return the bytes of all replies, not yet read as integers."""
        parts: list[bytes] = []
        lines_missing = 0
        for pipeline in pipelines:
            self._socket.sendall(pipeline.encoded)
            lines_missing = self._receive(parts, lines_missing) + pipeline.replies
        self._receive(parts, lines_missing)
        return b"".join(parts)

    def _receive(self, parts: list[bytes], lines_missing: int) -> int:
        """Read until that many lines came; a number below 0 says how many lines of the next pipeline came too."""
        while lines_missing > 0:
            part = self._socket.recv(RECEIVE_BYTES)
            if not part:
                raise RedisError("the server closed the connection")
            parts.append(part)
            lines_missing -= part.count(b"\n")
        return lines_missing


def integers(replies: bytes) -> list[int]:
    """Read `:1\\r\\n:2\\r\\n` as [1, 2]."""
    lines = replies.split(b"\r\n")[:-1]
    for line in lines:
        if not line.startswith(b":"):
            raise RedisError(f"expected an integer, got {line[:100]!r}")
    return [int(line[1:]) for line in lines]

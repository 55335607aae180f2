"""Redis servers of our own, on loopback, in temporary folders: one alone, or a cluster of six.

Nothing is left behind: each process is ended by its own id and its folder removed, also when a test fails.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

HOW_TO_GET_REDIS = "redis-server 7 or newer is not installed: apt-get install redis-server"
START_WAIT_S = 60.0
STOP_WAIT_S = 60.0
POLL_S = 0.01
PORT_ATTEMPTS_MAX = 5
MASTERS = 3
SLOTS = 16_384
_BUS_PORT_ABOVE = 10_000
_BUS_PORT_MAX = 65_535
_SETTINGS = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--bind", "127.0.0.1")
CLUSTER = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0")


class RedisError(RuntimeError):
    """A server did not start, or a cluster did not come together."""


def redis_is_installed() -> bool:
    return shutil.which("redis-server") is not None


class RedisServer:
    """A server that can be stopped, killed and started again on its port."""

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        self.folder = folder
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def client(self) -> Any:
        """A plain client, for what rankd itself does not do."""
        return self.client_of(self.port)

    def client_of(self, port: int) -> Any:
        return redis.Redis(port=port, protocol=2, socket_timeout=30)

    def listening(self, port: int) -> list[str]:
        """What tells a server where to listen."""
        return ["--port", str(port)]

    def start(self) -> None:
        """Start it and wait until it answers; the first time on a free port."""
        for _ in range(PORT_ATTEMPTS_MAX):
            port = self.port or free_port()
            folder = ["--dir", str(self.folder)]
            command = ["redis-server", *self.listening(port), *folder, *_SETTINGS, *self._settings]
            with (self.folder / "redis.log").open("ab") as log:
                self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            if self._answers(port):
                self.port = port
                return
            self.stop()
        raise RedisError(f"redis-server did not start: {(self.folder / 'redis.log').read_text()[-2000:]}")

    def stop(self) -> None:
        self._end(kill=False)

    def kill(self) -> None:
        """End it as `kill -9` does: what was not written is lost."""
        self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_WAIT_S)

    def _answers(self, port: int) -> bool:
        deadline = time.monotonic() + START_WAIT_S
        pause = threading.Event()
        process = self._process
        assert process is not None
        with self.client_of(port) as probe:
            while time.monotonic() < deadline and process.poll() is None:
                with suppress(redis.RedisError):
                    if probe.info("server")["process_id"] == process.pid:
                        return True
                pause.wait(POLL_S)
        return False


class RedisCluster:
    """Three masters that share the slots, and a replica of each."""

    def __init__(self, servers: Sequence[RedisServer]) -> None:
        self.servers = servers

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers[:MASTERS])

    def form(self) -> None:
        """Let the servers meet, share the slots and follow their masters; return when every one of them sees it so."""
        clients = [server.client() for server in self.servers]
        share = SLOTS // MASTERS
        for place, client in enumerate(clients[:MASTERS]):
            last = SLOTS - 1 if place == MASTERS - 1 else (place + 1) * share - 1
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", place * share, last)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for client in clients[1:]:
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port)
        self._wait(lambda: all(cluster_info(client)["cluster_known_nodes"] == str(len(clients)) for client in clients))
        for master, replica in zip(clients[:MASTERS], clients[MASTERS:], strict=True):
            name = master.execute_command("CLUSTER", "MYID").decode()
            self._wait(lambda name=name, replica=replica: _follow(replica, name))
        self._wait(lambda: all(cluster_info(client)["cluster_state"] == "ok" for client in clients))
        self._wait(lambda: all(_slot_owners(client) == MASTERS for client in clients))
        for client in clients[MASTERS:]:
            self._wait(lambda client=client: client.info("replication").get("master_link_status") == "up")
        for client in clients:
            client.close()

    def master_of(self, key: bytes) -> RedisServer:
        """Return the server that has a key's slot now."""
        for server in self.servers:
            with server.client() as client, suppress(redis.RedisError):
                if client.info("replication")["role"] != "master":
                    continue
                slot = client.execute_command("CLUSTER", "KEYSLOT", key)
                for first, last, owner, *_ in client.execute_command("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return next(candidate for candidate in self.servers if candidate.port == owner[1])
        raise RedisError("nobody has this slot")

    def replica_of(self, master: RedisServer) -> RedisServer:
        """Return a server that follows this master."""
        for server in self.servers:
            with server.client() as client, suppress(redis.RedisError):
                replication = client.info("replication")
                if replication["role"] == "slave" and int(replication["master_port"]) == master.port:
                    return server
        raise RedisError(f"nobody follows the master on port {master.port}")

    def masters(self) -> list[RedisServer]:
        masters = []
        for server in self.servers:
            with server.client() as client, suppress(redis.RedisError):
                if client.info("replication")["role"] == "master":
                    masters.append(server)
        return masters

    def flush(self) -> None:
        """Empty every master; the function library stays."""
        for server in self.masters():
            with server.client() as client:
                client.flushall()

    @staticmethod
    def _wait(holds: Any) -> None:
        deadline = time.monotonic() + START_WAIT_S
        pause = threading.Event()
        while not holds():
            if time.monotonic() > deadline:
                raise RedisError("the cluster did not come together in time")
            pause.wait(POLL_S)


def free_port() -> int:
    """Return a port that nobody listens on, low enough for a cluster's bus port above it."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        # The system gives from above 32,768; the bus needs port + 10,000 as well.
        if port + _BUS_PORT_ABOVE <= _BUS_PORT_MAX and _is_free(port + _BUS_PORT_ABOVE):
            return port


@contextmanager
def running_redis(settings: Sequence[str] = ()) -> Iterator[RedisServer]:
    """Run a server while the block lasts."""
    with tempfile.TemporaryDirectory(prefix="rankd-redis-") as folder:
        server = RedisServer(Path(folder), settings)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def running_cluster(settings: Sequence[str] = ()) -> Iterator[RedisCluster]:
    """Run a cluster while the block lasts."""
    with ExitStack() as stack:
        servers = [stack.enter_context(running_redis((*CLUSTER, *settings))) for _ in range(2 * MASTERS)]
        cluster = RedisCluster(servers)
        cluster.form()
        yield cluster


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def cluster_info(client: Any) -> dict[str, str]:
    """What a server says of its cluster."""
    answer: Any = client.execute_command("CLUSTER", "INFO")
    if isinstance(answer, dict):
        return {str(name): str(value) for name, value in answer.items()}
    lines = answer.decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _follow(replica: Any, master: str) -> bool:
    try:
        replica.execute_command("CLUSTER", "REPLICATE", master)
    except redis.ResponseError:
        return False  # the two have not met yet
    return True


def _slot_owners(client: Any) -> int:
    return len(client.execute_command("CLUSTER", "SLOTS"))

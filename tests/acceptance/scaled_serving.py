"""Whole installations of real processes: API servers with projectors and Redis, or nodes, on PostgreSQL or on Kafka."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import psycopg
from tests.servers.postgres import PostgresServer, running_postgres
from tests.servers.redis import RedisServer, running_redis

from rankd.clock import SystemClock
from rankd.config.model import KafkaConfig
from rankd.node.shared_stores import SharedStores
from rankd.registry.credentials import Scope
from rankd.registry.postgres.credentials import PostgresCredentials

from .serving import ROOT, STOP_S, Serving, free_port

_topics = count(1)  # brokers are shared by tests


class OnPostgres:
    """Servers on one ledger, and what is needed to talk to them."""

    def __init__(
        self, folder: Path, postgres: PostgresServer, environment: Mapping[str, str], brokers_url: str | None = None
    ):
        """The ledger is in a topic of its own where `brokers_url` is given."""
        self.folder = folder
        self.postgres = postgres
        self.database = postgres.make_database()
        self.ledger_url = postgres.url(self.database)  # of the database beside it, where the ledger is a topic
        self.stores = SharedStores(self.ledger_url)
        if brokers_url is not None:
            kafka = KafkaConfig(ledger_topic=f"shared-ledger-{next(_topics)}")
            self.stores = SharedStores(brokers_url, self.ledger_url, kafka)
        self.stores.migrate()
        known = {name: value for name, value in os.environ.items() if not name.startswith("RANKD_")}
        self._environment = {
            **known,
            "RANKD_LEDGER_URL": self.stores.ledger_url,
            "RANKD_REGISTRY_URL": self.stores.registry_url,
            "RANKD_KAFKA_LEDGER_TOPIC": self.stores.kafka.ledger_topic,
            "RANKD_SERVER_LOG_FORMAT": "json",
            "RANKD_LIMITS_LAG_MAX_MS": "0",  # on a slow machine it takes long until a stopped projector is replaced
            **environment,
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        with PostgresCredentials(self.ledger_url, SystemClock()) as credentials:
            _, self.admin = credentials.create("tests", tuple(Scope))

    def run(self, *arguments: str, program: str = "rankd", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `program` is the module that is run."""
        command = [sys.executable, "-m", program, *arguments]
        known = {**self._environment, **environment}
        return subprocess.run(command, env=known, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    def serve(self, **environment: str) -> Serving:
        """Start an API process that takes requests."""
        serving = self.start_serving(free_port(), **environment)
        serving.wait_until_ready()
        return serving

    def start_serving(self, port: int, *, program: str = "rankd", **environment: str) -> Serving:
        """Start an API process, and do not wait for it; `program` is the module that is run."""
        log = self.folder / f"serve-{port}.log"
        process = self._start(log, {"RANKD_SERVER_PORT": str(port), **environment}, "serve", program=program)
        return Serving(process, f"http://127.0.0.1:{port}", self.folder, log)

    def _start(
        self, log: Path, environment: Mapping[str, str], *arguments: str, program: str = "rankd"
    ) -> subprocess.Popen[bytes]:
        with log.open("ab") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", program, *arguments],
                env={**self._environment, **environment},
                cwd=ROOT,
                stdout=written,
                stderr=written,
            )
        self._processes.append(process)
        return process

    def stop(self) -> None:
        """End every process, whatever it does."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(STOP_S)


class Installation(OnPostgres):
    """API servers that hold nothing, projectors, and a Redis with the ranks."""

    def __init__(
        self,
        folder: Path,
        postgres: PostgresServer,
        redis: RedisServer,
        environment: Mapping[str, str],
        brokers_url: str | None = None,
    ):
        super().__init__(folder, postgres, {"RANKD_RANKS_URL": redis.url, **environment}, brokers_url)
        self.redis = redis

    def project(self, name: str = "a", **environment: str) -> subprocess.Popen[bytes]:
        """Start a projector; its log is project-<name>.log."""
        folder = {"RANKD_PROJECTOR_FOLDER": str(self.folder / f"projector-{name}")}
        return self._start(self.folder / f"project-{name}.log", {**folder, **environment}, "project")


class Nodes(OnPostgres):
    """Servers that rank in engines of their own, each with a folder of its own."""

    def node(self, name: str, port: int | None = None, **environment: str) -> Serving:
        """Start a node that takes requests; its folder is node-<name>."""
        serving = self.start_node(name, port, **environment)
        serving.wait_until_ready()
        return serving

    def start_node(self, name: str, port: int | None = None, *, program: str = "rankd", **environment: str) -> Serving:
        """Start a node, and do not wait for it."""
        folder = {"RANKD_RANKS_FOLDER": str(self.node_folder(name))}
        return self.start_serving(port or free_port(), program=program, **{**folder, **environment})

    def node_folder(self, name: str) -> Path:
        """Return the folder of a node."""
        return self.folder / f"node-{name}"

    def command(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command with a node's configuration, to its end."""
        return self.run(*arguments, RANKD_RANKS_FOLDER=str(self.node_folder(name)))

    def lease_holder(self) -> int:
        """Return the process that got the lease last."""
        with psycopg.connect(self.ledger_url) as connection:
            row = connection.execute("SELECT holder FROM rankd.projectors WHERE name = 'nodes'").fetchone()
        name = "" if row is None or row[0] is None else str(row[0])
        return int(name.rpartition(":")[2] or 0)


@contextmanager
def nodes_installed(
    folder: Path, environment: Mapping[str, str] = {}, brokers_url: str | None = None
) -> Iterator[Nodes]:
    """Run PostgreSQL with a migrated ledger, or beside one on these brokers, and stop everything at the end."""
    with running_postgres() as postgres:
        nodes = Nodes(folder, postgres, environment, brokers_url)
        try:
            yield nodes
        finally:
            nodes.stop()


@contextmanager
def installed(
    folder: Path, environment: Mapping[str, str] = {}, brokers_url: str | None = None
) -> Iterator[Installation]:
    """Run PostgreSQL and Redis with a migrated ledger, there or on these brokers, and stop everything at the end."""
    with ExitStack() as stack:
        postgres = stack.enter_context(running_postgres())
        redis = stack.enter_context(running_redis())
        installation = Installation(folder, postgres, redis, environment, brokers_url)
        stack.callback(installation.stop)
        yield installation

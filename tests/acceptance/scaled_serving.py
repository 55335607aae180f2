"""A whole scaled-out installation of real processes: PostgreSQL, Redis, projectors and API servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.servers.postgres import PostgresServer, running_postgres
from tests.servers.redis import RedisServer, running_redis

from rankd.clock import SystemClock
from rankd.registry.credentials import Scope
from rankd.registry.postgres_credentials import PostgresCredentials
from rankd.scaled.compose import migrate

from .serving import STOP_S, Serving, free_port


class Installation:
    """Servers that run, and what is needed to talk to them."""

    def __init__(self, folder: Path, postgres: PostgresServer, redis: RedisServer, environment: Mapping[str, str]):
        self.folder = folder
        self.postgres = postgres
        self.redis = redis
        self.database = postgres.make_database()
        self.ledger_url = postgres.url(self.database)
        migrate(self.ledger_url)
        known = {name: value for name, value in os.environ.items() if not name.startswith("RANKD_")}
        self._environment = {
            **known,
            "RANKD_LEDGER_URL": self.ledger_url,
            "RANKD_RANKS_URL": redis.url,
            "RANKD_SERVER_LOG_FORMAT": "json",
            **environment,
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        with PostgresCredentials(self.ledger_url, SystemClock()) as credentials:
            _, self.admin = credentials.create("tests", tuple(Scope))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        command = [sys.executable, "-m", "rankd", *arguments]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60, check=False)

    def serve(self, **environment: str) -> Serving:
        """Start an API process that takes requests."""
        port = free_port()
        log = self.folder / f"serve-{port}.log"
        process = self._start(log, {"RANKD_SERVER_PORT": str(port), **environment}, "serve")
        serving = Serving(process, f"http://127.0.0.1:{port}", self.folder, log)
        serving.wait_until_ready()
        return serving

    def project(self, name: str = "a", **environment: str) -> subprocess.Popen[bytes]:
        """Start a projector."""
        log = self.folder / f"project-{name}.log"
        return self._start(
            log, {"RANKD_PROJECTOR_FOLDER": str(self.folder / f"projector-{name}"), **environment}, "project"
        )

    def _start(self, log: Path, environment: Mapping[str, str], *arguments: str) -> subprocess.Popen[bytes]:
        with log.open("ab") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", "rankd", *arguments],
                env={**self._environment, **environment},
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


@contextmanager
def installed(folder: Path, environment: Mapping[str, str] = {}) -> Iterator[Installation]:
    """Run PostgreSQL and Redis with a migrated ledger, and stop everything at the end."""
    with ExitStack() as stack:
        postgres = stack.enter_context(running_postgres())
        redis = stack.enter_context(running_redis())
        installation = Installation(folder, postgres, redis, environment)
        stack.callback(installation.stop)
        yield installation

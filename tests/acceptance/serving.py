"""The real server in a process of its own: started on a free port and an empty folder, stopped by its process id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
READY_S = 60.0
STOP_S = 60.0
POLL_S = 0.02


class Serving:
    """A server that runs."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, folder: Path, log: Path) -> None:
        self.process = process
        self.url = url
        self.folder = folder
        self.log = log

    @property
    def admin_key(self) -> str:
        """The key that the first start made."""
        return (self.folder / "admin.key").read_text().strip()

    def client(self, token: str | None = None, timeout_s: float = 10.0) -> httpx.Client:
        """Return a client with a credential, or with none."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        # Nothing here talks TLS, and to read the authorities that everybody trusts takes 30 ms for each client.
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s, verify=False)  # noqa: S501

    def assert_known(self, token: str) -> None:
        """Assert that a key which another process made a moment ago holds in the first request."""
        with self.client(token) as client:
            assert client.get("/v1/boards").status_code != 401

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.process.wait(STOP_S)

    def wait_until_ready(self) -> None:
        """Wait until requests are taken."""
        deadline = time.monotonic() + READY_S
        with self.client() as anybody:
            while not self._is_ready(anybody):
                if self.process.poll() is not None:
                    raise AssertionError(f"the server ended with {self.process.returncode}: {self.log.read_text()}")
                assert time.monotonic() < deadline, self.log.read_text()
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(POLL_S)

    @staticmethod
    def _is_ready(anybody: httpx.Client) -> bool:
        try:
            return anybody.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start(
    folder: Path,
    *,
    port: int | None = None,
    config: str = "",
    environment: Mapping[str, str] = {},
    program: str = "rankd",
) -> Serving:
    """Start a server; `config` is the text of its rankd.toml, `program` the module that is run."""
    listen = free_port() if port is None else port
    folder.mkdir(parents=True, exist_ok=True)
    file = folder.with_name(f"{folder.name}.toml")
    file.write_text(config)
    log = folder.with_name(f"{folder.name}.log")
    command = [sys.executable, "-m", program, "serve", "--data", str(folder), "--port", str(listen)]
    command += ["--config", str(file)]
    known = {name: value for name, value in os.environ.items() if not name.startswith("RANKD_")}
    with log.open("ab") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written, env={**known, **environment}, cwd=ROOT)
    return Serving(process, f"http://127.0.0.1:{listen}", folder, log)


@contextmanager
def serving(
    folder: Path, *, port: int | None = None, config: str = "", environment: Mapping[str, str] = {}
) -> Iterator[Serving]:
    """Run a server that takes requests, and stop it whatever happens."""
    running = start(folder, port=port, config=config, environment=environment)
    try:
        running.wait_until_ready()
        yield running
    finally:
        if running.process.poll() is None:
            running.stop(signal.SIGKILL)

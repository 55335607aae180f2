"""An S3 server of our own, on loopback: versitygw over a temporary folder, whose folders are the buckets.

Nothing is left behind: the process is ended by its own id and the folder removed, also when a test fails. The server is
compiled once by `tests/servers/install.sh`.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.postgres import free_port

HOW_TO_GET_S3 = "versitygw is not built: install Go (apt-get install golang-go), then run tests/servers/install.sh"
VERSION = "1.8.0"
ACCESS_KEY, SECRET_KEY, REGION = "rankd-tests", "rankd-tests-secret", "us-east-1"
START_WAIT_S = 60.0
STOP_WAIT_S = 30.0
POLL_S = 0.01


def program() -> Path:
    """Return the server's program, which may not exist."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "rankd-tests" / f"versitygw-{VERSION}" / "versitygw"


def s3_is_installed() -> bool:
    return program().exists()


class S3Server:
    """A server that can be stopped, killed, paused and started again on its port."""

    def __init__(self, folder: Path) -> None:
        """Nothing is started yet."""
        if not s3_is_installed():
            raise RuntimeError(HOW_TO_GET_S3)
        self.folder = folder
        self.buckets = folder / "buckets"
        self._metadata = folder / "metadata"
        for part in (self.buckets, self._metadata):
            part.mkdir()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def new_bucket(self) -> str:
        """Make a bucket and return its name."""
        name = f"bucket-{secrets.token_hex(4)}"
        (self.buckets / name).mkdir()
        return name

    def start(self) -> None:
        """Start it and return when it answers."""
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(program()),
                    *("--port", f"127.0.0.1:{self.port}", "--region", REGION, "--quiet"),
                    *("--access", ACCESS_KEY, "--secret", SECRET_KEY),
                    # Etags are metadata, for which not every file system has extended attributes.
                    *("posix", "--sidecar", str(self._metadata), str(self.buckets)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline, pause = time.monotonic() + START_WAIT_S, threading.Event()
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the S3 server did not start: {self.log()[-2_000:]}")
            pause.wait(POLL_S)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def log(self) -> str:
        """Return what the server has written."""
        return (self.folder / "server.log").read_text(errors="replace")

    def pause(self) -> None:
        """Let it answer nothing, while connections stay open."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it answer again."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it without notice."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_WAIT_S)


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """Run a server while the block lasts."""
    with tempfile.TemporaryDirectory(prefix="rankd-s3-", ignore_cleanup_errors=True) as folder:
        server = S3Server(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()

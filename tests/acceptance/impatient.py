"""`rankd serve` with less patience for live connections: tests can wait for what takes half a minute otherwise."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankd.api.live import streams
from rankd.cli.main import main

from .serving import Serving, free_port

ROOT = Path(__file__).resolve().parents[2]
STALLED_S = 1.5
HEARTBEAT_S = 0.4
HEARTBEAT = "IMPATIENT_HEARTBEAT_S"  # a variable of the environment
SEND_BUFFER_BYTES = 16_384  # the system would otherwise take megabytes for a client that reads nothing


@contextmanager
def impatient_serving(folder: Path, config: str, heartbeat_s: float = HEARTBEAT_S) -> Iterator[Serving]:
    """Run such a server, and stop it whatever happens."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    file, log = folder.with_name(f"{folder.name}.toml"), folder.with_name(f"{folder.name}.log")
    file.write_text(config)
    command = [sys.executable, "-m", "tests.acceptance.impatient", "serve", "--data", str(folder)]
    command += ["--port", str(port), "--config", str(file)]
    known = {name: value for name, value in os.environ.items() if not name.startswith("RANKD_")}
    known[HEARTBEAT] = str(heartbeat_s)
    with log.open("ab") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written, env=known, cwd=ROOT)
    running = Serving(process, f"http://127.0.0.1:{port}", folder, log)
    try:
        running.wait_until_ready()
        yield running
    finally:
        if process.poll() is None:
            running.stop(signal.SIGKILL)


def listen(listening: socket.socket, *backlog: int) -> None:
    """Listen; what is accepted here takes over the small send buffer."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    listen_as_usual(listening, *backlog)


if __name__ == "__main__":
    listen_as_usual = socket.socket.listen
    socket.socket.listen = listen  # type: ignore[assignment, method-assign]
    streams.STALLED_S = STALLED_S
    streams.HEARTBEAT_S = float(os.environ[HEARTBEAT])
    main()

"""Several workers on one folder: each can be asked alone, by its local socket, and ended by its process id."""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from tests.servers.waiting import wait_until

from .serving import Serving, start

WRITER = 0
_CREDENTIALS = struct.Struct("3i")  # process, user, group


class Workers:
    """A supervisor with its workers."""

    def __init__(self, serving: Serving, count: int) -> None:
        self.serving = serving
        self.count = count

    @property
    def supervisor(self) -> int:
        """The supervisor's process."""
        return self.serving.process.pid

    @property
    def readers(self) -> range:
        """The numbers of the workers that read."""
        return range(1, self.count)

    def only(self, number: int, token: str | None = None) -> httpx.Client:
        """Return a client of one worker."""
        transport = httpx.HTTPTransport(uds=str(self._path(number)))
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url="http://localhost", transport=transport, headers=headers, timeout=10.0)

    def admin(self, number: int | None = None) -> httpx.Client:
        """Return an administrator's client of one worker, or of the public address."""
        key = self.serving.admin_key
        return self.serving.client(key) if number is None else self.only(number, key)

    def process(self, number: int) -> int | None:
        """Return the process that listens on a worker's local socket; None while none does."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            try:
                link.connect(str(self._path(number)))
            except OSError:
                return None
            credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(credentials)[0])

    def kill(self, number: int) -> int:
        """Kill a worker, and return the process it was."""
        process = self.process(number)
        assert process is not None
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: self.process(number) != process)
        return process

    def wait_until_there(self) -> None:
        """Wait until every worker takes requests."""
        wait_until(lambda: all(self.is_ready(number) for number in range(self.count)))

    def is_ready(self, number: int) -> bool:
        """Return whether a worker takes requests."""
        if self.process(number) is None:
            return False  # httpx would leave the socket open that it cannot connect
        try:
            with self.only(number) as client:
                return client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def processes(self) -> set[int]:
        """Return the supervisor and its children."""
        children = Path(f"/proc/{self.supervisor}/task/{self.supervisor}/children").read_text().split()
        return {self.supervisor, *map(int, children)}

    def _path(self, number: int) -> Path:
        return self.serving.folder / f"worker-{number}.sock"


@contextmanager
def running_workers(
    folder: Path,
    count: int = 2,
    config: str = "",
    *,
    program: str = "rankd",
    environment: Mapping[str, str] = {},
) -> Iterator[Workers]:
    """Run workers that take requests, and end all of them whatever happens; `program` is the module that is run."""
    text = f"[server]\nworkers = {count}\n{config}"
    running = Workers(start(folder, config=text, program=program, environment=environment), count)
    processes = {running.supervisor}
    try:
        running.serving.wait_until_ready()
        running.wait_until_there()
        processes = running.processes()
        yield running
    finally:
        with suppress(FileNotFoundError):
            processes |= running.processes()
        if running.serving.process.poll() is None:
            running.serving.stop(signal.SIGKILL)  # its workers end with it
        wait_until(lambda: not any(map(is_alive, processes)))


def is_alive(process: int) -> bool:
    """Return whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def answered(response: httpx.Response, status: int = 200) -> dict[str, Any]:
    """Return the answer of a request that went well."""
    assert response.status_code == status, response.text
    body: dict[str, Any] = response.json()
    return body

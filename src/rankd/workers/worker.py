"""A worker: what one of several processes needs to know about itself and the others."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from rankd.api.http.listening import Address
from rankd.workers.commit_signal import CommitSignal

WRITER = 0  # the number of the worker that writes
READY = b"r"


class Worker:
    """One of several processes that serve a folder; number 0 writes."""

    def __init__(
        self,
        number: int,
        count: int,
        folder: Path,
        *,
        addresses: Sequence[Address],
        commit_signal: CommitSignal,
        supervisor: socket.socket,
        supervisor_process: int,
    ) -> None:
        """`addresses` are public, and shared by all; `supervisor` is at its end when the supervisor has died."""
        self.number = number
        self.folder = folder
        self.addresses = addresses
        self.supervisor = supervisor
        self.supervisor_process = supervisor_process
        self._count = count
        self._commit_signal = commit_signal

    @property
    def is_writer(self) -> bool:
        """Whether this worker writes."""
        return self.number == WRITER

    @property
    def others(self) -> list[int]:
        """The numbers of the other workers."""
        return [number for number in range(self._count) if number != self.number]

    def local_path(self, number: int) -> Path:
        """Return the path of a worker's local socket."""
        return local_path(self.folder, number)

    def tell_ready(self) -> None:
        """Tell the supervisor that this worker serves."""
        self.supervisor.send(READY)

    def signal_commit(self) -> None:
        """Wake the workers that read: there is a new commit."""
        self._commit_signal.send()

    def wait_for_commit(self, timeout_s: float) -> None:
        """Wait for a commit of the worker that writes."""
        self._commit_signal.wait(self.number, timeout_s)


def local_path(folder: Path, number: int) -> Path:
    """Return the path of a worker's local socket in the data folder."""
    return folder / f"worker-{number}.sock"

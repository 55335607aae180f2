"""Projectors in processes of their own, and who of them ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import NamedTuple

import psycopg
from tests.servers.waiting import wait_until

from . import scaled_projector_child

START_S, END_S = 120, 60


class Holder(NamedTuple):
    """Who ranks, as the lease says."""

    epoch: int
    pid: int


class Projectors:
    """Any number of them, over one ledger and one Redis."""

    def __init__(self, ledger_url: str, ranks_url: str, folder: Path) -> None:
        self._ledger_url = ledger_url
        self._ranks_url = ranks_url
        self._folder = folder
        self._numbers = count(1)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._folders: dict[int, Path] = {}

    def start(self, folder: Path | None = None) -> int:
        """Start one, in a folder of its own or in one that another has left; return its process id."""
        own = folder or self._folder / f"projector-{next(self._numbers)}"
        own.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", scaled_projector_child.__name__, self._ledger_url, self._ranks_url, str(own)]
        with (own / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=Path(__file__).parents[1])
        self._processes[process.pid] = process
        self._folders[process.pid] = own
        return process.pid

    def log(self, pid: int) -> str:
        return (self._folders[pid] / "log").read_text()

    def folder(self, pid: int) -> Path:
        return self._folders[pid]

    def kill(self, pid: int) -> None:
        """End it without notice."""
        self._processes[pid].kill()
        self._processes[pid].wait(END_S)

    def pause(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)

    def resume(self, pid: int) -> None:
        os.kill(pid, signal.SIGCONT)

    def is_alive(self, pid: int) -> bool:
        return self._processes[pid].poll() is None

    def holder(self) -> Holder:
        """Return who got the lease last."""
        with psycopg.connect(self._ledger_url) as connection:
            row = connection.execute("SELECT epoch, holder FROM rankd.projectors WHERE name = 'ranks'").fetchone()
        assert row is not None
        epoch, name = row
        pid = name.rpartition(":")[2]
        return Holder(epoch, int(pid) if pid.isdigit() else 0)

    def wait_for_holder(self, *others: int) -> Holder:
        """Return who ranks once it is one that runs, and none of these."""
        wait_until(lambda: self.holder().pid in self._processes.keys() - {*others}, START_S)
        return self.holder()

    def end(self) -> None:
        """End all of them."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(END_S)

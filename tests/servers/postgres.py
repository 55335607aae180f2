"""A PostgreSQL of our own, on loopback, in a temporary folder.

Nothing is left behind: the process is ended by its own id and the folder removed, also when a test fails. PostgreSQL
refuses to run as root, so root lends it another user.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path

import psycopg
from psycopg import sql

HOW_TO_GET_POSTGRES = "PostgreSQL 14 or newer is not installed: apt-get install postgresql"
USER = "rankd"  # within the server
SYSTEM_USERS = ("postgres", "nobody")  # whom root lends it, the first there is
START_WAIT_S = 60.0
STOP_WAIT_S = 60.0
POLL_S = 0.01
PR_SET_PDEATHSIG = 1  # of Linux: a signal when the thread that started the process ends
PORT_ATTEMPTS_MAX = 5
# Ours is killed as a process, never with the machine: what the system has taken is safe, and tests are quick.
UNSYNCED = ("fsync=off", "full_page_writes=off", "autovacuum=off")
SETTINGS = ("listen_addresses=127.0.0.1", "max_connections=200", "shared_buffers=64MB", "log_min_messages=warning")


class PostgresError(RuntimeError):
    """The server did not start."""


def binaries() -> Path | None:
    """Return the folder of the newest server that is installed."""
    on_path = shutil.which("postgres")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    return max(folders, key=lambda path: int(path.parent.name) if path.parent.name.isdigit() else 0, default=None)


class PostgresServer:
    """A server that can be stopped, killed and started again on its port."""

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        """Make a data folder below `folder`, which belongs to the server's user."""
        program_folder = binaries()
        if program_folder is None:
            raise PostgresError(HOW_TO_GET_POSTGRES)
        self._binaries = program_folder
        self._folder = folder
        self._settings = (*SETTINGS, *settings)
        self._system_user = _system_user()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._idle_databases: list[str] = []
        self.port = 0
        _give(folder, self._system_user)
        command = ("cp", "-a", str(_new_data(program_folder, self._system_user)), str(self._data))
        subprocess.run(command, check=True, timeout=START_WAIT_S)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def log(self) -> str:
        """Return what the server has written."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Return when it answers; again on the same port when it has run before."""
        for _ in range(PORT_ATTEMPTS_MAX):
            port = self.port or free_port()
            settings = [part for setting in self._settings for part in ("-c", setting)]
            sockets = ("-k", str(self._folder))
            command = [str(self._binaries / "postgres"), "-D", str(self._data), "-p", str(port), *sockets, *settings]
            self._process = _started(command, self._log, self._system_user)
            if self._answers(port):
                self.port = port
                return
        raise PostgresError(f"the server did not start: {self.log()[-2_000:]}")

    def _answers(self, port: int) -> bool:
        deadline = time.monotonic() + START_WAIT_S
        pause = threading.Event()
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self._url("postgres", port), connect_timeout=2).close()
                return True
            except psycopg.OperationalError:
                pause.wait(POLL_S)
        self.kill()
        return False

    def stop(self) -> None:
        """Stop it as an administrator would: connections are cut, everything is written."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it without notice, its children with it."""
        self._end(signal.SIGQUIT)

    def pause(self) -> None:
        """Let the whole server stand still, as a machine does that hangs."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        own = str(self._process.pid)
        children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        for pid in (own, *children):
            with suppress(ProcessLookupError):  # a worker that has ended meanwhile
                os.kill(int(pid), number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_WAIT_S)

    def url(self, database: str = "postgres") -> str:
        """Return where a database is."""
        return self._url(database, self.port)

    @staticmethod
    def _url(database: str, port: int) -> str:
        return f"postgresql://{USER}@127.0.0.1:{port}/{database}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """Lend an empty database, by its URL: one that was lent before and emptied, which is quick."""
        name = self._idle_databases.pop() if self._idle_databases else self.make_database()
        try:
            yield self.url(name)
        finally:
            with psycopg.connect(self.url(name), autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
                connection.execute("DROP SCHEMA IF EXISTS rankd CASCADE")
                connection.execute("DROP SCHEMA public CASCADE")
                connection.execute("CREATE SCHEMA public")
            self._idle_databases.append(name)

    def make_database(self, template: str | None = None) -> str:
        """Make a database, empty or a copy of another to which nobody is connected; return its name."""
        name = f"test_{next(self._numbers)}"
        copied = sql.Identifier("template1" if template is None else template)
        self.administer(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), copied))
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        self.administer(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def administer(self, statement: sql.SQL | sql.Composed) -> None:
        """Run a statement that belongs to no database."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def running_postgres(settings: Sequence[str] = UNSYNCED, parent: Path | None = None) -> Iterator[PostgresServer]:
    """Run a server for as long as the block lasts; `parent` is where its folder is made, and others may pass."""
    with tempfile.TemporaryDirectory(prefix="rankd-pg-", dir=parent, ignore_cleanup_errors=True) as name:
        server = PostgresServer(Path(name), settings)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@cache
def _new_data(binaries_folder: Path, system_user: str | None) -> Path:
    """Return a data folder of which servers take copies: that is much quicker than to make one for each."""
    kept = tempfile.TemporaryDirectory(prefix="rankd-pg-new-", ignore_cleanup_errors=True)
    atexit.register(kept.cleanup)
    folder = Path(kept.name)
    _give(folder, system_user)
    own = ("-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
    made = _started([str(binaries_folder / "initdb"), "-D", str(folder / "data"), *own], folder / "log", system_user)
    if made.wait(START_WAIT_S):
        raise PostgresError(f"initdb failed: {(folder / 'log').read_text(errors='replace')}")
    return folder / "data"


def _started(command: Sequence[str], log: Path, system_user: str | None) -> subprocess.Popen[bytes]:
    with log.open("ab") as written:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            cwd=log.parent,
            user=system_user,
            group=None if system_user is None else pwd.getpwnam(system_user).pw_gid,
            extra_groups=None if system_user is None else [],
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call of the system, and nothing that locks
        )


def _give(folder: Path, system_user: str | None) -> None:
    """Let a folder belong to whom the server runs as."""
    if system_user is not None:
        account = pwd.getpwnam(system_user)
        os.chown(folder, account.pw_uid, account.pw_gid)


_system = ctypes.CDLL(None)


def _end_with_parent() -> None:
    """Let the system end the server when we are killed and cannot."""
    if sys.platform == "linux":
        _system.prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


def _system_user() -> str | None:
    """Return whom the server runs as; None: whoever we are."""
    if os.geteuid() != 0:
        return None
    known = {account.pw_name for account in pwd.getpwall()}
    user = next((name for name in SYSTEM_USERS if name in known), None)
    if user is None:
        raise PostgresError("PostgreSQL does not run as root, and there is no user that could be lent to it")
    return user

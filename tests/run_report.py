"""What a run says while it goes on: a log that was cut off anywhere names the tests that failed and those that hung."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

ERROR_CHARACTERS_MAX = 300
LEFT_PROCESSES_WAIT_S = 5.0
POLL_S = 0.02
PR_SET_CHILD_SUBREAPER = 36  # of Linux: orphans become our children, so that we can end them


class RunReport:
    """Names failures as they happen, tests that were under way when the run was interrupted, and ends what is left."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._began: dict[str, float] = {}
        # Whoever runs us may have started us with interrupts ignored, and a deadline ends us by SIGTERM.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._began[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._began.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write(f"FAILED {report.nodeid} ({report.when}, {report.duration:.1f} s)")
            for line in error_lines(report):
                self._write(f"       {line}")

    def pytest_keyboard_interrupt(self) -> None:
        for nodeid, began in self._began.items():
            self._write(f"UNDER WAY {nodeid} ({time.monotonic() - began:.0f} s)")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """End processes that tests have left behind: one that holds our output would keep the run from ending."""
        deadline = time.monotonic() + LEFT_PROCESSES_WAIT_S
        pause, killed = threading.Event(), set()
        while (left := children()) and time.monotonic() < deadline:
            for pid, command in left.items():
                if command and pid not in killed:  # a process that has ended has no command any more
                    self._write(f"LEFT BEHIND by a test, and killed: {command} (process {pid})")
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
                os.waitpid(pid, os.WNOHANG)
            pause.wait(POLL_S)

    def _write(self, line: str) -> None:
        self._terminal.ensure_newline()
        self._terminal.write_line(line)
        self._terminal.flush()


def error_lines(report: pytest.TestReport) -> list[str]:
    """Return the first and the last line of what a failed test says."""
    lines = [line.removeprefix("E ").strip() for line in report.longreprtext.splitlines() if line.startswith("E ")]
    lines = lines or report.longreprtext.strip().splitlines()
    shown = [line[:ERROR_CHARACTERS_MAX] for line in dict.fromkeys((*lines[:1], *lines[-1:]))]
    crash = getattr(report.longrepr, "reprcrash", None)
    return shown if crash is None else [*shown, f"{crash.path}:{crash.lineno}"]


def children() -> dict[int, str]:
    """Return the command of each process that we have started, or inherited from a worker that was killed."""
    commands = {}
    for task in Path("/proc/self/task").glob("*/children"):
        for pid in task.read_text().split():
            with suppress(OSError):
                commands[int(pid)] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    return commands


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Report from the process that the user sees, not from the workers beside it."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunReport(terminal))

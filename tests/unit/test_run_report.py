"""What a run of tests prints while it goes on, whether it comes to its end or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from tests.servers.processes import killed_at_the_end
from tests.servers.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
ENDS_S = 60
TESTS = """
import signal, subprocess, sys, threading
from pathlib import Path

FOLDER = Path(__file__).parent

def test_passes():
    pass

def test_fails():
    assert 1 == 2, "the reason"

def test_leaves_a_process_behind():
    child = subprocess.Popen([sys.executable, "-c", "import select; select.select([], [], [], 60)"])
    (FOLDER / "child").write_text(str(child.pid))

def test_hangs():
    (FOLDER / "hangs").touch()
    threading.Event().wait(60)

def test_hears_nothing():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    threading.Event().wait(60)
"""


PLUGINS = ("tests.run_report", "xdist", "pytest_timeout", "no:cacheprovider")
LIMITS = ("timeout=1", "faulthandler_timeout=3", "faulthandler_exit_on_timeout=true")


def started(folder: Path, *arguments: str, output: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
    (folder / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, str(folder / "test_it.py"), "--numprocesses=1"]
    command += [*(f"-p{plugin}" for plugin in PLUGINS), *arguments]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, text=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What a run printed, and its folder."""
    folder = tmp_path_factory.mktemp("run")
    with killed_at_the_end(started(folder, *(f"-o{limit}" for limit in LIMITS))) as running:
        output, _ = running.communicate(timeout=ENDS_S)
    assert running.returncode == 1, output
    return output, folder


def test_a_failure_is_named_with_its_reason_when_it_happens(run: tuple[str, Path]) -> None:
    before, _, _ = run[0].partition("= FAILURES =")

    assert "test_it.py::test_fails (call, 0.0 s)\n       AssertionError: the reason" in before


def test_a_test_that_takes_too_long_fails_and_is_named(run: tuple[str, Path]) -> None:
    assert "test_it.py::test_hangs (call, 1." in run[0]
    assert "Timeout (>1.0s)" in run[0]


def test_a_worker_that_cannot_even_fail_its_test_is_ended_and_the_test_named(run: tuple[str, Path]) -> None:
    assert "crashed while running 'test_it.py::test_hears_nothing'" in run[0]
    assert "3 failed, 2 passed" in run[0]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not give us the orphans of a worker")
def test_no_process_outlives_the_run(run: tuple[str, Path]) -> None:
    output, folder = run

    assert "LEFT BEHIND" in output
    assert not Path(f"/proc/{(folder / 'child').read_text()}").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_names_what_was_under_way(tmp_path: Path, number: signal.Signals) -> None:
    output = tmp_path / "output"
    with (
        output.open("w") as file,
        killed_at_the_end(started(tmp_path, "-k", "test_hangs", "--verbose", output=file)) as running,
    ):
        # The worker runs the test before the process that we interrupt has heard that it began.
        wait_until(lambda: "test_it.py::test_hangs" in output.read_text())
        running.send_signal(number)
        running.wait(timeout=ENDS_S)

    assert "UNDER WAY test_it.py::test_hangs (" in output.read_text()

"""A process that is killed at any moment has lost no midnight: what is missing is recorded again at the next start."""

from __future__ import annotations

import random
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rankd.folder import SNAPSHOTS
from rankd.node.open_embedded import HISTORY

from . import history_child
from .extent import LONG, scratch_folder
from .history_child import opened
from .test_crash import START_S_MAX, read_until

KILLS = 40 if LONG else 3
KILL_AFTER_MS = (5, 120)


def day_of_kill(folder: Path, first: int, after_ms: float) -> int:
    """Let days go by from one on, kill whoever does it, and return the last day it spoke of."""
    command = [sys.executable, "-m", history_child.__name__, str(folder), str(first)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[1])
    assert child.stdout is not None
    assert child.stderr is not None
    with child, child.stdout as output, child.stderr as errors:
        try:
            started, _, _ = select.select([output], [], [], START_S_MAX)
            assert started, "the child has not begun"
            text = read_until(output.fileno(), time.monotonic() + after_ms / 1_000)
        finally:
            child.kill()
        text += output.read()
        complaint = errors.read().decode()
    assert text, complaint
    return int(text.split()[-1])


def files_after(folder: Path, day: int) -> dict[str, bytes]:
    """Return the files of places after a start."""
    boards = opened(folder, day)
    boards.settle()
    boards.verify()
    boards.close()
    history = folder / HISTORY
    return {str(path.relative_to(history)): path.read_bytes() for path in history.rglob("*.places")}


def test_a_killed_process_has_lost_no_midnight() -> None:
    rng, day = random.Random(11), 0
    with scratch_folder() as scratch:
        folder = scratch / "data"
        for _ in range(KILLS):
            day = day_of_kill(folder, day, rng.uniform(*KILL_AFTER_MS)) + 1
            after_the_kill = files_after(folder, day)
            shutil.copytree(folder, scratch / "replayed")
            shutil.rmtree(scratch / "replayed" / HISTORY)
            shutil.rmtree(scratch / "replayed" / SNAPSHOTS)
            assert files_after(scratch / "replayed", day) == after_the_kill
            shutil.rmtree(scratch / "replayed")
        assert len(after_the_kill) > KILLS

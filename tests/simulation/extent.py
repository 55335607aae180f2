"""How much of a simulation is run: a seeded sample with the other tests, everything with `make test-long`.

RANKD_LONG=1 makes the ordinary tests as long as the long ones; RANKD_SEED=… plays one run again.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

LONG = os.environ.get("RANKD_LONG") == "1"
STUCK_AFTER_S = 60
IN_MEMORY = Path("/dev/shm")  # noqa: S108

Item = TypeVar("Item")

# For a test's parameter `everything`: False is the sample.
short_and_long = pytest.mark.parametrize(
    "everything", [pytest.param(LONG, id="sample"), pytest.param(True, id="everything", marks=pytest.mark.long)]
)


@contextmanager
def replayable() -> Iterator[random.Random]:
    """Give a source of chance by the seed of the run, or by RANKD_SEED, and name its seed in a failure."""
    seed = int(os.environ.get("RANKD_SEED") or random.randrange(2**32))
    try:
        yield random.Random(seed)
    except BaseException as error:
        error.add_note(f"play it again with RANKD_SEED={seed}")
        raise


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a folder for tests that do to files by hand what a disk does: in memory where the system has that."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def sampled(items: Sequence[Item], at_most: int, rng: random.Random) -> list[Item]:
    """Return a random sample in the order it was in; all where there are fewer."""
    chosen = sorted(rng.sample(range(len(items)), min(at_most, len(items))))
    return [items[index] for index in chosen]


def without_hanging(call: Callable[[], None]) -> None:
    """Run a call in a thread of its own, raise what it raises, and fail where it does not end."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(STUCK_AFTER_S)
    assert not thread.is_alive(), f"not over after {STUCK_AFTER_S} s"
    if raised:
        raise raised[0]

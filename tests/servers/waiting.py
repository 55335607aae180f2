"""Waiting for what other threads and servers do: for a condition, with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

WAIT_S = 60.0  # long: a busy machine is no failure, and only a failure waits for all of it


def wait_until(holds: Callable[[], bool], within_s: float = WAIT_S) -> None:
    """Return when a condition holds; fail when it does not in time."""
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        pause.wait(0.005)


def join_all(threads: Iterable[threading.Thread], within_s: float = WAIT_S) -> None:
    """Return when threads have ended; fail when they do not in time."""
    deadline = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        assert not thread.is_alive(), f"{thread.name} did not end in time"

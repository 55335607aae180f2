"""Waiting for what other threads and servers do: for a condition, with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

WAIT_S = 60.0  # long: a busy machine is no failure, and only a failure waits for all of it
POLL_S_MIN, POLL_S_MAX = 0.002, 0.05


def wait_until(holds: Callable[[], bool], within_s: float = WAIT_S) -> None:
    """Return when a condition holds; fail when it does not in time."""
    deadline, pause, pause_s = time.monotonic() + within_s, threading.Event(), POLL_S_MIN
    while not holds():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        pause.wait(pause_s)
        pause_s = min(POLL_S_MAX, 1.5 * pause_s)  # asking costs those who are waited for


def join_all(threads: Iterable[threading.Thread], within_s: float = WAIT_S) -> None:
    """Return when threads have ended; fail when they do not in time."""
    deadline = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        assert not thread.is_alive(), f"{thread.name} did not end in time"

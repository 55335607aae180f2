"""Helpers for background threads, and for code that must not block an event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# About a tenth of a processor while other threads compete for it: a reader that wakes up preempts such a thread at
# once, and a commit that waits for a lock of such a thread waits for a moment only.
NICENESS = 10


YOUNG_OBJECTS_MAX = 10_000  # before they are scanned, where many are made that stay; Python's default is 700


class ThreadNeeded(Exception):
    """The call waits for another process, and was made on an event loop: repeat it in a thread."""


def require_thread() -> None:
    """Raise ThreadNeeded on an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ThreadNeeded


def lower_priority() -> None:
    """Let this thread run behind all others of the machine, where the system gives threads a priority."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Scan young objects rarely while a ledger is read in bulk: its events stay for a while, and make no cycles."""
    thresholds = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS_MAX, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)

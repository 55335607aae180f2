"""Helpers for background threads, and for code that must not block an event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress

# About a tenth of a processor while other threads compete for it: a reader that wakes up preempts such a thread at
# once, and a commit that waits for a lock of such a thread waits for a moment only.
NICENESS = 10


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

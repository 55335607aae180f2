"""Threads beside those that answer: who may wait, and who may take their time."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress

# A tenth of a processor's time where others want all of it: a reader who wakes up has a processor at once in place of
# up to a tick later, and a commit that waits for what such a thread has locked still waits for a moment only.
NICENESS = 10


class ThreadNeeded(Exception):
    """What was asked for waits for another process, and an event loop asked: ask again, in a thread."""


def require_thread() -> None:
    """Refuse to go on where an event loop would wait."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ThreadNeeded


def be_nice() -> None:
    """Let this thread run behind all others of the machine, where threads have a priority of their own."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)

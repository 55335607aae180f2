"""Threads that have time: what they do matters to nobody who waits for an answer."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

# A tenth of a processor's time where others want all of it: a reader who wakes up has a processor at once in place of
# up to a tick later, and a commit that waits for what such a thread has locked still waits for a moment only.
NICENESS = 10


def be_nice() -> None:
    """Let this thread run behind all others of the machine, where threads have a priority of their own."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)

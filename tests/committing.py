"""Tasks committed as those of an event loop are, for tests that wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from rankd.intake.queue import Task

WAIT_S = 60


def commit_together(
    enqueue: Callable[[Sequence[Task], Callable[[list[Task], float], None]], None], tasks: Sequence[Task]
) -> None:
    """Hand tasks in, and return when each has its result or its error."""
    left, are_done = set(map(id, tasks)), threading.Event()

    def on_done(done: list[Task], _seconds: float) -> None:
        left.difference_update(map(id, done))
        if not left:
            are_done.set()

    enqueue(tasks, on_done)
    assert are_done.wait(WAIT_S), "a task was enqueued, and nobody heard of it again"

"""The commit signal: the worker that writes wakes the others after each commit.

    a commit → CommitSignal.send, a byte into each pipe → CommitSignal.wait in the worker that reads

The pipes are made before the workers, and outlive each of them.
"""

from __future__ import annotations

import os
import select
from time import monotonic, sleep

REST_S = 0.002  # between two waits: commits of that time are followed together, since each step has a fixed cost
_DRAINED_BYTES = 65_536  # as much as a pipe holds


class CommitSignal:
    """A pipe to each worker that reads."""

    def __init__(self, readers: int) -> None:
        """`readers` is the number of workers that read, which have the numbers from 1 on."""
        self._pipes = [os.pipe() for _ in range(readers)]
        self._waited_s = 0.0  # when the last wait ended, by the monotonic clock
        for pipe in self._pipes:
            for end in pipe:
                os.set_blocking(end, False)

    def send(self) -> None:
        """Wake the workers that read; a pipe that is full wakes its worker anyway."""
        for _, end in self._pipes:
            try:
                os.write(end, b"!")
            except BlockingIOError:
                continue

    def wait(self, worker: int, timeout_s: float) -> None:
        """Return when a signal was sent since a worker's last wait, at the latest after `timeout_s`."""
        sleep(max(0.0, self._waited_s + REST_S - monotonic()))
        end = self._pipes[worker - 1][0]
        if select.select([end], [], [], timeout_s)[0]:
            os.read(end, _DRAINED_BYTES)
        self._waited_s = monotonic()

    def close(self) -> None:
        """Close the pipes."""
        for pipe in self._pipes:
            for end in pipe:
                os.close(end)

"""Writes leave the event loop here: one thread commits whatever has been handed in meanwhile, in one group.

    handlers (event loop) → Committer.hand_in → [thread: Boards.commit] → each handler's future, all at once

A request costs no thread and no hand-over of its own: those that arrive during a sync share the next one, and come
back to the event loop together.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

from rankd.errors import Overloaded
from rankd.intake.queue import Task


class Committer:
    """Hands tasks from the event loop to a thread that commits them."""

    def __init__(self, commit: Callable[[list[Task]], None], tasks_max: int) -> None:
        """`commit` sets the result or the error of every task it is given; `tasks_max` may wait at a time."""
        self._commit = commit
        self._tasks_max = tasks_max
        self._loop = asyncio.get_running_loop()
        self._handed_in: queue.SimpleQueue[tuple[Task, asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self.waiting = 0
        self._is_stopping = False
        self._thread = threading.Thread(target=self._work, name="rankd-committer", daemon=True)
        self._thread.start()

    def hand_in(self, task: Task) -> asyncio.Future[Any]:
        """Have a task committed; called on the event loop. The future has its result when it is durable and ranked."""
        if self._is_stopping or self.waiting >= self._tasks_max:
            raise Overloaded("the server has more writes waiting than it takes; send it again, with the same key")
        self.waiting += 1
        done: asyncio.Future[Any] = self._loop.create_future()
        self._handed_in.put((task, done))
        return done

    def stop(self) -> None:
        """Commit what was handed in and end the thread; blocks, so not for the event loop."""
        self._is_stopping = True
        self._handed_in.put(None)
        self._thread.join()

    def _work(self) -> None:
        while True:
            first = self._handed_in.get()
            taken = [] if first is None else [first]
            while first is not None:
                try:
                    first = self._handed_in.get_nowait()
                except queue.Empty:
                    break
                if first is not None:
                    taken.append(first)
            if taken:
                self._commit([task for task, _ in taken])
                self._loop.call_soon_threadsafe(self._answer, taken)
            if first is None:
                return

    def _answer(self, taken: list[tuple[Task, asyncio.Future[Any]]]) -> None:
        self.waiting -= len(taken)
        for task, done in taken:
            if done.cancelled():  # its client went away: it is committed all the same
                continue
            if task.error is not None:
                done.set_exception(task.error)
            else:
                done.set_result(task.result)

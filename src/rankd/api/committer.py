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

IDLE_POLL_S = 0.005


Handed = tuple[Task, asyncio.Future[Any]]


class Committer:
    """Hands tasks from the event loop to a thread that commits them, a group at a time."""

    def __init__(self, commit: Callable[[list[Task]], None], tasks_max: int) -> None:
        """`commit` sets the result or the error of every task it is given; `tasks_max` may wait at a time."""
        self._commit = commit
        self._tasks_max = tasks_max
        self._loop = asyncio.get_running_loop()
        self._next: list[Handed] = []  # those that share the next commit
        self._is_busy = False  # with a group, or about to be
        self._groups: queue.SimpleQueue[list[Handed] | None] = queue.SimpleQueue()
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
        self._next.append((task, done))
        if not self._is_busy:
            # What else is ready to be read in this turn of the loop goes along.
            self._is_busy = True
            self._loop.call_soon(self._begin)
        return done

    def _begin(self) -> None:
        """Let the thread commit what has been handed in; it is woken once, however many there are."""
        self._is_busy = bool(self._next)
        if self._is_busy:
            group, self._next = self._next, []
            self._groups.put(group)

    def stop(self) -> None:
        """Take nothing more, commit what was handed in and end the thread; blocks, so not for the event loop."""
        self._is_stopping = True
        idle = threading.Event()
        self._loop.call_soon_threadsafe(self._tell_when_idle, idle)
        idle.wait()
        self._groups.put(None)
        self._thread.join()

    def _tell_when_idle(self, idle: threading.Event) -> None:
        if self._is_busy:
            self._loop.call_later(IDLE_POLL_S, self._tell_when_idle, idle)
        else:
            idle.set()

    def _work(self) -> None:
        while (group := self._groups.get()) is not None:
            try:
                self._commit([task for task, _ in group])
            except Exception as problem:  # whoever waits must hear of it
                for task, _ in group:
                    task.error = task.error or problem
            self._loop.call_soon_threadsafe(self._answer, group)

    def _answer(self, group: list[Handed]) -> None:
        self._begin()  # first, so that the thread works while this group is answered
        self.waiting -= len(group)
        for task, done in group:
            if done.cancelled():  # its client went away: it is committed all the same
                continue
            if task.error is not None:
                done.set_exception(task.error)
            else:
                done.set_result(task.result)

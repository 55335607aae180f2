"""Passes writes from the event loop to the queue of the intake, and their results back.

    handlers (event loop) → Committer.enqueue → GroupCommit.enqueue → [committed] → each handler's future

It has no queue of its own. The writes of one turn of the event loop enter the intake's queue together, and the results
of one commit return to the loop together, so a request costs neither a thread nor a wake-up of its own.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rankd.errors import Overloaded
from rankd.intake.queue import Task

STOP_WAIT_S_MAX = 60
_log = logging.getLogger("rankd")

OnDone = Callable[[list[Task], float], None]


class Committer:
    """The event loop's side of the queue: bounds the waiting writes, and sets the futures of their callers."""

    def __init__(
        self,
        enqueue: Callable[[list[Task], OnDone], None],
        tasks_max: int,
        observe: Callable[[int, float], None] = lambda _events, _seconds: None,
    ) -> None:
        """`enqueue` queues tasks; `tasks_max` may wait. `observe` is called with the events and seconds of a commit."""
        self._enqueue = enqueue
        self._tasks_max = tasks_max
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._turn: list[Task] = []  # the tasks of this turn of the loop
        self.waiting = 0
        self._is_stopping = False
        self._idle = threading.Event()  # set when no task waits and no more are accepted

    def enqueue(self, task: Task) -> asyncio.Future[Any]:
        """Queue a task; called on the event loop. The future gets its result when it is durable and ranked."""
        if self._is_stopping or self.waiting >= self._tasks_max:
            raise Overloaded("too many writes are waiting; send it again, with the same key")
        self.waiting += 1
        answered: asyncio.Future[Any] = self._loop.create_future()
        task.caller = answered
        if not self._turn:
            # Requests that are read in the same turn of the loop join this one.
            self._loop.call_soon(self._end_turn)
        self._turn.append(task)
        return answered

    def _end_turn(self) -> None:
        tasks, self._turn = self._turn, []
        self._enqueue(tasks, self._on_done)

    def stop(self) -> None:
        """Refuse further tasks, and return when the waiting ones are answered; blocks, so not for the event loop."""
        self._is_stopping = True
        self._loop.call_soon_threadsafe(self._note_idle)
        if not self._idle.wait(STOP_WAIT_S_MAX):
            _log.error("stopping without %d writes that were not committed within %d s", self.waiting, STOP_WAIT_S_MAX)

    def _note_idle(self) -> None:
        if self._is_stopping and not self.waiting:
            self._idle.set()

    def _on_done(self, tasks: list[Task], took_s: float) -> None:
        with suppress(RuntimeError):  # the loop is closed: no caller waits for an answer
            self._loop.call_soon_threadsafe(self._answer, tasks, took_s)

    def _answer(self, tasks: list[Task], took_s: float) -> None:
        self._observe(sum(task.events for task in tasks), took_s)
        for task in tasks:
            answered, task.caller = task.caller, None
            if answered is None:  # answered before
                continue
            self.waiting -= 1
            if answered.cancelled():  # the client has left; the score is committed nevertheless
                continue
            if task.error is not None:
                answered.set_exception(task.error)
            else:
                answered.set_result(task.result)
        self._note_idle()

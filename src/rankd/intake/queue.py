"""Group commit: whoever arrives while a commit is under way shares the next one.

    caller's thread → GroupCommit.run → [leader: form a group, commit it, hand over] → each caller's result

There is no thread of its own: the first who finds nobody at work leads, commits all that wait, its own task among them,
and hands over to one of those who came meanwhile. So a single caller pays no change of threads.

A caller may be interrupted at any moment, by somebody pressing a key. It then leaves: its task is taken out or, when it
was leading, its group is told and the lead handed on. Nobody else waits for a thread that is gone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from rankd.errors import LedgerUnavailable


class Task:
    """Something to commit: its size, whether it may share a commit, and what became of it."""

    events = 1
    alone = False

    error: BaseException | None = None
    result: object = None
    _done = False
    _committed = False  # whether those are that it leads

    def __init__(self) -> None:
        """Nothing has become of it yet."""
        self._wake = threading.Lock()  # let go when it is done, and when it is its turn to lead
        self._wake.acquire()
        self._group: list[Any] = []  # those it commits, when it leads

    def _end(self) -> None:
        self._done = True
        with suppress(RuntimeError):  # nobody waits for it any more
            self._wake.release()


class OtherTask(Task):
    """A change that is committed on its own."""

    alone = True

    def __init__(self, work: Callable[[], object]) -> None:
        """`work` is called in the committing thread."""
        super().__init__()
        self.work = work


class LastTask(OtherTask):
    """The end: done whatever happened before."""


Kind = TypeVar("Kind", bound=Task)


class GroupCommit(Generic[Kind]):
    """Commits tasks in groups, one group at a time, in the order they arrived."""

    def __init__(self, commit: Callable[[list[Kind]], None], wait_ms: int, events_max: int) -> None:
        """`commit` sets the result or the error of every task it is given; what it raises is everybody's error."""
        self._commit = commit
        self._wait_s = wait_ms / 1_000
        self._events_max = events_max
        self._lock = threading.Lock()
        self._waiting: deque[Kind] = deque()
        self._leader: Kind | None = None

    def run(self, task: Kind) -> object:
        """Commit a task and return its result."""
        self.run_all([task])
        if task.error is not None:
            raise task.error
        return task.result

    def run_all(self, tasks: list[Kind]) -> None:
        """Commit tasks that one thread was handed by many; each gets its result or its error."""
        try:
            with self._lock:
                self._waiting.extend(tasks)
                if self._leader is None:
                    self._leader = tasks[0]
            for task in tasks:
                while not task._done:
                    if self._leader is task:
                        self._lead(task)
                    else:
                        self._wait(task)
        except BaseException:
            for task in tasks:
                self._leave(task)
            raise

    def _wait(self, task: Kind) -> None:
        """Wait until a task is done, or until it is its turn to lead."""
        task._wake.acquire()

    def _lead(self, leader: Kind) -> None:
        if self._wait_s:
            time.sleep(self._wait_s)
        self._take(leader)
        try:
            self._commit(leader._group)
        except Exception as problem:
            for task in leader._group:
                task.error = task.error or problem
        leader._committed = leader._done = True
        self._hand_over(leader)
        for task in leader._group:
            if task is not leader:
                task._end()
        leader._group = []  # it was among them: what holds itself is not let go with its last user

    def _take(self, leader: Kind) -> None:
        with self._lock:
            group = leader._group
            group.append(self._waiting.popleft())
            events = group[0].events
            while self._waiting and not group[0].alone:
                following = self._waiting[0]
                events += following.events
                if following.alone or events > self._events_max:
                    break
                group.append(self._waiting.popleft())

    def _hand_over(self, leader: Kind) -> None:
        with self._lock:
            if self._leader is leader:
                following = self._leader = self._waiting[0] if self._waiting else None
                if following is not None:
                    with suppress(RuntimeError):
                        following._wake.release()

    def _leave(self, task: Kind) -> None:
        """Take a task out whose thread was interrupted; an interrupt is meant for nobody else."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(task)
        self._hand_over(task)
        for other in task._group:
            if other.error is None and not task._committed:
                other.error = LedgerUnavailable("the commit was interrupted; send it again, with the same key")
            other._end()
        task._group = []

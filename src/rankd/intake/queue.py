"""Group commit: tasks that arrive during a commit share the next one.

    caller's thread → GroupCommit.run ──────┐
    event loop → GroupCommit.enqueue ───────┴→ [leader: form a group, commit it, hand over] → results, or `on_done`

A caller that finds no leader becomes the leader: it commits all waiting tasks, its own among them, and hands the lead
to the first that arrived meanwhile. So a single caller never switches threads. A task that was enqueued has no waiting
thread: when it is first in the queue, the queue's own thread leads.

Small tasks do not wait behind many large ones: after a commit of a large task, those that are small go first and share
a commit of their own, and then it is the turn of large ones, two thousand events of them. Neither overtakes a task that
is committed alone.

A caller may be interrupted at any moment, by Ctrl-C. It then withdraws its task or, if it was the leader, ends its
group with an error and hands over the lead, so that no caller waits for a dead thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from rankd.errors import Closed, LedgerUnavailable

THREAD_END_S_MAX = 10
SMALL_EVENTS_MAX = 100
BESIDE_SMALL_S = 1.0  # for so long after a small task, others like it are expected,
BESIDE_SMALL_EVENTS_MAX = 2_000  # and commits of large tasks have at most so many events, unless a single one has more
_log = logging.getLogger("rankd")


class Task:
    """Something to commit: its size, whether it may share a commit, and its outcome."""

    events = 1
    alone = False

    error: BaseException | None = None
    result: object = None
    on_done: Callable[[list[Any], float], None] | None = None  # of a task that was enqueued
    caller: Any = None  # of a task that was enqueued: the future that `on_done` settles

    _done = False
    _committed = False  # whether its group is committed
    _group: Sequence[Any] = ()  # the tasks it commits as leader
    _wake: threading.Lock | None = None  # of a waiting task: released when it is done or becomes the leader

    def _end(self) -> None:
        self._done = True
        if self._wake is not None:
            with suppress(RuntimeError):  # its caller has left
                self._wake.release()


class OtherTask(Task):
    """A change that is committed on its own."""

    alone = True

    def __init__(self, work: Callable[[], object], boards: Sequence[str] = ()) -> None:
        """`work` is called in the committing thread, after what is due of its `boards`."""
        self.work = work
        self.boards = boards


class LastTask(OtherTask):
    """The closing task: it runs whatever happened before."""


TaskType = TypeVar("TaskType", bound=Task)


class GroupCommit(Generic[TaskType]):
    """Commits tasks in groups, one group at a time; small ones and large ones each in the order they arrived."""

    def __init__(self, commit: Callable[[list[TaskType]], None], wait_ms: int, events_max: int) -> None:
        """`commit` sets the result or error of every task in the group; an exception is the error of them all."""
        self._commit = commit
        self._wait_s = wait_ms / 1_000
        self._events_max = events_max
        self._lock = threading.Lock()
        self._waiting: deque[TaskType] = deque()
        self._leader: TaskType | None = None
        self._follows_small = False  # the next commit follows one of small tasks
        self._small_s = -BESIDE_SMALL_S  # when the last small task was committed, by the monotonic clock
        self._thread: threading.Thread | None = None  # leads for tasks that were enqueued; started with the first
        self._thread_wake = _held_lock()
        self._is_closed = False

    def run(self, task: TaskType) -> object:
        """Commit a task and return its result."""
        try:
            with self._lock:
                self._waiting.append(task)
                if self._leader is None:
                    self._leader = task
                elif task._wake is None:
                    task._wake = _held_lock()
            while not task._done:
                if self._leader is task:
                    self._lead(task)
                else:
                    self._wait(task)
        except BaseException:
            self._leave(task)
            raise
        if task.error is not None:
            raise task.error
        return task.result

    def enqueue(self, tasks: Sequence[TaskType], on_done: Callable[[list[TaskType], float], None]) -> None:
        """Queue tasks and return at once: for an event loop, whose thread must not wait.

        The committing thread calls `on_done` with the finished tasks of a commit and its seconds. After an interrupted
        leader, `on_done` may get a task twice.
        """
        for task in tasks:
            task.on_done = on_done
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._lead_enqueued, name="rankd-commit", daemon=True)
                    self._thread.start()
                self._waiting.extend(tasks)
                if self._leader is None:
                    self._appoint(tasks[0])
        if is_closed:
            for task in tasks:
                task.error = Closed("the boards were closed; open them again with rankd.open")
            on_done([*tasks], 0.0)

    def close(self) -> None:
        """Refuse further `enqueue`, commit what was enqueued and end the thread."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is not None:
            _release(self._thread_wake)
            thread.join(THREAD_END_S_MAX)

    def _lead_enqueued(self) -> None:
        """Lead whenever the first task has no thread of its own; runs in the queue's thread."""
        while not self._is_over():
            self._thread_wake.acquire()
            leader = self._leader
            if leader is not None and leader.on_done is not None:
                try:
                    self._lead(leader)
                except BaseException:
                    _log.exception("a commit was interrupted")
                    self._leave(leader)

    def _is_over(self) -> bool:
        with self._lock:
            return self._is_closed and all(task.on_done is None for task in (*self._waiting, self._leader) if task)

    def _wait(self, task: TaskType) -> None:
        """Wait until a task is done or becomes the leader."""
        if task._wake is not None:
            task._wake.acquire()

    def _lead(self, leader: TaskType) -> None:
        if self._wait_s:
            time.sleep(self._wait_s)
        self._take(leader)
        began_s = time.perf_counter()
        try:
            self._commit(leader._group)  # type: ignore[arg-type]
        except Exception as problem:
            for task in leader._group:
                task.error = task.error or problem
        took_s = time.perf_counter() - began_s
        leader._committed = leader._done = True
        self._hand_over(leader)
        self._deliver(leader, took_s)

    def _take(self, leader: TaskType) -> None:
        with self._lock:
            group = leader._group = [self._waiting.popleft()]
            if leader.alone:
                return
            events, is_small, events_max = leader.events, _is_small(leader), self._events_max
            if is_small:
                self._small_s = time.monotonic()
            elif time.monotonic() - self._small_s < BESIDE_SMALL_S:
                events_max = min(events_max, BESIDE_SMALL_EVENTS_MAX)
            while self._waiting:
                following = self._waiting[0]
                events += following.events
                if following.alone or events > events_max or (is_small and not _is_small(following)):
                    break
                group.append(self._waiting.popleft())

    def _hand_over(self, leader: TaskType) -> None:
        with self._lock:
            if self._leader is leader:
                self._leader = None
                self._follows_small = _is_small(leader)
                if self._waiting:
                    if not self._follows_small:
                        self._waiting = _small_first(self._waiting)  # one assignment: an interrupt loses no task
                    self._appoint(self._waiting[0])

    def _appoint(self, leader: TaskType) -> None:
        self._leader = leader
        _release(self._thread_wake if leader.on_done is not None else leader._wake)

    def _deliver(self, leader: TaskType, took_s: float) -> None:
        """Deliver the outcome to every task of a group."""
        if len(leader._group) == 1 and leader.on_done is None:  # its caller is here
            leader._group = ()
            return
        enqueued: dict[Callable[[list[Any], float], None], list[TaskType]] = {}
        for task in leader._group:
            if task.on_done is not None:
                enqueued.setdefault(task.on_done, []).append(task)
            elif task is not leader:
                task._end()
        for on_done, tasks in enqueued.items():
            on_done(tasks, took_s)
        leader._group = ()  # the leader is in its own group: break the cycle

    def _leave(self, task: TaskType) -> None:
        """Withdraw a task whose thread was interrupted, without interrupting others."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(task)
        self._hand_over(task)
        task._group = task._group or (task,)
        for other in task._group:
            if other.error is None and not task._committed:
                other.error = LedgerUnavailable("the commit was interrupted; send it again, with the same key")
        self._deliver(task, 0.0)


def _is_small(task: Task) -> bool:
    return task.events <= SMALL_EVENTS_MAX


def _small_first(waiting: deque[TaskType]) -> deque[TaskType]:
    """Return the tasks with small ones before large ones, up to the first that is committed alone."""
    tasks = list(waiting)
    end = next((index for index, task in enumerate(tasks) if task.alone), len(tasks))
    return deque([*sorted(tasks[:end], key=lambda task: not _is_small(task)), *tasks[end:]])


def _held_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def _release(wake: threading.Lock | None) -> None:
    if wake is not None:
        with suppress(RuntimeError):  # already released
            wake.release()

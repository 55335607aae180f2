"""Writes on their way from the event loop to the disk and back."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rankd.api.committer import Committer, OnDone
from rankd.errors import Overloaded
from rankd.intake.queue import GroupCommit, Task


class Disk:
    """Commits groups, when it is let."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.observed: list[int] = []
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()
        self.problem: Exception | None = None

    def commit(self, tasks: list[Task]) -> None:
        self.begun.set()
        self.may_go_on.wait(10)
        self.groups.append(len(tasks))
        if self.problem is not None:
            raise self.problem
        for number, task in enumerate(tasks):
            task.result = number


def committer_of(disk: Disk, tasks_max: int) -> Committer:
    commits: GroupCommit[Task] = GroupCommit(disk.commit, 0, 1_000)
    return Committer(commits.enqueue, tasks_max, lambda events, _seconds: disk.observed.append(events))


def test_what_is_enqueued_during_a_commit_shares_the_next() -> None:
    async def run() -> list[int]:
        disk = Disk()
        committer = committer_of(disk, 100)
        disk.may_go_on.clear()
        first = committer.enqueue(Task())
        await asyncio.to_thread(disk.begun.wait, 10)
        others = [committer.enqueue(Task()) for _ in range(5)]
        disk.may_go_on.set()
        await asyncio.gather(first, *others)
        await asyncio.to_thread(committer.stop)
        return disk.groups

    assert asyncio.run(run()) == [1, 5]


def test_what_is_ready_in_one_turn_of_the_loop_is_one_commit() -> None:
    async def run() -> list[int]:
        disk = Disk()
        committer = committer_of(disk, 100)
        await asyncio.gather(*(committer.enqueue(Task()) for _ in range(7)))
        await asyncio.to_thread(committer.stop)
        return disk.groups

    assert asyncio.run(run()) == [7]


def test_more_than_may_wait_is_refused_and_the_others_are_committed() -> None:
    async def run() -> list[int]:
        disk = Disk()
        committer = committer_of(disk, 2)
        waiting = [committer.enqueue(Task()) for _ in range(2)]
        with pytest.raises(Overloaded):
            committer.enqueue(Task())
        await asyncio.gather(*waiting)
        await committer.enqueue(Task())
        await asyncio.to_thread(committer.stop)
        with pytest.raises(Overloaded):
            committer.enqueue(Task())
        return disk.groups

    assert asyncio.run(run()) == [2, 1]


def test_whoever_waits_hears_of_a_commit_that_fails() -> None:
    async def run() -> None:
        disk = Disk()
        disk.problem = OSError("the disk is gone")
        committer = committer_of(disk, 10)
        with pytest.raises(OSError, match="gone"):
            await committer.enqueue(Task())
        disk.problem = None
        assert await committer.enqueue(Task()) == 0
        await asyncio.to_thread(committer.stop)

    asyncio.run(run())


def test_a_client_that_goes_away_does_not_keep_others_from_their_answers() -> None:
    async def run() -> None:
        disk = Disk()
        committer = committer_of(disk, 10)
        gone, stays = committer.enqueue(Task()), committer.enqueue(Task())
        gone.cancel()
        assert await stays == 1
        assert committer.waiting == 0
        await asyncio.to_thread(committer.stop)

    asyncio.run(run())


def test_stopping_commits_what_was_enqueued() -> None:
    async def run() -> list[int]:
        disk = Disk()
        committer = committer_of(disk, 10)
        disk.may_go_on.clear()
        waiting = [committer.enqueue(Task())]
        await asyncio.to_thread(disk.begun.wait, 10)
        waiting.append(committer.enqueue(Task()))
        stopping = asyncio.create_task(asyncio.to_thread(committer.stop))
        disk.may_go_on.set()
        await asyncio.gather(*waiting, stopping)
        return disk.groups

    assert asyncio.run(run()) == [1, 1]


def test_every_commit_is_counted_with_its_events() -> None:
    async def run() -> list[int]:
        disk = Disk()
        committer = committer_of(disk, 10)
        await asyncio.gather(*(committer.enqueue(Task()) for _ in range(3)))
        await committer.enqueue(Task())
        await asyncio.to_thread(committer.stop)
        return disk.observed

    assert asyncio.run(run()) == [3, 1]


def test_a_task_that_is_reported_twice_is_answered_once() -> None:
    async def run() -> None:
        def report_twice(tasks: list[Task], on_done: OnDone) -> None:
            on_done(tasks, 0.0)
            on_done(tasks, 0.0)

        committer = Committer(report_twice, 10)
        assert await committer.enqueue(Task()) is None
        await asyncio.to_thread(committer.stop)
        assert committer.waiting == 0

    asyncio.run(run())


def test_stopping_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("rankd.api.committer.STOP_WAIT_S_MAX", 0.01)

    async def run() -> None:
        committer = Committer(lambda _tasks, _on_done: None, 10)
        committer.enqueue(Task())
        await asyncio.to_thread(committer.stop)

    asyncio.run(run())
    assert "stopping without 1 writes" in caplog.text

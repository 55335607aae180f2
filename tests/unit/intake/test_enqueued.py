"""Tasks that an event loop enqueues: they share the queue and its groups with callers, and each is answered once."""

from __future__ import annotations

import random
import threading

import pytest
from tests.servers.waiting import wait_until
from tests.unit.intake.test_group_commit import WAIT_S, Committing, Numbered

from rankd.errors import Closed, LedgerUnavailable
from rankd.intake.queue import GroupCommit


class AnswerRecorder:
    """What `on_done` heard: the numbers of each call, and the errors."""

    def __init__(self, count: int) -> None:
        self.calls: list[list[int]] = []
        self.tasks: list[Numbered] = []
        self._count = count
        self._all = threading.Event()

    def __call__(self, tasks: list[Numbered], _seconds: float) -> None:
        self.calls.append([task.number for task in tasks])
        self.tasks += tasks
        if len(self.tasks) >= self._count:
            self._all.set()

    def outcomes(self) -> list[object]:
        """Return everybody's outcome in the order of the reports."""
        assert self._all.wait(WAIT_S), "somebody is never answered"
        return [task.error or task.result for task in self.tasks]


def test_enqueued_tasks_are_committed_by_another_thread_and_answered_commit_by_commit() -> None:
    committing, recorder = Committing(), AnswerRecorder(4)
    commits: GroupCommit[Numbered] = GroupCommit(committing, 0, 10)
    commits.enqueue([Numbered(0)], recorder)
    assert committing.begun.wait(WAIT_S)
    commits.enqueue([Numbered(1), Numbered(2)], recorder)
    commits.enqueue([Numbered(3)], recorder)
    committing.may_end.set()

    assert recorder.outcomes() == [0, 10, 20, 30]
    assert committing.groups == recorder.calls == [[0], [1, 2, 3]]
    commits.close()


@pytest.mark.parametrize("is_first", [True, False], ids=["an enqueued task leads", "a caller leads"])
def test_callers_and_enqueued_tasks_share_commits(is_first: bool) -> None:
    committing, recorder = Committing(), AnswerRecorder(2)
    commits: GroupCommit[Numbered] = GroupCommit(committing, 0, 10)
    results: list[object] = []
    callers = [
        threading.Thread(target=lambda number=number: results.append(commits.run(Numbered(number))), daemon=True)
        for number in (0, 1)
    ]
    callers[0].start()
    assert committing.begun.wait(WAIT_S)
    if is_first:
        commits.enqueue([Numbered(2), Numbered(3)], recorder)
    callers[1].start()
    wait_until(lambda: len(commits._waiting) == (3 if is_first else 1))
    if not is_first:
        commits.enqueue([Numbered(2), Numbered(3)], recorder)
    committing.may_end.set()

    assert recorder.outcomes() == [20, 30]
    for caller in callers:
        caller.join(WAIT_S)
        assert not caller.is_alive(), "somebody waits for ever"
    assert sorted(results, key=str) == [0, 10]
    assert committing.groups == [[0], [2, 3, 1] if is_first else [1, 2, 3]]
    commits.close()


def test_an_interrupted_caller_that_leads_ends_the_enqueued_tasks_too() -> None:
    def interrupt(group: list[Numbered]) -> None:
        if len(group) > 1:
            raise KeyboardInterrupt

    committing, recorder = Committing(interrupt), AnswerRecorder(3)
    commits: GroupCommit[Numbered] = GroupCommit(committing, 0, 10)
    outcomes: list[object] = []

    def run(number: int) -> None:
        try:
            outcomes.append(commits.run(Numbered(number)))
        except BaseException as problem:
            outcomes.append(problem)

    first = threading.Thread(target=run, args=(0,), daemon=True)
    first.start()
    assert committing.begun.wait(WAIT_S)
    second = threading.Thread(target=run, args=(1,), daemon=True)
    second.start()
    wait_until(lambda: bool(commits._waiting))
    commits.enqueue([Numbered(2), Numbered(3, alone=True)], recorder)
    commits.enqueue([Numbered(4)], recorder)
    committing.may_end.set()
    for thread in (first, second):
        thread.join(WAIT_S)
        assert not thread.is_alive(), "somebody waits for ever"

    assert isinstance(outcomes[1], KeyboardInterrupt)
    interrupted, *others = recorder.outcomes()
    assert isinstance(interrupted, LedgerUnavailable)
    assert others == [30, 40]
    commits.close()


def test_an_exit_in_the_middle_of_a_commit_does_not_end_the_thread_of_the_queue() -> None:
    def leave(group: list[Numbered]) -> None:
        if group[0].number == 1:
            raise SystemExit

    committing, recorder = Committing(leave), AnswerRecorder(2)
    committing.may_end.set()
    commits: GroupCommit[Numbered] = GroupCommit(committing, 0, 10)
    commits.enqueue([Numbered(1)], recorder)
    wait_until(lambda: bool(recorder.calls))
    commits.enqueue([Numbered(2)], recorder)

    first, second = recorder.outcomes()
    assert isinstance(first, LedgerUnavailable)
    assert second == 20
    commits.close()


def test_closing_commits_what_was_enqueued_ends_the_thread_and_refuses_what_comes_later() -> None:
    committing, recorder = Committing(), AnswerRecorder(4)
    commits: GroupCommit[Numbered] = GroupCommit(committing, 0, 10)
    commits.enqueue([Numbered(0)], recorder)
    assert committing.begun.wait(WAIT_S)
    commits.enqueue([Numbered(1), Numbered(2, alone=True)], recorder)
    closing = threading.Thread(target=commits.close, daemon=True)
    closing.start()
    wait_until(lambda: bool(commits._is_closed))
    commits.enqueue([Numbered(3)], recorder)
    committing.may_end.set()
    closing.join(WAIT_S)

    *others, _ = sorted(recorder.outcomes(), key=str)
    assert others == [0, 10, 20]
    assert isinstance(next(task for task in recorder.tasks if task.number == 3).error, Closed)
    assert commits._thread is not None
    assert not commits._thread.is_alive(), "its thread goes on"


def test_callers_in_many_threads_beside_enqueued_tasks_all_get_their_own_result(rng: random.Random) -> None:
    plans = [[(rng.randint(1, 6), rng.random() < 0.1) for _ in range(80)] for _ in range(8)]

    def commit(group: list[Numbered]) -> None:
        for task in group:
            task.result = task.number

    commits: GroupCommit[Numbered] = GroupCommit(commit, 0, 10)
    recorder = AnswerRecorder(4 * 80)
    wrong: list[object] = []

    def run(thread_number: int) -> None:
        for index, (events, alone) in enumerate(plans[thread_number]):
            task = Numbered(thread_number * 1_000 + index, events, alone)
            if thread_number < 4:
                commits.enqueue([task], recorder)
            elif commits.run(task) != task.number:
                wrong.append(task.number)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), "somebody waits for ever"

    assert wrong == []
    assert recorder.outcomes() == [task.number for task in recorder.tasks]
    assert len({task.number for task in recorder.tasks}) == 4 * 80
    commits.close()

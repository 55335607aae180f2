"""Group commit: whoever arrives during a commit shares the next one, and nobody waits for ever."""

from __future__ import annotations

import random
import sys
import threading
import types
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import pytest

from rankd.errors import LedgerUnavailable
from rankd.intake import queue
from rankd.intake.queue import GroupCommit, Task

WAIT_S = 60


class Numbered(Task):
    """A task that remembers who it is."""

    def __init__(self, number: int, events: int = 1, alone: bool = False) -> None:
        self.number = number
        self.events = events
        self.alone = alone


class Committing:
    """Notes the groups it is given; the first one may be held until the test lets it go."""

    def __init__(self, then: Callable[[list[Numbered]], None] | None = None) -> None:
        self.groups: list[list[int]] = []
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.then = then

    def __call__(self, group: list[Numbered]) -> None:
        self.groups.append([task.number for task in group])
        if len(self.groups) == 1:
            self.begun.set()
            assert self.may_end.wait(WAIT_S)
        for task in group:
            task.result = task.number * 10
        if self.then is not None:
            self.then(group)


def gathered(committing: Committing, tasks: list[Numbered], events_max: int = 1_000) -> list[object]:
    """Let task 0 lead, the others arrive in their order while it is at work; return everybody's outcome."""
    commits: GroupCommit[Numbered] = GroupCommit(committing, 0, events_max)
    outcomes: list[object] = [None] * len(tasks)

    def run(index: int) -> None:
        try:
            outcomes[index] = commits.run(tasks[index])
        except BaseException as problem:
            outcomes[index] = problem

    threads = []
    for index in range(len(tasks)):
        threads.append(threading.Thread(target=run, args=(index,), daemon=True))
        threads[-1].start()
        if index == 0:
            assert committing.begun.wait(WAIT_S)
        else:
            while len(commits._waiting) < index:
                pass
    committing.may_end.set()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), "somebody waits for ever"
    assert commits._leader is None
    return outcomes


def test_one_caller_commits_alone_and_at_once() -> None:
    committing = Committing()
    committing.may_end.set()
    commits: GroupCommit[Numbered] = GroupCommit(committing, 0, 10)

    assert [commits.run(Numbered(number)) for number in range(3)] == [0, 10, 20]
    assert committing.groups == [[0], [1], [2]]


def test_those_who_come_meanwhile_share_the_next_commit() -> None:
    committing = Committing()

    assert gathered(committing, [Numbered(number) for number in range(6)]) == [0, 10, 20, 30, 40, 50]
    assert committing.groups == [[0], [1, 2, 3, 4, 5]]


def test_a_group_has_at_most_so_many_events() -> None:
    committing = Committing()
    gathered(committing, [Numbered(0), Numbered(1, 4), Numbered(2, 6), Numbered(3, 1), Numbered(4, 9)], events_max=10)

    assert committing.groups == [[0], [1, 2], [3, 4]]


def test_a_task_larger_than_a_group_is_committed_all_the_same() -> None:
    committing = Committing()
    gathered(committing, [Numbered(0), Numbered(1, 99), Numbered(2, 1)], events_max=10)

    assert committing.groups == [[0], [1], [2]]


def test_small_tasks_go_before_large_ones_after_a_large_one_and_large_ones_have_their_turn() -> None:
    committing = Committing()
    large = [Numbered(number, 1_000) for number in range(4)]
    small = [Numbered(number) for number in (10, 11, 12)]
    gathered(committing, [large[0], small[0], large[1], large[2], small[1], large[3], small[2]], events_max=2_000)

    assert committing.groups == [[0], [10, 11, 12], [1, 2], [3]]


def test_a_large_task_does_not_wait_for_ever_behind_small_ones() -> None:
    later: list[Numbered] = []
    commits: GroupCommit[Numbered]

    def send_more(group: list[Numbered]) -> None:
        """While something is committed, somebody else sends another small task."""
        if len(later) < 50:
            later.append(Numbered(100 + len(later)))
            commits.enqueue([later[-1]], lambda _tasks, _seconds: None)

    committing = Committing(then=send_more)
    committing.may_end.set()
    commits = GroupCommit(committing, 0, 10_000)
    commits.enqueue([Numbered(0), Numbered(1, 1_000), Numbered(2, 1_000)], lambda _tasks, _seconds: None)
    commits.close()

    turns = [index for index, group in enumerate(committing.groups) if {1, 2} & set(group)]
    assert turns[-1] <= 4


@pytest.mark.parametrize(
    ("beside_small_s", "groups"), [(60.0, [[0], [1, 2], [3, 4], [5, 6]]), (0.0, [[0], [1, 2, 3, 4], [5, 6]])]
)
def test_commits_of_large_tasks_beside_small_ones_are_short(
    monkeypatch: pytest.MonkeyPatch, beside_small_s: float, groups: list[list[int]]
) -> None:
    monkeypatch.setattr(queue, "BESIDE_SMALL_EVENTS_MAX", 2_000)
    monkeypatch.setattr(queue, "BESIDE_SMALL_S", beside_small_s)
    committing = Committing()
    large = [Numbered(number, 1_000) for number in range(1, 7)]
    gathered(committing, [Numbered(0), *large], events_max=4_000)

    assert committing.groups == groups


def test_no_task_overtakes_one_that_wants_to_be_alone() -> None:
    committing = Committing()
    large = [Numbered(0, 1_000), Numbered(1, 1_000), Numbered(3, 1_000)]
    gathered(committing, [large[0], large[1], Numbered(2, alone=True), large[2], Numbered(4)])

    assert committing.groups == [[0], [1], [2], [3], [4]]


def test_a_task_that_wants_to_be_alone_is_alone_and_keeps_its_turn() -> None:
    committing = Committing()
    tasks = [Numbered(0), Numbered(1), Numbered(2, alone=True), Numbered(3, alone=True), Numbered(4), Numbered(5)]
    gathered(committing, tasks)

    assert committing.groups == [[0], [1], [2], [3], [4, 5]]


def test_an_error_of_one_task_does_not_touch_the_others() -> None:
    problem = ValueError("two")

    def refuse(group: list[Numbered]) -> None:
        for task in group:
            if task.number == 2:
                task.error = problem

    outcomes = gathered(Committing(refuse), [Numbered(number) for number in range(4)])

    assert outcomes == [0, 10, problem, 30]


def test_a_commit_that_fails_fails_for_all_who_were_in_it_and_for_nobody_else() -> None:
    problem = ValueError("the disk is full")

    def fail(group: list[Numbered]) -> None:
        if group[0].number == 1:
            raise problem

    tasks = [Numbered(0), Numbered(1), Numbered(2), Numbered(3, alone=True)]
    outcomes = gathered(Committing(fail), tasks)

    assert outcomes == [0, problem, problem, 30]


def test_an_interrupt_of_the_leader_reaches_nobody_else_as_an_interrupt() -> None:
    """A worker that raises KeyboardInterrupt because somebody pressed a key in the main thread would end."""

    def interrupt(group: list[Numbered]) -> None:
        if len(group) > 1:
            raise KeyboardInterrupt

    outcomes = gathered(Committing(interrupt), [Numbered(number) for number in range(4)])

    assert outcomes[0] == 0
    assert isinstance(outcomes[1], KeyboardInterrupt)
    assert all(isinstance(outcome, Exception) for outcome in outcomes[2:])


def test_an_interrupt_while_waiting_for_company_leaves_the_way_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def press_a_key(_seconds: float) -> None:
        raise KeyboardInterrupt

    committing = Committing()
    committing.may_end.set()
    commits: GroupCommit[Numbered] = GroupCommit(committing, 5, 10)
    monkeypatch.setattr(queue, "time", types.SimpleNamespace(sleep=press_a_key))
    with pytest.raises(KeyboardInterrupt):
        commits.run(Numbered(0))
    monkeypatch.undo()

    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(commits.run(Numbered(1))), daemon=True)
    thread.start()
    thread.join(3)

    assert results == [10], "the next caller waits for ever"


class Interrupted:
    """A lock whose waiting is cut off by an interrupt, as a key pressed in the main thread does."""

    def __init__(self, before: Callable[[], None], is_woken: bool) -> None:
        self._lock = threading.Lock()
        self._lock.acquire(blocking=False)
        self._before = before
        self._is_woken = is_woken

    def acquire(self, blocking: bool = True) -> bool:
        if not blocking:
            return self._lock.acquire(blocking=False)
        self._before()
        if self._is_woken:  # the interrupt comes just after the waiting ended
            assert self._lock.acquire(timeout=WAIT_S)
        raise KeyboardInterrupt

    def release(self) -> None:
        self._lock.release()


@pytest.mark.parametrize(
    ("is_handed_over", "is_woken"),
    [(False, False), (True, False), (True, True)],
    ids=["while it waits", "when it is to lead", "when it is awake to lead"],
)
def test_an_interrupt_of_one_who_waits_lets_the_others_go_on(is_handed_over: bool, is_woken: bool) -> None:
    committing = Committing()
    commits: GroupCommit[Numbered] = GroupCommit(committing, 0, 10)
    outcomes: dict[int, object] = {}

    def run(task: Numbered) -> None:
        try:
            outcomes[task.number] = commits.run(task)
        except BaseException as problem:
            outcomes[task.number] = problem

    interrupted, third = Numbered(1), threading.Thread(target=run, args=(Numbered(2),), daemon=True)

    def before() -> None:
        third.start()
        while len(commits._waiting) < 2:
            pass
        if is_handed_over:  # the leader ends and gives its place to the one who is about to be interrupted
            committing.may_end.set()
            while 0 not in outcomes:
                pass

    interrupted._wake = Interrupted(before, is_woken)  # type: ignore[assignment]
    first = threading.Thread(target=run, args=(Numbered(0),), daemon=True)
    first.start()
    assert committing.begun.wait(WAIT_S)
    second = threading.Thread(target=run, args=(interrupted,), daemon=True)
    second.start()
    second.join(WAIT_S)
    committing.may_end.set()
    for thread in (first, third):
        thread.join(WAIT_S)
        assert not thread.is_alive(), "somebody waits for ever"

    assert isinstance(outcomes[1], KeyboardInterrupt)
    assert (outcomes[0], outcomes[2]) == (0, 20)
    assert committing.groups == [[0], [2]]


def test_many_threads_each_get_their_own_result(rng: random.Random) -> None:
    plans = [[(rng.randint(1, 6), rng.random() < 0.1, rng.random() < 0.1) for _ in range(60)] for _ in range(12)]
    at_work = threading.Lock()
    sizes: list[int] = []

    def commit(group: list[Numbered]) -> None:
        assert at_work.acquire(blocking=False), "two commits at a time"
        sizes.append(sum(task.events for task in group))
        assert len(group) == 1 or (not any(task.alone for task in group) and sizes[-1] <= 10)
        for task in group:
            task.result = task.number
            if task.number < 0:
                task.error = ValueError(str(task.number))
        at_work.release()

    commits: GroupCommit[Numbered] = GroupCommit(commit, 0, 10)
    wrong: list[object] = []

    def run(thread_number: int) -> None:
        for index, (events, alone, fails) in enumerate(plans[thread_number]):
            number = (thread_number * 1_000 + index + 1) * (-1 if fails else 1)
            try:
                answer: object = commits.run(Numbered(number, events, alone))
            except ValueError as problem:
                answer = int(str(problem))
            if answer != number:
                wrong.append((number, answer))

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), "somebody waits for ever"

    assert wrong == []
    assert sum(sizes) == sum(events for plan in plans for events, _, _ in plan)


def interrupted_at(step: int, commits: GroupCommit[Numbered], run: Callable[[], object]) -> bool:
    """Run something and raise an interrupt at the n-th line of the queue's own code; tell whether there was one."""
    steps = 0

    def trace(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal steps
        if frame.f_code.co_filename != queue.__file__:
            return None
        if event == "line":
            # Python itself looks for interrupts between taking a lock and letting go of it in `with` at no such line.
            steps += not commits._lock.locked()
            if steps == step and not commits._lock.locked():
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        run()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def test_an_interrupt_at_any_line_leaves_the_way_free() -> None:
    """A key is pressed at any moment: whoever comes after must not wait for one who is gone."""
    for step in range(1, 200):
        committing = Committing()
        committing.may_end.set()
        commits: GroupCommit[Numbered] = GroupCommit(committing, 0, 10)
        task = Numbered(1)
        was_cut = interrupted_at(step, commits, lambda: commits.run(task))  # noqa: B023
        results: list[object] = []

        def follow(commits: GroupCommit[Numbered] = commits, results: list[object] = results) -> None:
            results.append(commits.run(Numbered(2)))

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        thread.join(2)
        assert results == [20], f"an interrupt at line {step} of the queue stops everybody after it"
        if not was_cut:
            assert step > 7
            return
    raise AssertionError("the trace never ended")


def test_an_interrupt_at_any_line_lets_those_go_who_share_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1, 200):
        committing = Committing()
        committing.may_end.set()
        commits: GroupCommit[Numbered] = GroupCommit(committing, 5, 10)
        task, other = Numbered(1), Numbered(2)

        def follow(commits: GroupCommit[Numbered] = commits, other: Numbered = other) -> None:
            with suppress(LedgerUnavailable):
                commits.run(other)

        thread = threading.Thread(target=follow, daemon=True)

        def gather(_s: float, thread: threading.Thread = thread, commits: GroupCommit[Numbered] = commits) -> None:
            if thread.ident is None:
                thread.start()
                while not commits._waiting:
                    pass

        monkeypatch.setattr("rankd.intake.queue.time.sleep", gather)
        was_cut = interrupted_at(step, commits, lambda: commits.run(task))  # noqa: B023
        if thread.ident is not None:
            thread.join(2)
            assert not thread.is_alive(), f"an interrupt at line {step} of the queue leaves the others waiting"
        if not was_cut:
            assert committing.groups == [[1, 2]]
            return
    raise AssertionError("the trace never ended")

"""Boards in a folder of the test's own, with a clock and an upkeep that move only when the test says so."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import rankd
from rankd import Boards, ManualClock
from rankd.node import embedded as running
from rankd.node.open_embedded import embedded_of

MONDAY_NOON = 1_777_896_000_000  # 2026-05-04T12:00:00Z
WAIT_S = 60

OpenBoards = Callable[..., Boards]
GroupCalls = Callable[[Boards, Sequence[Callable[[], object]]], list[object]]


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands at noon on a Monday."""
    return ManualClock(MONDAY_NOON)


@pytest.fixture
def open_boards(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenBoards]:
    """Open boards in a folder under the test's own, by name; they are closed when the test ends."""
    monkeypatch.setattr(running, "UPKEEP_EVERY_S", 3_600)
    opened: list[Boards] = []

    def make(name: str = "data", **settings: Any) -> Boards:
        boards = rankd.open(tmp_path / name, clock=clock, **settings)
        opened.append(boards)
        return boards

    yield make
    for boards in opened:
        boards.close()


@pytest.fixture
def rng() -> random.Random:
    """Chance by a seed that a failing test shows."""
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    return random.Random(seed)


@pytest.fixture
def boards(open_boards: OpenBoards) -> Boards:
    """Boards of an empty folder."""
    return open_boards()


def wait_until(holds: Callable[[], bool]) -> None:
    """Return when a condition holds; fail when it does not in time."""
    deadline = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        pause.wait(0.001)


@pytest.fixture
def grouped() -> GroupCalls:
    """Make several calls arrive one after the other while a commit is under way, so that they share the next one."""

    def run(boards: Boards, calls: Sequence[Callable[[], object]]) -> list[object]:
        results: list[object] = [None] * len(calls)
        begun, may_end = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            may_end.wait(WAIT_S)

        def answer(index: int) -> None:
            try:
                results[index] = calls[index]()
            except Exception as problem:
                results[index] = problem

        commits = embedded_of(boards).writer._commits
        threads = [threading.Thread(target=embedded_of(boards).writer.run_for, args=(hold,))]
        threads[0].start()
        assert begun.wait(WAIT_S)
        for index in range(len(calls)):
            threads.append(threading.Thread(target=answer, args=(index,)))
            threads[-1].start()
            wait_until(lambda expected=index + 1: len(commits._waiting) == expected)  # type: ignore[misc]
        may_end.set()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "somebody waits for ever"
        return results

    return run

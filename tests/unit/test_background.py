"""Upkeep runs behind everybody who waits for an answer, and nobody else does."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

import rankd
from rankd.background import NICENESS, lower_priority

NICE = ("rankd-upkeep", "rankd-players")  # the second reads ids when boards are opened, and ends


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a priority of their own on Linux only")
def test_only_the_upkeep_of_boards_is_nice(tmp_path: Path) -> None:
    before = {thread.native_id for thread in threading.enumerate()}
    with rankd.open(tmp_path):
        upkeep = [thread for thread in threading.enumerate() if thread.native_id not in before]
        begun = {thread.name: thread.native_id for thread in upkeep}
        assert niceness(begun["rankd-upkeep"]) >= NICENESS
        others = [thread for thread in threading.enumerate() if thread.name not in NICE]
        assert [thread.name for thread in others if is_nice(thread)] == []


def test_a_machine_that_refuses_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(os, "setpriority", refuse)
    lower_priority()


def is_nice(thread: threading.Thread) -> bool:
    if thread.native_id is None:
        return False
    try:
        return os.getpriority(os.PRIO_PROCESS, thread.native_id) >= NICENESS
    except ProcessLookupError:  # it has ended meanwhile
        return False


def niceness(thread: int | None) -> int:
    """The thread may just have begun: it asks for its priority first."""
    assert thread is not None
    for _ in range(1_000):
        if os.getpriority(os.PRIO_PROCESS, thread) >= NICENESS:
            break
        threading.Event().wait(0.01)
    return os.getpriority(os.PRIO_PROCESS, thread)

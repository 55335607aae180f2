"""The commit signal wakes the workers that read."""

from __future__ import annotations

import threading
import time

from tests.servers.waiting import join_all

from rankd.workers.commit_signal import CommitSignal

LONG_S = 30.0


def test_a_signal_that_was_sent_before_ends_the_wait_at_once_and_once() -> None:
    signal = CommitSignal(2)
    signal.send()
    signal.send()
    began = time.monotonic()
    signal.wait(1, LONG_S)
    signal.wait(2, LONG_S)
    assert time.monotonic() - began < LONG_S / 2
    began = time.monotonic()
    signal.wait(1, 0.01)
    assert time.monotonic() - began >= 0.01
    signal.close()


def test_a_signal_wakes_a_worker_that_waits() -> None:
    signal = CommitSignal(1)
    waiting = threading.Thread(target=signal.wait, args=(1, LONG_S))
    waiting.start()
    signal.send()
    join_all([waiting], LONG_S / 2)
    signal.close()


def test_signals_that_nobody_waits_for_are_sent_without_end() -> None:
    signal = CommitSignal(1)
    for _ in range(100_000):  # more than a pipe holds
        signal.send()
    signal.wait(1, LONG_S)
    signal.wait(1, 0.0)
    signal.close()

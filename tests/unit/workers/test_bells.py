"""Bells wake the workers that read."""

from __future__ import annotations

import threading
import time

from tests.servers.waiting import join_all

from rankd.workers.bells import Bells

LONG_S = 30.0


def test_a_bell_that_was_rung_before_ends_the_wait_at_once_and_once() -> None:
    bells = Bells(2)
    bells.ring()
    bells.ring()
    began = time.monotonic()
    bells.wait(1, LONG_S)
    bells.wait(2, LONG_S)
    assert time.monotonic() - began < LONG_S / 2
    began = time.monotonic()
    bells.wait(1, 0.01)
    assert time.monotonic() - began >= 0.01
    bells.close()


def test_a_bell_wakes_one_that_waits() -> None:
    bells = Bells(1)
    waiting = threading.Thread(target=bells.wait, args=(1, LONG_S))
    waiting.start()
    bells.ring()
    join_all([waiting], LONG_S / 2)
    bells.close()


def test_a_bell_that_nobody_hears_is_rung_for_ever() -> None:
    bells = Bells(1)
    for _ in range(100_000):  # more than a pipe holds
        bells.ring()
    bells.wait(1, LONG_S)
    bells.wait(1, 0.0)
    bells.close()

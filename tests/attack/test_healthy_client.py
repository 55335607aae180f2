"""The measuring itself: a server that is late, or refuses, is noticed."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from .target import Target, measurements

STILL_S = 0.6


def test_a_server_that_stands_still_is_noticed(target: Target) -> None:
    target.revive()
    pid = target.server.process.pid

    def stand_still() -> None:
        with target.attack("a server that stands still", is_long=False):
            os.kill(pid, signal.SIGSTOP)
            try:
                threading.Event().wait(STILL_S)
            finally:
                os.kill(pid, signal.SIGCONT)

    with pytest.raises(AssertionError, match=r"p99 of the healthy client: [0-9]{3}"):
        stand_still()
    still = measurements.pop()  # no attack, so not for the report
    assert still.healthy.max_ms > STILL_S * 1_000 / 2


def test_a_rule_of_an_attack_that_does_not_hold_is_named(target: Target) -> None:
    def fail() -> None:
        with target.attack("an attack that fails", is_long=False) as attack:
            attack.expect(False, "nothing is broken")
            raise TimeoutError

    with pytest.raises(AssertionError, match=r"nothing is broken\n.*the attack failed: TimeoutError"):
        fail()
    measurements.pop()

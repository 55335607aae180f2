"""A rebuild, a hold and a start that are chased by the head of the ledger: they end."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rankd.node.catching_up import _reads
from rankd.operations.hold import HOLD_MS, WriteHold
from rankd.operations.rebuild import Rebuild
from rankd.projection.follower import Follower


class Chase:
    """A ledger that grows while a follower works on it, with a clock; nothing is appended while writes are held.

    It is the follower too.
    """

    partitions = 1
    follow_to_head = Follower.follow_to_head

    def __init__(self, backlog: int, appended_per_s: int, followed_per_s: int) -> None:
        self._ledger = self
        self.now_s = 0.0
        self.head = float(backlog)
        self.done = 0.0
        self.held_ms: list[int] = []
        self._held_until_s = 0.0
        self._appended_per_s = appended_per_s
        self._followed_per_s = followed_per_s

    def context(self, _number: int) -> Any:
        raise AssertionError("no event is applied here")

    def heads(self) -> Any:
        return SimpleNamespace(sequences=(int(self.head),))

    @property
    def positions(self) -> tuple[int, ...]:
        return (int(self.done),)

    def follow(self, events_max: int) -> int:
        events = min(float(events_max), self.head - self.done)
        self.done += events
        self.pass_time(max(events, 1.0) / self._followed_per_s)
        return int(events)

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        assert self.now_s < 10_000, "it does not end"
        if self.now_s > self._held_until_s:
            self.head += seconds * self._appended_per_s

    def hold(self, hold_ms: int) -> None:
        self.held_ms.append(hold_ms)
        self._held_until_s = self.now_s + hold_ms / 1_000


def caught_up(monkeypatch: pytest.MonkeyPatch, chase: Chase) -> Chase:
    monkeypatch.setattr("rankd.operations.rebuild.monotonic", lambda: chase.now_s)
    monkeypatch.setattr("rankd.operations.hold.monotonic", lambda: chase.now_s)
    monkeypatch.setattr("rankd.operations.hold.sleep", chase.pass_time)
    ledger = cast(Any, chase)
    rebuild = Rebuild(ledger, lambda _follower: cast(Any, None), hold=WriteHold(ledger, chase.hold))
    rebuild._follower = cast(Any, chase)
    rebuild._catch_up()
    assert chase.head - chase.done <= 1.5 * chase._appended_per_s  # little more than a second's worth is left
    return chase


def test_a_rebuild_that_is_faster_than_the_head_asks_nobody_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    chase = caught_up(monkeypatch, Chase(10_000_000, appended_per_s=50_000, followed_per_s=100_000))
    assert chase.held_ms == []


@pytest.mark.parametrize("appended_per_s", [95_000, 200_000, 1_000_000])
def test_a_rebuild_that_does_not_gain_asks_for_a_moment_without_writes(
    monkeypatch: pytest.MonkeyPatch, appended_per_s: int
) -> None:
    chase = caught_up(monkeypatch, Chase(1_000_000, appended_per_s=appended_per_s, followed_per_s=100_000))
    assert chase.held_ms[0] == HOLD_MS
    assert chase.held_ms[-1] == 0


def test_a_hold_that_was_not_asked_for_is_not_ended() -> None:
    published: list[int] = []
    with WriteHold(cast(Any, Chase(0, 0, 1)), published.append):
        pass
    assert published == []


def test_a_hold_ends_with_its_context_whatever_happens() -> None:
    published: list[int] = []
    with pytest.raises(KeyError), WriteHold(cast(Any, Chase(0, 0, 1)), published.append) as hold:
        _ask_and_fail(hold)
    assert published == [HOLD_MS, 0]


def _ask_and_fail(hold: WriteHold) -> None:
    hold.ask("it is tested")
    raise KeyError


class Run:
    """A run of one event."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __len__(self) -> int:
        return 1


def test_a_node_reads_to_the_head_of_its_start_though_there_is_always_more() -> None:
    numbers = count(1)

    def read(_after: list[int], _events_max: int) -> list[Any]:
        run = Run(next(numbers))
        assert run.first <= 100, "it does not end"
        return [SimpleNamespace(partition=0, event_run=run)]

    assert len(list(_reads(cast(Any, SimpleNamespace(read=read)), [0], [20]))) == 20

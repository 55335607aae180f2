"""A rebuild, a hold and a start that are chased by the head of the ledger: they end."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rankd.errors import RanksUnavailable
from rankd.node.catching_up import _catch_up, _reads
from rankd.operations.hold import HELD_S_MAX, HOLD_MS, PAUSE_MS_MIN, WriteHold
from rankd.operations.rebuild import Rebuild
from rankd.projection.follower import Follower


class Chase:
    """A ledger that grows while a follower works on it, with a clock; nothing is appended while writes are held.

    It is the follower and the backlog too.
    """

    partitions = 1
    capabilities = SimpleNamespace(appends_conditionally=True)
    follow_to_head = Follower.follow_to_head

    def __init__(self, backlog: int, appended_per_s: int, followed_per_s: int) -> None:
        self._ledger = self.backlog = self
        self.now_s = 0.0
        self.head = float(backlog)
        self.done = 0.0
        self.holds: list[list[float]] = []  # began, ended
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
        while seconds > 0:
            step_s = min(seconds, 0.1)
            self.now_s += step_s
            seconds -= step_s
            if not self.is_held:
                self.head += step_s * self._appended_per_s
        assert self.now_s < 10_000, "it does not end"

    @property
    def is_held(self) -> bool:
        return bool(self.holds) and self.now_s < self.holds[-1][1]

    def hold(self, hold_ms: int, pause_ms: int) -> bool:
        if self.holds and self.now_s < self.holds[-1][1] + pause_ms / 1_000:
            return False
        self.holds.append([self.now_s, self.now_s + hold_ms / 1_000])
        return True

    def release(self) -> None:
        if self.is_held:
            self.holds[-1][1] = self.now_s

    @property
    def held_s(self) -> float:
        return sum(ended_s - began_s for began_s, ended_s in self.holds)

    @property
    def is_close(self) -> bool:
        """Whether little more than a second's worth is left."""
        return self.head - self.done <= 1.5 * max(self._appended_per_s, self._followed_per_s)


@pytest.fixture
def chased(monkeypatch: pytest.MonkeyPatch) -> Callable[[Chase], Chase]:
    """Return a function that has the clocks of a rebuild be those of a chase."""

    def tick_by(chase: Chase) -> Chase:
        monkeypatch.setattr("rankd.operations.hold.monotonic", lambda: chase.now_s)
        monkeypatch.setattr("rankd.operations.hold.sleep", chase.pass_time)
        return chase

    return tick_by


def rebuild_of(chase: Chase) -> Rebuild:
    rebuild = Rebuild(cast(Any, chase), lambda _follower: cast(Any, None))
    rebuild._follower = cast(Any, chase)
    return rebuild


def test_a_rebuild_that_is_faster_than_the_head_asks_nobody_to_wait(chased: Callable[[Chase], Chase]) -> None:
    chase = chased(Chase(10_000_000, appended_per_s=50_000, followed_per_s=100_000))
    rebuild_of(chase)._catch_up()
    assert chase.is_close
    assert chase.holds == []


@pytest.mark.parametrize("appended_per_s", [95_000, 120_000, 200_000, 300_000])
def test_a_rebuild_that_does_not_gain_slows_writes_down_and_cuts_nobody_off(
    chased: Callable[[Chase], Chase], appended_per_s: int
) -> None:
    chase = chased(Chase(1_000_000, appended_per_s=appended_per_s, followed_per_s=100_000))
    rebuild_of(chase)._catch_up()
    assert chase.is_close
    assert not chase.is_held
    assert 0 < chase.held_s <= HELD_S_MAX
    assert all(ended_s - began_s <= HOLD_MS / 1_000 + 1e-9 for began_s, ended_s in chase.holds)
    pauses_s = [later[0] - earlier[1] for earlier, later in pairwise(chase.holds)]
    assert all(pause_s >= PAUSE_MS_MIN / 1_000 for pause_s in pauses_s)


def test_a_rebuild_that_cannot_come_closer_says_so_and_lets_writes_go_on(chased: Callable[[Chase], Chase]) -> None:
    chase = chased(Chase(1_000_000, appended_per_s=1_000_000, followed_per_s=100_000))
    with pytest.raises(RanksUnavailable, match="run it again when less is written"):
        rebuild_of(chase).run(0)
    assert not chase.is_held
    assert chase.held_s <= HELD_S_MAX


def test_writes_are_stopped_when_what_is_left_can_be_worked_off_meanwhile(chased: Callable[[Chase], Chase]) -> None:
    chase = chased(Chase(3_000_000, appended_per_s=95_000, followed_per_s=100_000))
    rebuild = rebuild_of(chase)
    rebuild._hold.stop_writes(rebuild._follow, 1.0, "it is tested")
    assert chase.is_held
    assert chase.is_close
    rebuild._follow()
    assert chase.is_held
    assert chase.done == chase.head
    rebuild._hold.release()
    assert not chase.is_held


def test_a_hold_that_was_not_asked_for_is_not_ended() -> None:
    chase = Chase(0, 0, 1)
    with WriteHold(cast(Any, chase)):
        chase.hold(HOLD_MS, 0)  # somebody else's
    assert chase.is_held


def test_a_hold_ends_with_its_context_whatever_happens(chased: Callable[[Chase], Chase]) -> None:
    chase = chased(Chase(0, 0, 1_000_000))
    with pytest.raises(KeyError), WriteHold(cast(Any, chase)) as hold:
        _stop_writes_and_fail(hold, chase)
    assert chase.holds
    assert not chase.is_held


def _stop_writes_and_fail(hold: WriteHold, chase: Chase) -> None:
    hold.stop_writes(lambda: chase.follow(1), 1.0, "it is tested")
    assert chase.is_held
    raise KeyError


class Ranks:
    """The ranks of a node that starts, by a chase."""

    has_caught_up = False

    def __init__(self, chase: Chase) -> None:
        self._chase = chase

    def catch_up(self, step: Callable[[], None] = lambda: None) -> None:
        head = int(self._chase.head)
        while self._chase.done < head:
            self._chase.follow(5_000)
            step()


@pytest.mark.parametrize("appended_per_s", [50_000, 95_000, 120_000, 200_000])
def test_a_node_is_ready_under_every_load_that_others_accept(
    chased: Callable[[Chase], Chase], appended_per_s: int
) -> None:
    chase = chased(Chase(3_000_000, appended_per_s=appended_per_s, followed_per_s=100_000))
    ranks = Ranks(chase)
    _catch_up(cast(Any, ranks), 10.0, WriteHold(cast(Any, chase)))
    assert ranks.has_caught_up
    assert chase.head - chase.done <= 10.0 * appended_per_s
    assert not chase.is_held
    assert bool(chase.holds) == (appended_per_s > 90_000)


def test_a_node_that_is_far_too_slow_starts_behind_and_lets_writes_go_on(
    chased: Callable[[Chase], Chase], caplog: pytest.LogCaptureFixture
) -> None:
    chase = chased(Chase(3_000_000, appended_per_s=1_000_000, followed_per_s=100_000))
    ranks = Ranks(chase)
    _catch_up(cast(Any, ranks), 10.0, WriteHold(cast(Any, chase)))
    assert not ranks.has_caught_up
    assert not chase.is_held
    assert chase.held_s <= HELD_S_MAX
    assert "is not ready until it has reached the head" in caplog.text


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

"""Events that reach team boards, of partitions whose clocks disagree, have one order however the log is read."""

from __future__ import annotations

from array import array

import pytest

from rankd.errors import LedgerDamaged
from rankd.ledger.event import EventRun
from rankd.ledger.port import MARK, LogColumns, Part
from rankd.projection import log_merging
from rankd.projection.log_merging import LogMerging, LogStep

TEAMS, OTHER = 1, 2  # contexts
Shown = tuple[int, int, int]  # partition, first sequence, events


def part(partition: int, first: int, *times: int, context: int = TEAMS, number: int = 0) -> Part:
    column = array("q", times)
    zeros = array("q", bytes(8 * len(times)))
    run = EventRun(context, column, zeros, zeros, zeros, ["p"] * len(times), None, first, partition)
    return Part(partition, run, None, LogColumns(column, None, None, number))


def merging(partitions: int = 2, times: list[int] | None = None, controls: int = 0) -> LogMerging:
    return LogMerging(times or [0] * partitions, controls, lambda context: context == TEAMS)


def taken(merging: LogMerging, *parts: Part) -> list[Shown]:
    merging.add(parts)
    return [shown(step) for step in merging.steps()]


def shown(step: LogStep) -> Shown:
    return step.event_run.partition, step.event_run.first, len(step.event_run)


def test_an_event_waits_until_every_other_partition_has_passed_its_time() -> None:
    logs = merging(3)
    assert taken(logs, part(0, 1, 10)) == []
    assert logs.time_awaited == 10
    assert taken(logs, part(1, 1, 11, context=MARK)) == [(1, 1, 1)]
    assert taken(logs, part(2, 1, 9, context=OTHER)) == [(2, 1, 1)]
    assert taken(logs, part(2, 2, 11, context=OTHER)) == [(2, 2, 1), (0, 1, 1)]
    assert logs.time_awaited is None


def test_what_was_read_and_waits_for_no_partition_needs_no_mark_of_time() -> None:
    """Else a mark would come among the records of a long batch, and those behind it would count later."""
    logs = merging()
    logs.add([part(0, 1, 10, context=OTHER), part(0, 2, 11, context=OTHER)])
    assert [(shown(step), logs.time_awaited) for step in logs.steps()] == [((0, 1, 1), None), ((0, 2, 1), None)]
    assert logs.time_awaited is None


@pytest.mark.parametrize(("own", "other", "passes"), [(0, 1, True), (1, 0, False)])
def test_at_the_same_time_the_lower_partition_comes_first(own: int, other: int, passes: bool) -> None:
    logs = merging()
    assert taken(logs, part(own, 1, 10), part(other, 1, 10, context=MARK)) == [
        (other, 1, 1),
        *([(own, 1, 1)] if passes else []),
    ]
    assert taken(logs, part(other, 2, 10)) == ([] if passes else [(other, 2, 1)])


def test_runs_are_cut_where_another_partition_comes_in_between() -> None:
    logs = merging()
    assert taken(logs, part(0, 1, 10, 20, 30, 30), part(1, 1, 15, 20, 30, 31)) == [
        (0, 1, 1),
        (1, 1, 1),
        (0, 2, 1),
        (1, 2, 1),
        (0, 3, 2),
    ]
    assert logs.events == 2
    assert taken(logs, part(0, 5, 32, context=MARK)) == [(0, 5, 1), (1, 3, 2)]


def test_a_time_that_goes_back_counts_as_the_latest_before_it() -> None:
    logs = merging()
    assert taken(logs, part(0, 1, 20, 5), part(1, 1, 10, 30)) == [(1, 1, 1), (0, 1, 2)]
    again = merging(times=[20, 0])
    assert taken(again, part(0, 2, 5), part(1, 1, 10, 30)) == [(1, 1, 1), (0, 2, 1)]


def test_what_waits_at_a_barrier_keeps_nobody_waiting() -> None:
    logs = merging()
    assert taken(logs, part(0, 1, 10), part(1, 1, 5, number=1)) == [(0, 1, 1)]
    assert logs.holds_back(1)
    assert not logs.holds_back(0)
    logs.add([part(0, 2, 11, number=1), part(0, 3, 12)])
    (barrier,) = logs.steps()
    assert barrier.barrier == (2, 1)
    assert taken(logs, part(1, 2, 13)) == [(0, 3, 1)]


def test_a_barrier_that_was_copied_again_takes_a_place_without_effect() -> None:
    logs = merging()
    logs.add([part(0, 1, 1, number=1), part(1, 1, 1, number=1), part(0, 2, 1, number=1), part(0, 3, 1, context=OTHER)])
    steps = list(logs.steps())
    assert [(step.barrier is not None, step.is_void) for step in steps] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert list(merging(controls=1).steps()) == []
    assert taken(merging(controls=1), part(0, 9, 1, number=1)) == [(0, 9, 1)]


def test_a_control_event_that_is_missing_is_damage() -> None:
    with pytest.raises(LedgerDamaged, match="control event 1 is missing in partition 0"):
        taken(merging(), part(0, 1, 1, number=2))


def test_a_partition_far_ahead_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_merging, "WAITING_EVENTS_MAX", 3)
    logs = merging()
    assert taken(logs, part(0, 1, 10, 11)) == []
    assert not logs.holds_back(0)
    assert taken(logs, part(0, 3, 12)) == []
    assert logs.holds_back(0)
    assert taken(logs, part(1, 1, 11, context=MARK)) == [(1, 1, 1), (0, 1, 2)]
    assert not logs.holds_back(0)
    assert logs.time_awaited == 12


def test_the_end_of_a_partition_keeps_nobody_waiting() -> None:
    logs = merging()
    assert taken(logs, part(0, 1, 10)) == []
    logs.ended = {1}
    assert taken(logs) == [(0, 1, 1)]

"""Fewer and smaller steps that still fail: what a person wants to read of a run of hundreds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from .steps import Define, Step, SubmitMany

Fails = Callable[[Sequence[Step]], bool]


def shrunk(steps: Sequence[Step], fails: Fails) -> Sequence[Step]:
    """Leave out what can be left out as long as the last step still fails."""
    return with_smaller_steps(with_fewer_steps(steps, fails), fails)


def with_fewer_steps(steps: Sequence[Step], fails: Fails) -> Sequence[Step]:
    """Leave out runs of steps, long ones first."""
    size = len(steps) // 2
    while size:
        start = 0
        while start < len(steps) - 1:
            shorter = [*steps[:start], *steps[min(start + size, len(steps) - 1) :]]
            if fails(shorter):
                steps = shorter
            else:
                start += size
        size //= 2
    return steps


def with_smaller_steps(steps: Sequence[Step], fails: Fails) -> Sequence[Step]:
    """Leave out rows of requests and fields of definitions."""
    for index in range(len(steps)):
        is_smaller = True
        while is_smaller:
            tries = ([*steps[:index], smaller, *steps[index + 1 :]] for smaller in smaller_than(steps[index]))
            shorter_run = next((shorter for shorter in tries if fails(shorter)), None)
            is_smaller = shorter_run is not None
            steps = shorter_run or steps
    return steps


def smaller_than(step: Step) -> Iterator[Step]:
    if isinstance(step, SubmitMany) and len(step.rows) > 1:
        for row in range(len(step.rows)):
            yield replace(step, rows=step.rows[:row] + step.rows[row + 1 :])
    if isinstance(step, Define):
        for name in step.definition:
            yield replace(step, definition={other: value for other, value in step.definition.items() if other != name})

"""Positions in a ledger of several partitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

Vector = tuple[int, ...]  # a sequence for each partition


def reaches(ours: Sequence[int], theirs: Sequence[int]) -> bool:
    """Return whether `ours` is at least as far as `theirs` in every partition; one that is missing is at 0."""
    return all(position >= other for position, other in zip_longest(ours, theirs, fillvalue=0))


def shares(waiting: Sequence[int], total_max: int) -> list[int]:
    """Return the number of events to take of each partition: fair shares of `total_max`.

    >>> shares([5, 100, 100], 65)
    [5, 30, 30]
    """
    taken = [0] * len(waiting)
    left = total_max
    hungry = [index for index, count in enumerate(waiting) if count]
    while hungry and left > 0:
        share = max(1, left // len(hungry))
        for index in hungry:
            some = min(share, waiting[index] - taken[index], left)
            taken[index] += some
            left -= some
        hungry = [index for index in hungry if taken[index] < waiting[index]]
    return taken

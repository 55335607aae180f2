"""Positions in a ledger of several partitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

Vector = tuple[int, ...]  # a sequence for each partition


def reaches(ours: Sequence[int], theirs: Sequence[int]) -> bool:
    """Return whether `ours` is at least as far as `theirs` in every partition; one that is missing is at 0."""
    return all(position >= other for position, other in zip_longest(ours, theirs, fillvalue=0))

"""Positions in a ledger of several partitions."""

from __future__ import annotations

from collections.abc import Sequence
from operator import ge

Vector = tuple[int, ...]  # a sequence for each partition


def reaches(ours: Sequence[int], theirs: Sequence[int]) -> bool:
    """Return whether `ours` is at least as far as `theirs` in every partition."""
    return all(map(ge, ours, theirs))

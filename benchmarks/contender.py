"""What takes part in a comparison: the engine behind its port, and its rivals, asked the same questions.

A contender prepares a question outside the clock, answers it under the clock, and sums its answers up outside the
clock again. The sums of all contenders must be equal.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.workload import Events

AROUND = 5
TOP = 100
CALLS_HELD_MAX = 100  # answers kept alive at a time: a server lets each go when it is sent


@dataclass(frozen=True, slots=True)
class Timed:
    """One sample: how long so many operations took, and the sum of what they answered."""

    operations: int
    elapsed_ns: int
    checksum: int

    @property
    def ns_per_operation(self) -> float:
        return self.elapsed_ns / self.operations


@dataclass(frozen=True, slots=True)
class Call:
    """One question a call: `ask` is timed as it is, `checksum` reads its answer outside the clock."""

    ask: Callable[[str], Any]
    checksum: Callable[[Any], int]


class Contender(Protocol):
    """Holds one board and answers about it. Checksums: rows changed for writes, places (and scores) for reads."""

    name: str
    calls_share: float  # of the calls a round makes; the slow are asked less, all of them the same first players

    def update(self, events: Events, batch_rows: int) -> Timed:
        """Apply the events in batches of so many rows."""
        ...

    def ranks(self, players: Sequence[str], batch_players: int) -> Timed:
        """Ask for many places in batches of so many players."""
        ...

    def rank_call(self) -> Call: ...

    def around_call(self) -> Call: ...

    def top_call(self) -> Call: ...


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Keep the collector's passes over our own lists of ids out of everybody's figures."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def timed_calls(call: Call, players: Sequence[str], summed: int) -> Timed:
    """Ask about one player after the other; sum the answers about the first `summed` of them."""
    ask = call.ask
    elapsed_ns = checksum = 0
    for first in range(0, len(players), CALLS_HELD_MAX):
        some = players[first : first + CALLS_HELD_MAX]
        began_ns = time.perf_counter_ns()
        answers = [ask(player) for player in some]
        elapsed_ns += time.perf_counter_ns() - began_ns
        checksum += sum(map(call.checksum, answers[: max(0, summed - first)]))
    return Timed(len(players), elapsed_ns, checksum)

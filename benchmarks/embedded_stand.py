"""What every row of the embedded library is measured on: one folder with everybody on its board, and fair turns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.contender import Timed, without_garbage_collection
from benchmarks.embedded_subject import SAMPLE_PLAYERS, Columns, Embedded, columns_of
from benchmarks.figures import Row, Scale, Series
from benchmarks.shares import measured_shares
from benchmarks.workload import Events

EVENT = "ns_per_event"


class Turn(NamedTuple):
    """What one contender did in one round."""

    timed: Timed
    processor_ns: int

    @property
    def ns_per_event(self) -> float:
        return self.timed.ns_per_operation


@dataclass(slots=True)
class Stand:
    """One board of the library, and how much to ask of it."""

    scale: Scale
    subject: Embedded
    folder: Path  # on the same disk, for those who stand beside

    @property
    def batch_rows(self) -> int:
        return self.scale.embedded_batch_rows

    def row(self, series: Series, name: str, unit: str, extra: dict[str, float], note: str = "") -> Row:
        players = self.subject.workload.players
        return series.row(name, players, unit, extra, note, judged=not self.scale.smoke)

    def events(self) -> Events:
        """Make a round's events."""
        return self.subject.workload.updates(self.scale.embedded_rows)

    def columns(self, events: Events) -> list[Columns]:
        return [columns_of(some) for some in events.batches(self.batch_rows)]

    def sample(self) -> list[str]:
        return list(dict.fromkeys(self.subject.workload.ids(SAMPLE_PLAYERS)))

    def turn(self, work: Callable[[], Timed], processor_ns: Callable[[], int] = time.process_time_ns) -> Turn:
        """Let one contender work, on a disk that has nothing left to write for the one before."""
        if not self.scale.smoke:
            os.sync()
        with without_garbage_collection():
            began_ns = processor_ns()
            timed = work()
            return Turn(timed, processor_ns() - began_ns)


def rates(series: Series) -> dict[str, float]:
    """The samples as events a second, which is how people speak of them."""
    return {f"{side}_events_per_second": 1e9 / median(samples) for side, samples in series.samples.items()}


def shares_of(work: Callable[[], Timed]) -> dict[str, float]:
    """Do a round more, timed part by part."""
    with measured_shares() as shares, without_garbage_collection():
        timed = work()
    return shares.figures(timed.elapsed_ns)

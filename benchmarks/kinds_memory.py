"""What an entry of each kind of board holds in memory beyond one of a plain board, each in a process of its own.

define → every player sends a score → growth of the process, less that of the plain board filled the same way
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.disk import folder_on_disk
from benchmarks.embedded_subject import rest
from benchmarks.figures import PLAIN, RANKD, Row, Scale, Series
from benchmarks.isolated import resident_bytes, run_isolated
from benchmarks.kinds_bench import KINDS, KindSubject

MEASURED = ("metadata", "team_sum", "team_best", "team_average")


class Filled(msgspec.Struct, frozen=True):
    """Which board to fill."""

    kind: str
    is_plain: bool
    players: int
    batch_rows: int


class Grown(msgspec.Struct, frozen=True):
    """What the process grew by, and what the library itself says of its engine."""

    resident_bytes: int
    engine_bytes: int


def kind_memory_rows(scale: Scale) -> Iterator[Row]:
    """A row for each kind that keeps something beside its entries."""
    players = scale.kinds_memory_players
    for name in MEASURED:
        grown = {
            side: run_isolated(__name__, Filled(name, side == PLAIN, players, scale.embedded_batch_rows), Grown)
            for side in (RANKD, PLAIN)
        }
        series = Series()
        series.add(RANKD, max(0.0, (grown[RANKD].resident_bytes - grown[PLAIN].resident_bytes) / players))
        extra = {
            f"{side}_{what}_per_player": getattr(memory, what) / players
            for side, memory in grown.items()
            for what in ("resident_bytes", "engine_bytes")
        }
        note = "a player's share of what the process grew by, less that of a plain board with as many windows"
        yield series.row(f"kind_{name}_memory", players, "bytes_per_entry", extra, note, judged=not scale.smoke)


def _grown(asked: Filled) -> Grown:
    with folder_on_disk() as folder:
        subject = KindSubject(Path(folder), KINDS[asked.kind], asked.players, is_plain=asked.is_plain)
        gc.collect()
        before_bytes = resident_bytes()
        subject.join(asked.batch_rows)
        rest(subject.boards)
        gc.collect()
        grown = Grown(resident_bytes() - before_bytes, subject.boards.figures().engine_bytes)
        subject.close()
    return grown


if __name__ == "__main__":
    print(msgspec.json.encode(_grown(msgspec.json.decode(sys.argv[1], type=Filled))).decode())

"""What the library alone holds in memory with a folder open, in a process of its own: the service adds to that."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

import rankd
from benchmarks.http_check import library_reads, sample
from benchmarks.isolated import resident_bytes, run_isolated


class Folder(msgspec.Struct, frozen=True):
    """What to open."""

    path: str
    players: int


class Held(msgspec.Struct, frozen=True):
    """What it holds then, and what it answers."""

    resident_bytes: int
    reads: dict[str, int]


def library_alone(folder: Path, players: int) -> Held:
    """Open a folder, read from it, and measure."""
    return run_isolated(__name__, Folder(str(folder), players), Held)


def _measured(asked: Folder) -> Held:
    with rankd.open(asked.path) as boards:
        reads = library_reads(boards, sample(asked.players))
        return Held(resident_bytes(), reads)


if __name__ == "__main__":
    print(msgspec.json.encode(_measured(msgspec.json.decode(sys.argv[1], type=Folder))).decode())

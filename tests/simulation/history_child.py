"""Lets days go by on a board with a history until it is killed, and says on its output which day it is.

python history_child.py FOLDER FIRST_DAY
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import rankd
import rankd.node.embedded

BEGIN_MS = 1_777_896_000_000  # 2026-05-04T12:00:00Z
DAY_MS = 86_400_000
DAYS_MAX = 5_000  # should nobody kill it
PLAYERS = 300
SNAPSHOT_EVENTS = 40
UPKEEP_EVERY_S = 0.005


def opened(folder: Path, day: int) -> rankd.Boards:
    """Open the folder at noon of a day; checkpoints are written all the time."""
    clock = rankd.ManualClock(BEGIN_MS + day * DAY_MS)
    boards = rankd.open(folder, clock=clock, snapshot_events=SNAPSHOT_EVENTS)
    boards.define("arcade", windows=["all_time", "weekly"], keep="latest", history={"top": "all", "keep": "36500d"})
    return boards


def main() -> None:
    """Submit some scores a day, and go on to the next."""
    rankd.node.embedded.UPKEEP_EVERY_S = UPKEEP_EVERY_S
    first = int(sys.argv[2])
    boards, rng = opened(Path(sys.argv[1]), first), random.Random(first)
    for day in range(first, first + DAYS_MAX):
        boards._backend.clock.set(BEGIN_MS + day * DAY_MS)  # type: ignore[attr-defined]
        boards.submit_many("arcade", [(f"p-{rng.randrange(PLAYERS)}", rng.randrange(1_000)) for _ in range(20)])
        os.write(sys.stdout.fileno(), f"{day}\n".encode())


if __name__ == "__main__":
    main()

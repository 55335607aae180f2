"""Submits from some threads until it is killed, and says on its output what was acknowledged.

    python crash_child.py FOLDER FIRST

Each thread sends events numbered from FIRST on, one after the other: 1 to the sum of one of its players, then its
number as its latest. Each line of output is written when the call has returned: "counts THREAD NUMBER POSITION".
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import rankd.node.embedded

THREADS = 4
RUN_S_MAX = 300.0  # should nobody kill it
PLAYERS = 5
SNAPSHOT_EVENTS = 60
CHECKPOINT_BYTES = 500_000
UPKEEP_EVERY_S = 0.01


def player(thread: int, number: int) -> str:
    """Return whom an event is for."""
    return f"player-{thread}-{number % PLAYERS}"


def send(boards: rankd.Boards, board: str, thread: int, number: int) -> rankd.Submitted:
    """Send one event under its key."""
    if board == "counts":
        return boards.submit(board, player(thread, number), 1, key=f"counts-{thread}-{number}")
    return boards.submit(board, f"thread-{thread}", number, key=f"latest-{thread}-{number}")


def opened(folder: Path) -> rankd.Boards:
    """Open the library so that kills strike while a snapshot is written or the log is moved."""
    boards = rankd.open(folder, snapshot_events=SNAPSHOT_EVENTS, checkpoint_bytes=CHECKPOINT_BYTES)
    define(boards)
    return boards


def define(boards: rankd.Boards) -> None:
    """Define what is submitted to."""
    boards.define("counts", keep="sum", windows=["all_time", "daily"])
    boards.define("latest", keep="latest")


def submit_for_ever(boards: rankd.Boards, thread: int, first: int) -> None:
    """Send event after event and report each."""
    number = first
    while True:
        for board in ("counts", "latest"):
            position = send(boards, board, thread, number).position
            # One write of less than PIPE_BUF: lines of threads never mix and are whole or absent.
            os.write(sys.stdout.fileno(), f"{board} {thread} {number} {position}\n".encode())
        number += 1


def main() -> None:
    """Open the folder and submit."""
    rankd.node.embedded.UPKEEP_EVERY_S = UPKEEP_EVERY_S
    submit_from_threads(opened(Path(sys.argv[1])), int(sys.argv[2]))


def submit_from_threads(boards: rankd.Boards, first: int) -> None:
    """Submit from all threads until the process is killed."""
    threads = [
        threading.Thread(target=submit_for_ever, args=(boards, thread, first), daemon=True) for thread in range(THREADS)
    ]
    for started in threads:
        started.start()
    for started in threads:
        started.join(RUN_S_MAX)


if __name__ == "__main__":
    main()

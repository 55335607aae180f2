"""A process that is killed at any moment loses nothing that it acknowledged, and what was under way counts once."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import rankd

from . import crash_child
from .crash_child import THREADS, player, send
from .extent import replayable, short_and_long

KILLS = 5
KILLS_LONG = 10
FOLDERS_LONG = 10
KILL_AFTER_MS = (5, 400)
START_S_MAX = 60
REPEATED = 20

Acknowledged = dict[tuple[str, int, int], str]


def run_and_kill(child_module: str, where: Sequence[str], first: int, after_ms: float) -> Acknowledged:
    """Let a child submit, kill it so long after its first acknowledgement, and return what it acknowledged."""
    command = [sys.executable, "-m", child_module, *where, str(first)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[1])
    assert child.stdout is not None
    assert child.stderr is not None
    with child, child.stdout as output, child.stderr as errors:
        try:
            started, _, _ = select.select([output], [], [], START_S_MAX)
            assert started, "the child has not begun"
            text = read_until(output.fileno(), time.monotonic() + after_ms / 1000)
        finally:
            child.kill()
        text += output.read()
        complaint = errors.read().decode()
    assert text, complaint
    acknowledged: Acknowledged = {}
    for line in text.decode().splitlines():
        board, thread, number, position = line.split(" ")
        acknowledged[board, int(thread), int(number)] = position
    return acknowledged


def read_until(descriptor: int, deadline: float) -> bytes:
    """Read what comes until a moment: a child that is not read from would stop when the pipe is full."""
    text = b""
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([descriptor], [], [], left)
        if ready:
            chunk = os.read(descriptor, 65536)
            if not chunk:
                break
            text += chunk
    return text


class Expected:
    """What must be found after all that was acknowledged so far."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.latest: dict[str, int] = {}

    def happened(self, board: str, thread: int, number: int) -> None:
        if board == "counts":
            self.counts[player(thread, number)] += 1
        else:
            self.latest[f"thread-{thread}"] = number


def scores(boards: rankd.Boards, board: str, window: str | None = None) -> dict[str, int]:
    return {entry.player: entry.score for entry in boards.top(board, limit=1000, window=window).entries}


def under_way(acknowledged: Acknowledged, first: int) -> list[tuple[str, int, int]]:
    """Return the one event of each thread that may have been sent and was not acknowledged."""
    events = []
    for thread in range(THREADS):
        number = first
        while ("latest", thread, number) in acknowledged:
            number += 1
        events.append(("latest" if ("counts", thread, number) in acknowledged else "counts", thread, number))
    return events


def check_after_kill(
    boards: rankd.Boards, acknowledged: Acknowledged, first: int, expected: Expected, rng: random.Random
) -> None:
    for event in sorted(acknowledged, key=lambda event: event[2]):
        expected.happened(*event)
    unsure = under_way(acknowledged, first)

    counts, latest = scores(boards, "counts"), scores(boards, "latest")
    maybe = {player(thread, number) for board, thread, number in unsure if board == "counts"}
    for name in {*counts, *expected.counts}:
        extra = counts.get(name, 0) - expected.counts[name]
        assert extra == 0 or (extra == 1 and name in maybe), f"{name}: {extra} more than acknowledged"
    maybe_latest = {(f"thread-{thread}", number) for board, thread, number in unsure if board == "latest"}
    for name in {*latest, *expected.latest}:
        right = latest.get(name) == expected.latest.get(name) or (name, latest.get(name)) in maybe_latest
        assert right, f"{name}: {latest.get(name)} for {expected.latest.get(name)}"

    for event in unsure:
        send(boards, *event)
        expected.happened(*event)
    for event in rng.sample(sorted(acknowledged), min(REPEATED, len(acknowledged))):
        again = send(boards, *event)
        assert again.repeated
        assert again.position == acknowledged[event]
    assert scores(boards, "counts") == expected.counts
    assert scores(boards, "counts", "daily").keys() <= expected.counts.keys()
    assert scores(boards, "latest") == expected.latest


def live_and_die(folder: Path, kills: int, rng: random.Random) -> int:
    """Kill one process after the other over a folder; return how many events the busiest acknowledged."""
    expected, first, most = Expected(), 0, 0
    for kill in range(kills):
        acknowledged = run_and_kill(crash_child.__name__, [str(folder)], first, rng.uniform(*KILL_AFTER_MS))
        most = max(most, len(acknowledged))
        with crash_child.opened(folder) as boards:
            try:
                check_after_kill(boards, acknowledged, first, expected, rng)
                boards.verify()
            except BaseException as error:
                error.add_note(f"after kill {kill}, {len(acknowledged)} acknowledged since the one before")
                raise
        first = 1 + max(number for _, _, number in [*acknowledged, *under_way(acknowledged, first)])
    return most


@short_and_long
def test_killed_again_and_again_the_folder_holds_what_was_acknowledged(tmp_path: Path, everything: bool) -> None:
    with replayable() as rng:
        for folder in range(FOLDERS_LONG if everything else 1):
            assert live_and_die(tmp_path / str(folder), KILLS_LONG if everything else KILLS, rng) > THREADS

"""What was: a past state worked out and read, places recorded at midnight, and a year of one player.

    fill → checkpoint → events behind it → as_of at their end, the first time and again, while a thread reads
         → midnight: the first commit, and a thread that reads → bytes of the file → a year of such files searched

The year is the one file under as many names: a search opens and reads each of them.
"""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rankd
from benchmarks.disk import bytes_below, folder_on_disk
from benchmarks.figures import QUIET, RANKD, Row, Scale, Series
from benchmarks.workload import Workload
from rankd.node.open_embedded import HISTORY
from rankd.seasons.places import SUFFIX

BEGIN_MS = 1_777_888_800_000  # 2026-05-04 10:00 UTC
DAY_MS = 86_400_000
DAYS = 365
BOARD = "arcade"
READ_EVERY_S = 0.001
WAIT_MS = 3_600_000


def past_rows(scale: Scale) -> Iterator[Row]:
    """All rows, of one board of a folder of its own."""
    with folder_on_disk() as folder:
        clock = rankd.ManualClock(BEGIN_MS)
        with rankd.open(folder / "data", clock=clock, as_of_wait_ms=WAIT_MS, snapshot_events=2**40) as boards:
            workload = Workload(scale.past_players)
            boards.define(BOARD, windows=["all_time"], keep="latest", history={"top": "all", "keep": "36500d"})
            for events in workload.joining(scale.embedded_batch_rows):
                boards.submit_many(BOARD, players=events.ids(), scores=array("q", events.scores.tobytes()))
            boards.snapshot()
            clock.advance(3_600_000)
            left = scale.past_events
            while left > 0:
                events = workload.updates(min(left, scale.embedded_batch_rows))
                boards.submit_many(BOARD, players=events.ids(), scores=array("q", events.scores.tobytes()))
                left -= len(events)
                clock.advance(1)
            yield from _as_of_rows(scale, boards, clock)
            yield from _history_rows(scale, boards, clock, folder / "data" / HISTORY)


def _as_of_rows(scale: Scale, boards: rankd.Boards, clock: rankd.ManualClock) -> Iterator[Row]:
    instant = clock.now()
    clock.advance(3_600_000)
    rows = {name: Series() for name in ("as_of_first", "as_of_again", "as_of_reader")}
    for turn in range(scale.rounds):
        with _reading(boards) as quiet:
            threading.Event().wait(0.5)
        with _reading(boards) as beside:
            began_s = time.perf_counter()
            page = boards.top(BOARD, 10, as_of=instant - turn)  # each time a batch less
            rows["as_of_first"].add(RANKD, time.perf_counter() - began_s)
        rows["as_of_reader"].add(RANKD, max(beside))
        rows["as_of_reader"].add(QUIET, max(quiet))
        began_ns = time.perf_counter_ns()
        for entry in page.entries:
            boards.rank(BOARD, entry.player, as_of=instant - turn)
        rows["as_of_again"].add(RANKD, (time.perf_counter_ns() - began_ns) / max(1, len(page.entries)))
    note = f"{scale.past_events:,} events after the checkpoint"
    for name, unit in (("as_of_first", "seconds"), ("as_of_again", "ns_per_call"), ("as_of_reader", "longest_wait_ns")):
        yield rows[name].row(name, scale.past_players, unit, note=note, judged=not scale.smoke)


def _history_rows(scale: Scale, boards: rankd.Boards, clock: rankd.ManualClock, folder: Path) -> Iterator[Row]:
    commit, reader = Series(), Series()
    player = boards.top(BOARD, 1).entries[0].player
    for _ in range(scale.rounds):
        with _reading(boards) as quiet:
            threading.Event().wait(0.5)
        clock.advance(DAY_MS)
        with _reading(boards) as beside:
            began_s = time.perf_counter()
            boards.submit(BOARD, player, 1)
            commit.add(RANKD, time.perf_counter() - began_s)
            boards.settle()
        reader.add(RANKD, max(beside))
        reader.add(QUIET, max(quiet))
    judged, entries = not scale.smoke, scale.past_players
    yield commit.row("history_midnight", entries, "seconds", note="the first commit of the day", judged=judged)
    yield reader.row(
        "history_reader", entries, "longest_wait_ns", note="a read every ms, until it is written", judged=judged
    )
    files = sorted(folder.rglob(f"*{SUFFIX}"))
    size = Series()
    size.add(RANKD, bytes_below(folder) / len(files) / entries)
    yield size.row("history_bytes", entries, "bytes_per_player", note="a player and midnight", judged=judged)
    newest = files[-1]
    newest_at, _, checksum = newest.name.partition("-")
    for day in range(1, DAYS + 1):
        os.link(newest, newest.with_name(f"{int(newest_at) - DAY_MS * day - 1}-{checksum}"))
    year = Series()
    for _ in range(scale.rounds):
        began_s = time.perf_counter()
        points = boards.course(BOARD, player, limit=DAYS).points
        year.add(RANKD, time.perf_counter() - began_s, len(points))
    yield year.row("history_year", entries, "seconds", {"points": float(len(points))}, judged=judged)


@contextmanager
def _reading(boards: rankd.Boards) -> Iterator[list[float]]:
    """Read a rank every millisecond in a thread; the list has how long each took, in ns."""
    took: list[float] = [0.0]
    is_over = threading.Event()

    def read() -> None:
        while not is_over.wait(READ_EVERY_S):
            began_ns = time.perf_counter_ns()
            boards.rank(BOARD, "user_00000000")
            took.append(time.perf_counter_ns() - began_ns)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield took
    finally:
        is_over.set()
        thread.join()

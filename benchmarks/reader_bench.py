"""How long one reader waits while batches run without pause, in another thread of the same process.

A read is due at every tick, and counted from its tick: one that waits also delays those behind it, and nothing is left
out of the figures. A side that cannot answer once a tick falls behind for as long as the round lasts. The figures hold
the time Python needs to wake the thread up; `engine_wait_max_ns` is the part inside the engine.

A reader that never rests holds Python's lock until it is asked to let go, by default after 5 ms: the writer would
pause that long between batches. So the switch interval is set to SWITCH_S: batches follow each other at once, which
is the harder case for the reader. The row `reader_p99_default_switch` shows the same with Python's own setting.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from statistics import median

import numpy as np

from benchmarks.contender import Call, without_garbage_collection
from benchmarks.engine_bench import Arena
from benchmarks.figures import RANKD, REDIS, Row, Series
from benchmarks.redis_server import Pipeline, RawConnection
from benchmarks.rivals import KEY, zadd
from benchmarks.workload import Events
from rankd.projection.port import Verdict

SWITCH_S = 0.0001
TICK_NS = 1_000_000
READ_PLAYERS = 100_000
WRITER_START_S = 30.0
RING_ROWS_MAX = 1_000_000

Writer = Callable[[threading.Event], int]
"""Writes batch after batch until the event is set, and returns the rows written."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The reads of one round, in ns, and what the writer did meanwhile."""

    p50_ns: float
    p99_ns: float
    p999_ns: float
    max_ns: float
    reads: int
    rows_per_second: float


def reader_rows(arena: Arena) -> Iterator[Row]:
    """One row a writer's batch size; run late, since it changes our board and Redis' differently."""
    scale = arena.scale
    large = min(scale.reader_large_batch_rows, arena.players)
    yield _row(arena, "reader_p99", scale.batch_rows, SWITCH_S, with_redis=True)
    yield _row(arena, "reader_p99_default_switch", scale.batch_rows, sys.getswitchinterval(), with_redis=False)
    yield _row(arena, "reader_p99_large_batches", large, SWITCH_S, with_redis=False)


def _row(arena: Arena, name: str, batch_rows: int, switch_s: float, *, with_redis: bool) -> Row:
    series = Series()
    rounds: dict[str, list[Watched]] = {}
    arena.engine.store.forget_waits()
    for _ in range(min(arena.scale.rounds, arena.scale.reader_rounds_max)):
        sides: list[tuple[str, Call, Writer]] = [(RANKD, arena.engine.rank_call(), engine_writer(arena, batch_rows))]
        if with_redis and arena.redis is not None:
            writer = redis_writer(arena.redis.server.port, arena, batch_rows)
            sides.append((REDIS, arena.redis.rank_call(), writer))
        for side, call, write in sides:
            watched = watch(call, write, arena.workload.ids(READ_PLAYERS), arena.scale.reader_s, switch_s)
            series.add(side, watched.p99_ns)
            rounds.setdefault(side, []).append(watched)
    inside = arena.engine.store.longest_waits()
    extra = {
        "writer_batch_rows": float(batch_rows),
        "switch_interval_s": switch_s,
        "engine_wait_max_ns": float(inside.reader_ns),
        "engine_let_in_max_ns": float(inside.let_in_ns),
        "engine_work_max_ns": float(inside.work_ns),
    }
    for side, all_watched in rounds.items():
        extra |= watched_figures(side, all_watched)
    return arena.row(series, name, "ns_p99", extra, note=f"writer: {batch_rows:,} rows a batch, no pause")


def watched_figures(side: str, rounds: Sequence[Watched]) -> dict[str, float]:
    """Sum up what stands beside a side's p99."""
    return {
        f"{side}_p50_ns": median(watched.p50_ns for watched in rounds),
        f"{side}_p99_9_ns": median(watched.p999_ns for watched in rounds),
        f"{side}_max_ns": max(watched.max_ns for watched in rounds),
        f"{side}_reads": float(sum(watched.reads for watched in rounds)),
        f"{side}_writer_rows_per_second": median(watched.rows_per_second for watched in rounds),
    }


def engine_writer(arena: Arena, batch_rows: int) -> Writer:
    """Go round a ring of id lists and a ring of scores of other lengths: every row changes a score every time."""
    engine, workload = arena.engine, arena.workload
    lists = max(2, _ring_rows(arena) // batch_rows)
    ids = [workload.ids(batch_rows) for _ in range(lists)]
    scores = [workload.scores(batch_rows) for _ in range(lists + 1)]

    def write(stop: threading.Event) -> int:
        begun: int = engine.store.position(0).sequence
        position = begun
        for players, fresh in zip(cycle(ids), cycle(scores), strict=False):
            if stop.is_set():
                break
            batch = engine.batch(players, fresh, position)
            applied = engine.store.apply(batch)
            if applied.verdict is not Verdict.APPLIED:
                raise RuntimeError(f"a batch was answered with {applied.verdict}")
            position = batch.upto
        return position - begun

    return write


def redis_writer(port: int, arena: Arena, batch_rows: int) -> Writer:
    """Send encoded ZADDs over a connection of its own, one batch ahead of the replies, with two scores by turns."""
    once = arena.workload.updates(max(batch_rows, _ring_rows(arena) // 4))
    again = Events(once.numbers, arena.workload.scores(len(once)))
    pipelines = [zadd(KEY, some) for events in (once, again) for some in events.batches(batch_rows)]

    def write(stop: threading.Event) -> int:
        sent = 0

        def until_stopped() -> Iterator[Pipeline]:
            nonlocal sent
            for pipeline in cycle(pipelines):
                if stop.is_set():
                    return
                sent += 1
                yield pipeline

        with RawConnection(port) as raw:
            raw.exchange(until_stopped())
        return sent * batch_rows

    return write


def _ring_rows(arena: Arena) -> int:
    return min(RING_ROWS_MAX, 10 * arena.players)


def watch(call: Call, write: Writer, players: list[str], seconds: float, switch_s: float) -> Watched:
    """Read at every tick beside a writer in another thread, for so long, and return how long the reads took."""
    stop, begun = threading.Event(), threading.Event()

    def work() -> float:
        begun.set()
        began = time.perf_counter()
        try:
            return write(stop) / (time.perf_counter() - began)
        finally:
            stop.set()

    switch_before_s = sys.getswitchinterval()
    with ThreadPoolExecutor(1) as threads, without_garbage_collection():
        sys.setswitchinterval(switch_s)
        try:
            writer = threads.submit(work)
            begun.wait(WRITER_START_S)
            waits_ns = _read(call, players, stop, time.perf_counter_ns() + int(seconds * 1e9))
        finally:
            stop.set()
            sys.setswitchinterval(switch_before_s)
        rows_per_second = writer.result()
    p50, p99, p999 = np.percentile(waits_ns, [50, 99, 99.9]).tolist()
    return Watched(p50, p99, p999, float(max(waits_ns)), len(waits_ns), rows_per_second)


def _read(call: Call, players: list[str], stop: threading.Event, until_ns: int) -> list[int]:
    """Read at every tick until the time is over or the writer has stopped; return how long after it each was there."""
    ask, now = call.ask, time.perf_counter_ns
    waits_ns: list[int] = []
    tick_ns = now()
    for player in cycle(players):
        ask(player)
        ended_ns = now()
        waits_ns.append(ended_ns - tick_ns)
        tick_ns += TICK_NS
        if ended_ns >= until_ns or stop.is_set():
            break
        if tick_ns > ended_ns:
            time.sleep((tick_ns - ended_ns) / 1e9)
    return waits_ns

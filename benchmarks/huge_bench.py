"""A hundred million entries on one board, in a process of its own: memory at its peak, time to build, and reads.

Built through Python batches in random order; ids are generated a batch at a time and the time that takes is part of
the build time the target is judged by (`apply_only_s` leaves it out). Redis would need 11 GB and half an hour here
and is left out; `--sizes 100M` compares with it on a machine that has the room.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import msgspec
import numpy as np

from benchmarks.contender import timed_calls, without_garbage_collection
from benchmarks.figures import RANKD, Row, Scale, Series
from benchmarks.isolated import resident_bytes, resident_peak_bytes, run_isolated
from benchmarks.subject import Engine
from benchmarks.workload import Workload


class HugeBoard(msgspec.Struct, frozen=True):
    """What to build, and how much to ask afterwards."""

    players: int
    build_rows: int
    rank_calls: int
    rounds: int
    update_rows: int
    batch_rows: int
    rank_players: int
    rank_batch_players: int


class HugeFigures(msgspec.Struct, frozen=True):
    """What came out; lists hold a sample a round."""

    build_s: float
    apply_only_s: float
    peak_bytes: int
    resident_bytes: int
    accounted_bytes: int
    rank_p50_ns: float
    rank_p99_ns: float
    rank_p99_9_ns: float
    ns_per_update: list[float]
    ns_per_rank: list[float]
    ns_per_rank_call: list[float]
    ns_per_around_call: list[float]
    ns_per_top100_call: list[float]


def huge_rows(scale: Scale) -> Iterator[Row]:
    """The targets' rows, and the ordinary speed rows at this size for the plot."""
    asked = HugeBoard(
        players=scale.huge_players,
        build_rows=scale.huge_batch_rows,
        rank_calls=scale.huge_rank_calls,
        rounds=scale.rounds,
        update_rows=scale.update_rows,
        batch_rows=scale.batch_rows,
        rank_players=scale.rank_players,
        rank_batch_players=scale.rank_batch_players,
    )
    figures = run_isolated(__name__, asked, HugeFigures)

    def row(name: str, unit: str, samples: list[float], extra: dict[str, float] | None = None) -> Row:
        return Series({RANKD: samples}).row(name, asked.players, unit, extra, judged=not scale.smoke)

    yield row(
        "huge_peak",
        "bytes",
        [float(figures.peak_bytes)],
        {
            "resident_after_build_bytes": float(figures.resident_bytes),
            "accounted_bytes_per_player": figures.accounted_bytes / asked.players,
        },
    )
    yield row("huge_build", "seconds", [figures.build_s], {"apply_only_s": figures.apply_only_s})
    yield row(
        "huge_rank_p99",
        "ns_p99",
        [figures.rank_p99_ns],
        {"p50_ns": figures.rank_p50_ns, "p99_9_ns": figures.rank_p99_9_ns},
    )
    yield row("build", "ns_per_entry", [figures.apply_only_s * 1e9 / asked.players])
    yield row("updates", "ns_per_update", figures.ns_per_update)
    yield row("ranks", "ns_per_rank", figures.ns_per_rank)
    yield row("rank_call", "ns_per_call", figures.ns_per_rank_call)
    yield row("around_call", "ns_per_call", figures.ns_per_around_call)
    yield row("top100_call", "ns_per_call", figures.ns_per_top100_call)
    yield row("memory_first_board", "bytes_per_player", [figures.accounted_bytes / asked.players])


def _measured(asked: HugeBoard) -> HugeFigures:
    workload, engine = Workload(asked.players), Engine()
    apply_ns = 0
    began = time.perf_counter()
    for events in workload.joining(asked.build_rows):
        apply_ns += engine.update(events, asked.build_rows).elapsed_ns
    build_s = time.perf_counter() - began
    if engine.store.total(engine.instance) != asked.players:
        raise RuntimeError(f"{engine.store.total(engine.instance):,} players joined, not {asked.players:,}")
    peak_bytes, held_bytes = resident_peak_bytes(), resident_bytes()
    with without_garbage_collection():
        waits_ns = _waits_ns(engine, workload.ids(asked.rank_calls))
        updates = [engine.update(workload.updates(asked.update_rows), asked.batch_rows) for _ in range(asked.rounds)]
        ranks = [engine.ranks(workload.ids(asked.rank_players), asked.rank_batch_players) for _ in range(asked.rounds)]
        calls = [
            [timed_calls(call, workload.ids(asked.rank_calls // 10), 0).ns_per_operation for _ in range(asked.rounds)]
            for call in (engine.rank_call(), engine.around_call(), engine.top_call())
        ]
    p50, p99, p999 = np.percentile(waits_ns, [50, 99, 99.9]).tolist()
    return HugeFigures(
        build_s=build_s,
        apply_only_s=apply_ns / 1e9,
        peak_bytes=peak_bytes,
        resident_bytes=held_bytes,
        accounted_bytes=engine.store.memory().total_bytes,
        rank_p50_ns=p50,
        rank_p99_ns=p99,
        rank_p99_9_ns=p999,
        ns_per_update=[timed.ns_per_operation for timed in updates],
        ns_per_rank=[timed.ns_per_operation for timed in ranks],
        ns_per_rank_call=calls[0],
        ns_per_around_call=calls[1],
        ns_per_top100_call=calls[2],
    )


def _waits_ns(engine: Engine, players: list[str]) -> list[int]:
    ask, now = engine.rank_call().ask, time.perf_counter_ns
    waits_ns = []
    for player in players:
        began_ns = now()
        ask(player)
        waits_ns.append(now() - began_ns)
    return waits_ns


if __name__ == "__main__":
    print(msgspec.json.encode(_measured(msgspec.json.decode(sys.argv[1], type=HugeBoard))).decode())

"""Speed side by side: updates, ranks and single calls on one board of each size, round about with the rivals.

    build (each its own) → rounds of: the same question to each contender in turn → medians, ratio, checksums

Every write changes a score: keep = latest, fresh random scores, random players that exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from benchmarks.contender import Call, Contender, Timed, timed_calls, without_garbage_collection
from benchmarks.figures import RANKD, Row, Scale, Series
from benchmarks.rivals import SORTED_PLAYERS_MAX, Redis, Sorted
from benchmarks.subject import Engine
from benchmarks.workload import Events, Workload, player_ids
from rankd.domain.order import Keep, Order, Ranking, Rules, Ties

Question = TypeVar("Question")

TIMED_RULES = Rules(keep=Keep.LATEST, order=Order.DESC, ties=Ties.EARLIEST)


@dataclass(slots=True)
class Arena:
    """The contenders of one size, holding the same board."""

    scale: Scale
    workload: Workload
    engine: Engine
    redis: Redis | None
    others: tuple[Sorted, ...]
    redis_bytes_empty: int = 0
    redis_bytes_built: int = 0

    @property
    def players(self) -> int:
        return self.workload.players

    @property
    def contenders(self) -> list[Contender]:
        return [self.engine, *([] if self.redis is None else [self.redis]), *self.others]

    def row(self, series: Series, name: str, unit: str, extra: dict[str, float] | None = None, note: str = "") -> Row:
        return series.row(name, self.players, unit, extra, note, judged=not self.scale.smoke)


def built_arena(scale: Scale, players: int, redis: Redis | None) -> tuple[Arena, Row]:
    """Put the same players with the same scores into every contender, in random order; how long that took is a row."""
    others = (Sorted(),) if players <= SORTED_PLAYERS_MAX else ()
    arena = Arena(scale, Workload(players), Engine(), redis, others)
    series = Series()
    elapsed_ns = {contender.name: 0 for contender in arena.contenders}
    joined = {contender.name: 0 for contender in arena.contenders}
    everybody: list[Events] = []
    arena.redis_bytes_empty = 0 if redis is None else redis.used_bytes()
    with without_garbage_collection():
        for events in arena.workload.joining(scale.build_batch_rows):
            for contender in (arena.engine, redis):
                if contender is not None:
                    timed = contender.update(events, scale.build_batch_rows)
                    elapsed_ns[contender.name] += timed.elapsed_ns
                    joined[contender.name] += timed.checksum
            if arena.others:
                everybody.append(events)
    arena.redis_bytes_built = 0 if redis is None else redis.used_bytes()
    for other in arena.others:
        other.build(
            Events(np.concatenate([e.numbers for e in everybody]), np.concatenate([e.scores for e in everybody]))
        )
        del elapsed_ns[other.name]  # sorted all at once: another kind of work
    for name, total_ns in elapsed_ns.items():
        series.add(name, total_ns / players, joined[name])
    return arena, arena.row(series, "build", "ns_per_entry")


def update_rows(arena: Arena) -> Iterator[Row]:
    """Batches of updates, answered with old and new score of each row."""
    scale = arena.scale
    yield _compared(
        arena,
        "updates",
        "ns_per_update",
        lambda: arena.workload.updates(scale.update_rows),
        lambda contender, events: contender.update(events, scale.batch_rows),
        note=f"{scale.batch_rows:,} rows a batch",
    )


def rank_rows(arena: Arena) -> Iterator[Row]:
    """Many places a call, of members that exist."""
    scale = arena.scale
    yield _compared(
        arena,
        "ranks",
        "ns_per_rank",
        lambda: arena.workload.ids(scale.rank_players),
        lambda contender, players: contender.ranks(players, scale.rank_batch_players),
        note=f"{scale.rank_batch_players:,} players a call",
    )


def call_rows(arena: Arena) -> Iterator[Row]:
    """One question a Python call; Redis through redis-py."""
    scale = arena.scale
    yield _called(arena, "rank_call", scale.rank_calls, lambda contender: contender.rank_call())
    yield _called(arena, "around_call", scale.around_calls, lambda contender: contender.around_call())
    if arena.redis is not None:
        yield _called(arena, "around_script_call", scale.around_calls, _around_by_script)
    yield _called(arena, "top100_call", scale.top_calls, lambda contender: contender.top_call())


def _around_by_script(contender: Contender) -> Call:
    return contender.around_script_call() if isinstance(contender, Redis) else contender.around_call()


def _compared(
    arena: Arena,
    name: str,
    unit: str,
    question: Callable[[], Question],
    answer: Callable[[Contender, Question], Timed],
    *,
    note: str = "",
) -> Row:
    series = Series()
    with without_garbage_collection():
        for _ in range(arena.scale.rounds):
            asked = question()
            for contender in arena.contenders:
                timed = answer(contender, asked)
                series.add(contender.name, timed.ns_per_operation, timed.checksum)
    return arena.row(series, name, unit, note=note)


def _called(arena: Arena, name: str, calls: int, of: Callable[[Contender], Call]) -> Row:
    summed = int(calls * min(contender.calls_share for contender in arena.contenders))

    def ask(contender: Contender, players: Sequence[str]) -> Timed:
        return timed_calls(of(contender), players[: int(calls * contender.calls_share)], summed)

    return _compared(arena, name, "ns_per_call", lambda: arena.workload.ids(calls), ask)


def variant_rows(arena: Arena) -> Iterator[Row]:
    """Ours alone, the same updates otherwise: where the time depends on how the caller does it.

    Run last: from here on our board is no longer that of the rivals.
    """
    scale, engine, workload = arena.scale, arena.engine, arena.workload
    for batch_rows in scale.batch_rows_variants:

        def in_batches(rows: int = batch_rows) -> Timed:
            return engine.update(workload.updates(max(rows, scale.update_rows)), rows)

        name = f"updates_batch_{batch_rows}"
        yield _alone(arena, name, "ns_per_update", in_batches, f"{batch_rows:,} rows a batch")
    engine.ranks_with_updates = Ranking.ORDINAL
    yield _alone(
        arena,
        "updates_with_ranks",
        "ns_per_update",
        lambda: engine.update(workload.updates(scale.update_rows), scale.batch_rows),
        "rank before and after the batch answered for each row",
    )
    engine.ranks_with_updates = None
    yield from _resident_rows(arena)
    yield _timed_ties_row(arena)


def _resident_rows(arena: Arena) -> Iterator[Row]:
    """Ids picked from a list of all players that lies about in memory: the misses are Python's, not the engine's."""
    scale, engine, workload = arena.scale, arena.engine, arena.workload
    resident = player_ids(np.arange(arena.players, dtype=np.int64))

    def ranks() -> Timed:
        picked = [resident[number] for number in workload.numbers(scale.rank_players).tolist()]
        return engine.ranks(picked, scale.rank_batch_players)

    note = "ids picked from a resident list of all players: their cache misses are Python's"
    yield _alone(
        arena,
        "updates_resident_ids",
        "ns_per_update",
        lambda: engine.update(workload.updates(scale.update_rows), scale.batch_rows, resident),
        note,
    )
    yield _alone(arena, "ranks_resident_ids", "ns_per_rank", ranks, note)


def _timed_ties_row(arena: Arena) -> Row:
    """Another board in the same store: the headline's rules have no tie field, the default rules do."""
    scale, workload = arena.scale, arena.workload
    timed = Engine(arena.engine.store, "bench-timed", TIMED_RULES)
    for events in Workload(arena.players, stream=1).joining(scale.build_batch_rows):
        timed.update(events, scale.build_batch_rows)
    row = _alone(
        arena,
        "updates_timed_ties",
        "ns_per_update",
        lambda: timed.update(workload.updates(scale.update_rows), scale.batch_rows),
        "a second board with order desc and ties by time, the defaults",
    )
    timed.store.drop(timed.instance)
    return row


def _alone(arena: Arena, name: str, unit: str, once: Callable[[], Timed], note: str) -> Row:
    series = Series()
    with without_garbage_collection():
        for _ in range(arena.scale.rounds):
            timed = once()
            series.add(RANKD, timed.ns_per_operation, timed.checksum)
    return arena.row(series, name, unit, note=note)

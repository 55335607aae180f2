"""Memory: bytes per player on the first and on each further board, and a million boards of thirty players.

Each is measured twice, in a fresh process: what the engine accounts for (`memory()`), and by how much the process
grew (`*_resident`), which also shows what it forgot to account for. Ids are streamed: none of Python's own strings
is alive when memory is read, and a batch is made and let go before the first reading so that Python's arenas are warm.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.engine_bench import Arena
from benchmarks.figures import BOARD_PLAYERS, RANKD, REDIS, Row, Scale, Series
from benchmarks.isolated import resident_bytes, run_isolated
from benchmarks.redis_server import running_redis
from benchmarks.rivals import Redis, zadd
from benchmarks.subject import Engine
from benchmarks.workload import RULES, Events, Workload, player_ids
from rankd.domain.instance import InstanceKey
from rankd.projection.engine import EngineStore
from rankd.projection.port import UpdateBatch, Verdict


class BoardsOfAll(msgspec.Struct, frozen=True, tag=True):
    """Every player on one board, then on a second one, then as many random updates of the first as it has players."""

    players: int
    batch_rows: int


class SmallBoards(msgspec.Struct, frozen=True, tag=True):
    """Many boards of BOARD_PLAYERS players each, drawn from one population."""

    boards: int
    players: int
    boards_a_batch: int


class MemoryUse(msgspec.Struct, frozen=True):
    """What a store accounts for, and by how much its process has grown since it was made."""

    total_bytes: int
    players_bytes: int
    resident_bytes: int

    @property
    def ranked_bytes(self) -> int:
        """Everything but the players: names and heads of boards, entries, maps, and what is kept ready."""
        return self.total_bytes - self.players_bytes


def player_rows(arena: Arena) -> Iterator[Row]:
    """Bytes per player: first board, each further board, and after as many random updates as players."""
    players, redis = arena.players, arena.redis
    ours = run_isolated(__name__, BoardsOfAll(players, arena.scale.build_batch_rows), list[MemoryUse])
    first, both, churned = ours
    redis_first = None if redis is None else (arena.redis_bytes_built - arena.redis_bytes_empty) / players
    redis_further = None if redis is None else redis.copy_bytes() / players

    def row(name: str, ours_bytes: float, redis_bytes: float | None, note: str) -> Row:
        series = Series()
        series.add(RANKD, ours_bytes / players)
        if redis_bytes is not None:
            series.add(REDIS, redis_bytes)
        return arena.row(series, name, "bytes_per_player", note=note)

    accounted, grown = "as the engine accounts for it", "growth of a fresh process; Redis: used_memory"
    yield row("memory_first_board", first.total_bytes, redis_first, accounted)
    yield row("memory_first_board_resident", first.resident_bytes, redis_first, grown)
    yield row("memory_further_board", both.total_bytes - first.total_bytes, redis_further, accounted)
    yield row("memory_further_board_resident", both.resident_bytes - first.resident_bytes, redis_further, grown)
    further = both.total_bytes - first.total_bytes
    yield row("memory_churned", churned.total_bytes - further, None, "first board after as many updates as players")


def small_board_rows(scale: Scale, with_redis: bool) -> Iterator[Row]:
    """Bytes per board of thirty, interning not counted; Redis holds such boards as packed lists, ids included."""
    ours = run_isolated(
        __name__, SmallBoards(scale.boards, scale.boards_from_players, scale.boards_a_batch), list[MemoryUse]
    )
    empty, full = ours
    redis_bytes = _redis_bytes_per_board(scale) if with_redis else None
    grown = full.resident_bytes - empty.resident_bytes
    for name, taken, note in (
        ("small_boards", full.ranked_bytes - empty.ranked_bytes, "as the engine accounts for it"),
        ("small_boards_resident", grown, "growth of a fresh process that knew the players; Redis: used_memory"),
    ):
        series = Series()
        series.add(RANKD, taken / scale.boards)
        if redis_bytes is not None:
            series.add(REDIS, redis_bytes)
        extra = {"boards": float(scale.boards), "bytes_per_entry": taken / scale.boards / BOARD_PLAYERS}
        entries = scale.boards * BOARD_PLAYERS
        yield series.row(name, entries, "bytes_per_board", extra, note, judged=not scale.smoke)


def _redis_bytes_per_board(scale: Scale) -> float:
    boards = min(scale.boards, scale.boards_in_redis_max)
    workload = Workload(scale.boards_from_players)
    members = _drawn(workload, boards)
    with running_redis() as server, Redis(server) as redis:
        before = redis.used_bytes()
        redis.send(
            zadd(f"board-{board:07d}", Events(numbers, workload.scores(BOARD_PLAYERS)))
            for board, numbers in enumerate(members)
        )
        return (redis.used_bytes() - before) / boards


def _drawn(workload: Workload, boards: int) -> NDArray[np.int64]:
    """For each board a line of BOARD_PLAYERS different players; lines with a repeated one are drawn again."""
    lines = np.sort(workload.numbers(boards * BOARD_PLAYERS).reshape(boards, BOARD_PLAYERS), axis=1)
    while (repeats := (np.diff(lines, axis=1) == 0).any(axis=1)).any():
        count = int(repeats.sum())
        lines[repeats] = np.sort(workload.numbers(count * BOARD_PLAYERS).reshape(count, BOARD_PLAYERS), axis=1)
    return lines


def _boards_of_all(asked: BoardsOfAll) -> list[MemoryUse]:
    workload = Workload(asked.players)
    player_ids(workload.numbers(asked.batch_rows))
    store = EngineStore()
    before_bytes = resident_bytes()
    readings = []
    for board in ("first", "second"):
        engine = Engine(store, board)
        for events in workload.joining(asked.batch_rows):
            engine.update(events, asked.batch_rows)
        readings.append(_taken(store, before_bytes))
    first = Engine(store, "first")
    for begun in range(0, asked.players, asked.batch_rows):
        first.update(workload.updates(min(asked.batch_rows, asked.players - begun)), asked.batch_rows)
    return [*readings, _taken(store, before_bytes)]


def _small_boards(asked: SmallBoards) -> list[MemoryUse]:
    workload = Workload(asked.players)
    store = EngineStore()
    everybody = Engine(store, "everybody")
    for events in workload.joining(asked.boards_a_batch):
        everybody.update(events, asked.boards_a_batch)
    before_bytes = resident_bytes()
    readings = [_taken(store, before_bytes)]
    position = store.position(0).sequence
    for first in range(0, asked.boards, asked.boards_a_batch):
        boards = range(first, min(first + asked.boards_a_batch, asked.boards))
        numbers, player = np.unique(_drawn(workload, len(boards)), return_inverse=True)
        rows = workload.permutation(len(boards) * BOARD_PLAYERS)
        upto = position + len(rows)
        applied = store.apply(
            UpdateBatch(
                instances=[(InstanceKey(f"board-{board:07d}"), RULES) for board in boards],
                players=player_ids(numbers),
                score=workload.scores(len(rows)).data,
                instance=(rows // BOARD_PLAYERS).astype(np.uint32).data,
                player=player.ravel()[rows].astype(np.uint32).data,
                after=position,
                upto=upto,
            )
        )
        if applied.verdict is not Verdict.APPLIED:
            raise RuntimeError(f"a batch was answered with {applied.verdict}")
        position = upto
    return [*readings, _taken(store, before_bytes)]


def _taken(store: EngineStore, before_bytes: int) -> MemoryUse:
    gc.collect()
    memory = store.memory()
    return MemoryUse(memory.total_bytes, memory.players_bytes, resident_bytes() - before_bytes)


def _main() -> None:
    asked = msgspec.json.decode(sys.argv[1], type=BoardsOfAll | SmallBoards)
    readings = _boards_of_all(asked) if isinstance(asked, BoardsOfAll) else _small_boards(asked)
    print(msgspec.json.encode(readings).decode())


if __name__ == "__main__":
    _main()

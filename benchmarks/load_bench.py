"""How fast a saved board is there again: EngineStore.load against Redis loading its own dump of the same set.

Redis' time is what its log says, without process start and connecting, which favours it; the time until it answers
is kept beside. Both files were just written, so both come from the page cache.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.contender import without_garbage_collection
from benchmarks.engine_bench import Arena
from benchmarks.figures import RANKD, REDIS, Row, Series
from benchmarks.redis_server import running_redis
from benchmarks.rivals import Redis
from benchmarks.subject import Engine
from rankd.projection.engine import EngineStore

SAMPLE_PLAYERS = 1_000


def load_rows(arena: Arena) -> Iterator[Row]:
    """Save once, load several times, in turn; the checksum is the places of a thousand players after loading."""
    series = Series()
    sample = arena.workload.ids(SAMPLE_PLAYERS)
    extra: dict[str, float] = {}
    until_ready_s: list[float] = []
    with tempfile.TemporaryDirectory(prefix="rankd-bench-") as directory:
        saved = Path(directory) / "saved"
        began = time.perf_counter()
        arena.engine.store.save(saved)
        extra["rankd_save_s"] = time.perf_counter() - began
        extra["rankd_file_bytes_per_player"] = saved.stat().st_size / arena.players
        if arena.redis is not None:
            began = time.perf_counter()
            extra["redis_file_bytes_per_player"] = arena.redis.save() / arena.players
            extra["redis_save_s"] = time.perf_counter() - began
        for _ in range(min(arena.scale.rounds, arena.scale.load_rounds_max)):
            with without_garbage_collection():
                began = time.perf_counter()
                loaded = EngineStore.load(saved)
                elapsed_s = time.perf_counter() - began
            if loaded.digest(arena.engine.instance) != arena.engine.store.digest(arena.engine.instance):
                raise RuntimeError("the loaded board is not the saved one: digests differ")
            series.add(RANKD, elapsed_s, Engine(loaded).ranks(sample, SAMPLE_PLAYERS).checksum)
            del loaded
            if arena.redis is not None:
                with running_redis(arena.redis.server.dump) as server, Redis(server) as redis:
                    until_ready_s.append(server.start_s)
                    series.add(REDIS, server.logged_load_s(), redis.ranks(sample, SAMPLE_PLAYERS).checksum)
    if until_ready_s:
        extra["redis_until_ready_s"] = median(until_ready_s)
    yield arena.row(series, "load", "seconds", extra, note="Redis: the seconds in its own log")

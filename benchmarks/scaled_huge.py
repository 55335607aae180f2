"""`rankd rebuild` of ten million players: PostgreSQL's events ranked anew, then Redis filled and switched; minutes.

    rebuild   ledger → engine (replay) → pages → a new generation in Redis → switched
    rival     the same entries into a Redis of its own: ZADDs of 1,000, encoded beforehand, on a raw socket

What is compared is the filling, which is what the rival does; the whole with its replay is shown beside it.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

from tests.servers.postgres import running_postgres
from tests.servers.redis import RedisServer, running_redis

from benchmarks.contender import without_garbage_collection
from benchmarks.disk import folder_on_disk
from benchmarks.figures import RANKD, REDIS, Row, Scale, Series
from benchmarks.redis_server import Pipeline, RawConnection, integers
from benchmarks.workload import Workload
from rankd.domain.instance import InstanceKey
from rankd.node.open_operations import rebuild_shared
from rankd.node.open_thin import open_thin
from rankd.node.shared_stores import SharedStores
from rankd.redis.keys import KeyKind, ShardKeys, instance_name

BOARD = "bench"
WINDOW = "all_time"
DEFINITION = {"windows": [WINDOW], "keep": "latest", "ties": "player", "score_min": 0, "score_max": 10**9}
SETTINGS = ("max_wal_size=4GB", "shared_buffers=256MB")
SUBMITTED_TOGETHER = 10_000
READ_TOGETHER = 100_000
VARIADIC_ENTRIES = 1_000


def scaled_huge_rows(scale: Scale) -> Iterator[Row]:
    """Fill a ledger, then rebuild by turns with the rival."""
    players = scale.scaled_players_huge
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        folder.chmod(0o711)  # the server has a user of its own
        postgres = stack.enter_context(running_postgres(SETTINGS, parent=folder))
        ours, theirs = (stack.enter_context(running_redis()) for _ in range(2))
        ledger_url = postgres.url()
        SharedStores(ledger_url).migrate()
        appending_s = _fill(ledger_url, ours.url, players)
        series, replays_s, wholes_s = Series(), [], []
        for _ in range(min(scale.rounds, scale.load_rounds_max)):
            replay_s, fill_s = _rebuild(ledger_url, ours.url, players)
            replays_s.append(replay_s)
            wholes_s.append(replay_s + fill_s)
            series.add(RANKD, fill_s * 1e9 / players)
            series.add(REDIS, _load(ours, theirs) / players)
            series.checksums = {RANKD: _checksum(ours, _our_key(ours)), REDIS: _checksum(theirs, WINDOW.encode())}
        extra = {
            "appended_events_per_s": players / appending_s,
            "replayed_events_per_s": players / median(replays_s),
            "whole_rebuild_s": median(wholes_s),
        }
        note = "one window, all of them replayed from PostgreSQL first, which is not compared"
        yield series.row("scaled_rebuild_huge", players, "ns_per_entry", extra, note, judged=not scale.smoke)


def _fill(ledger_url: str, ranks_url: str, players: int) -> float:
    """Give everybody a score; return how long that took."""
    with open_thin(SharedStores(ledger_url), ranks_url) as boards:
        boards.define(BOARD, DEFINITION)
        began = time.perf_counter()
        for events in Workload(players).joining(SUBMITTED_TOGETHER):
            scores = array("q", (events.scores % (DEFINITION["score_max"] + 1)).tobytes())  # type: ignore[operator]
            boards.submit_many(BOARD, players=events.ids(), scores=scores)
        return time.perf_counter() - began


def _rebuild(ledger_url: str, ranks_url: str, players: int) -> tuple[float, float]:
    """Return how long the replay took, and how long everything behind it."""
    replayed = began = time.perf_counter()

    def progress(_done: int, _total: int) -> None:
        nonlocal replayed
        replayed = time.perf_counter()

    rebuilt = rebuild_shared(SharedStores(ledger_url), ranks_url, progress)
    ended = time.perf_counter()
    if rebuilt.entries != players:
        raise RuntimeError(f"{rebuilt.entries} entries were rebuilt of {players}")
    return replayed - began, ended - replayed


def _load(ours: RedisServer, theirs: RedisServer) -> int:
    """Let the rival have what we have, in standing order; return how long it took, without the reading and encoding."""
    elapsed_ns, first, key = 0, 0, _our_key(ours)
    with ours.client() as source, theirs.client() as target, RawConnection(theirs.port) as raw:
        target.flushall()
        while some := source.zrange(key, first, first + READ_TOGETHER - 1, withscores=True):
            first += len(some)
            pipelines = [
                _variadic(some[start : start + VARIADIC_ENTRIES]) for start in range(0, len(some), VARIADIC_ENTRIES)
            ]
            with without_garbage_collection():
                began_ns = time.perf_counter_ns()
                replies = raw.exchange(pipelines)
                elapsed_ns += time.perf_counter_ns() - began_ns
            integers(replies)
    return elapsed_ns


def _variadic(entries: list[tuple[bytes, float]]) -> Pipeline:
    arguments = [b"ZADD", WINDOW.encode()]
    for player, number in entries:
        arguments += b"%d" % number, player
    parts = [b"*%d\r\n" % len(arguments), *(b"$%d\r\n%s\r\n" % (len(argument), argument) for argument in arguments)]
    return Pipeline(b"".join(parts), 1)


def _our_key(server: RedisServer) -> bytes:
    keys = ShardKeys(BOARD, 0)
    with server.client() as client:
        generation = int(client.hget(keys.meta, "generation"))
    return keys.of(KeyKind.STANDING, generation, instance_name(InstanceKey(BOARD, WINDOW)))


def _checksum(server: RedisServer, key: bytes) -> int:
    """Return how many there are, and the scores of those at regular places."""
    with server.client() as client:
        total = client.zcard(key)
        places = range(0, total, max(1, total // VARIADIC_ENTRIES))
        entries = [client.zrange(key, place, place, withscores=True)[0] for place in places]
    return int(total + sum(place * number for place, (_, number) in zip(places, entries, strict=True))) % 2**62

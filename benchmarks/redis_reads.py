"""Reads of ranks that live in Redis: one shard beside redis-py's own commands, and the exact rank over several shards.

    Mirror (a rebuild) → a sorted set a shard → RedisReader, one call at a time
                                              → redis-py on the same sorted sets: the rival

The rival's commands answer less (a place, or members and numbers left as bytes): ours holds score, tie field, how many
are better, the total, and how far every partition is applied. Over shards the rival asks as we do: the score, then
how many are better on every shard, in one pipeline.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import redis

from benchmarks.contender import AROUND, TOP, Call, without_garbage_collection
from benchmarks.figures import RANKD, REDIS, Row, Scale, Series
from benchmarks.redis_server import RedisServer, running_redis
from benchmarks.workload import RULES, SCORE_LIMIT, Workload
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking, Rules
from rankd.redis.connection.client import FunctionCall, RedisClient, connect
from rankd.redis.keys import KeyKind, ShardKeys, instance_name, shard_of
from rankd.redis.read.reader import RedisReader
from rankd.redis.write.changes import InstanceChange
from rankd.redis.write.mirror import Mirror

BOARD_RULES = Rules(RULES.keep, RULES.order, RULES.ties, score_min=0, score_max=SCORE_LIMIT)
EPOCH = 1
P99 = 0.99


class Counting:
    """The client, with its round trips counted."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self.round_trips = 0

    def call_all(self, calls: Sequence[FunctionCall]) -> list[Any]:
        self.round_trips += 1
        return self._client.call_all(calls)


class Stand:
    """A board in a running Redis, and both ways to ask about it."""

    def __init__(self, scale: Scale, server: RedisServer, players: int, shards: int) -> None:
        self.scale = scale
        self.players = players
        self.shards = shards
        self.key = InstanceKey("bench")
        self.plain = redis.Redis(port=server.port, protocol=2)
        self.client = connect(f"redis://127.0.0.1:{server.port}")
        self.counting = Counting(self.client)
        self.reader = RedisReader(self.counting, lambda _: shards)
        self.workload = Workload(players)
        self._load()
        # The rival reads what the mirror wrote: ascending order, ties by player and scores from 0 make it ZRANK's own.
        name = instance_name(self.key)
        self.sets = []
        for shard in range(shards):
            keys = ShardKeys("bench", shard)
            generation = int(self.plain.hget(keys.meta, "generation") or 0)
            self.sets.append(keys.of(KeyKind.STANDING, generation, name))

    def _load(self) -> None:
        loading = Mirror(self.client).begin("bench", self.shards, EPOCH)
        if loading is None:
            raise RuntimeError("a fresh server already has a writer")
        for events in self.workload.joining(self.scale.build_batch_rows):
            scores = array("q", events.scores.tobytes())
            ties = array("q", bytes(8 * len(scores)))
            change = InstanceChange(
                self.key, BOARD_RULES, players=events.ids(), score=scores, tie=ties, total=self.players
            )
            loading.load([change])
        loading.finish([(0, self.players)], time_ms=time.time_ns() // 1_000_000)

    def close(self) -> None:
        self.client.close()
        self.plain.close()


def redis_read_rows(scale: Scale) -> Iterator[Row]:
    """All rows of reads from Redis."""
    with ExitStack() as stack:
        stand = Stand(scale, stack.enter_context(running_redis()), scale.scaled_players, shards=1)
        stack.callback(stand.close)
        yield _row(stand, "scaled_rank_call", _rank(stand), _redis_rank(stand))
        yield _row(stand, "scaled_around_call", _around(stand), _redis_around(stand))
        yield _row(stand, "scaled_top100_call", _top(stand), _redis_top(stand))
    with ExitStack() as stack:
        players = scale.scaled_players * scale.scaled_shards
        stand = Stand(scale, stack.enter_context(running_redis()), players, scale.scaled_shards)
        stack.callback(stand.close)
        yield _row(stand, "scaled_shards_rank_p99", _better(stand), _redis_better(stand), share=P99)
        yield _row(stand, "scaled_shards_page", _deep_page(stand), None)


def _row(stand: Stand, name: str, ours: Call, theirs: Call | None, share: float | None = None) -> Row:
    """Ask both in turns; the cost is the mean of a round's calls or, with `share`, this quantile of them."""
    series, extra = Series(), {}
    sides = [(RANKD, ours)] + ([(REDIS, theirs)] if theirs is not None else [])
    stand.counting.round_trips = asked = 0
    for _ in range(stand.scale.rounds):
        players = stand.workload.ids(stand.scale.scaled_calls)
        for side, call in sides:
            times_ns, checksum = _timed(call, players)
            series.add(side, times_ns[int(len(times_ns) * share)] if share else sum(times_ns) / len(times_ns), checksum)
            extra[f"{side}_p50_ns"] = float(times_ns[len(times_ns) // 2])
            extra[f"{side}_max_ns"] = float(times_ns[-1])
        asked += len(players)
    extra["round_trips_per_call"] = stand.counting.round_trips / asked
    note = f"{stand.shards} shard{'s' if stand.shards > 1 else ''} in one Redis, one call at a time; redis: redis-py"
    unit = "ns_p99" if share else "ns_per_call"
    return series.row(name, stand.players, unit, extra, note, judged=not stand.scale.smoke)


def _timed(call: Call, players: Sequence[str]) -> tuple[list[int], int]:
    """Return how long each call took, shortest first, and the sum of the answers."""
    times_ns, checksum = [], 0
    with without_garbage_collection():
        for player in players:
            began_ns = time.perf_counter_ns()
            answer = call.ask(player)
            times_ns.append(time.perf_counter_ns() - began_ns)
            checksum += call.checksum(answer)
    return sorted(times_ns), checksum


# One shard


def _rank(stand: Stand) -> Call:
    return Call(lambda player: stand.reader.rank(stand.key, player), lambda standing: int(standing.rank))


def _redis_rank(stand: Stand) -> Call:
    return Call(lambda player: stand.plain.zrank(stand.sets[0], player), lambda place: int(place) + 1)


def _around(stand: Stand) -> Call:
    def total(group: Any) -> int:
        return sum(entry.score for entry in [*group.above, group.player, *group.below])

    return Call(lambda player: stand.reader.around(stand.key, player, AROUND, AROUND), total)


def _redis_around(stand: Stand) -> Call:
    def ask(player: str) -> Any:
        place: Any = stand.plain.zrank(stand.sets[0], player)
        return stand.plain.zrange(stand.sets[0], max(0, place - AROUND), place + AROUND, withscores=True)

    return Call(ask, _sum_of_numbers)


def _top(stand: Stand) -> Call:
    return Call(
        lambda _: stand.reader.range(stand.key, 1, TOP),
        lambda page: sum(entry.score for entry in page.entries),
    )


def _redis_top(stand: Stand) -> Call:
    return Call(lambda _: stand.plain.zrange(stand.sets[0], 0, TOP - 1, withscores=True), _sum_of_numbers)


def _sum_of_numbers(entries: Any) -> int:
    return sum(int(number) for _, number in entries)


# Several shards


def _better(stand: Stand) -> Call:
    return Call(
        lambda player: stand.reader.rank(stand.key, player, Ranking.COMPETITION),
        lambda standing: int(standing.rank),
    )


def _redis_better(stand: Stand) -> Call:
    def ask(player: str) -> Any:
        number: Any = stand.plain.zscore(stand.sets[shard_of(player, stand.shards)], player)
        pipeline = stand.plain.pipeline(transaction=False)
        for key in stand.sets:
            pipeline.zcount(key, "-inf", f"({number:.0f}")
        return pipeline.execute()

    return Call(ask, lambda counts: 1 + sum(counts))


def _deep_page(stand: Stand) -> Call:
    place: Callable[[str], int] = lambda player: 1 + int(player[5:]) % max(1, stand.players - TOP)  # noqa: E731
    return Call(
        lambda player: stand.reader.range(stand.key, place(player), place(player) + TOP - 1),
        lambda page: sum(entry.rank for entry in page.entries),
    )

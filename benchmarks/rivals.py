"""The rivals: a Redis sorted set and sortedcontainers, each driven the fastest way that is fair.

Redis, many at once: a raw socket, variadic ZADD and pipelined ZRANK, encoded before the clock starts; replies are
only counted under the clock and read as integers after it. Redis, one call at a time: redis-py with hiredis, answers
left as bytes. Both spare Redis work that our side has to do: ours returns Python objects with `str` ids.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Self

import redis
from sortedcontainers import SortedList

from benchmarks.contender import AROUND, TOP, Call, Timed
from benchmarks.redis_server import Pipeline, RawConnection, RedisServer, integers
from benchmarks.workload import Events

KEY = "bench"
COPY_KEY = "bench:copy"
ZADD_MEMBERS = 100  # from 10 to 10,000 a command made 8 % at most at 1 M, one sample each
CALL_WAIT_S = 300.0
SORTED_PLAYERS_MAX = 1_000_000  # above, lists of tuples take gigabytes and minutes: left out

_AROUND_LUA = """
local place = redis.call('ZRANK', KEYS[1], ARGV[1])
local first = math.max(0, place - ARGV[2])
return {first, redis.call('ZRANGE', KEYS[1], first, place + ARGV[2], 'WITHSCORES')}
"""


def zadd(key: str, events: Events) -> Pipeline:
    """Encode `ZADD key CH score member …`: CH makes the answer the number of rows that changed a score."""
    parts = []
    commands = 0
    head = f"$4\r\nZADD\r\n${len(key)}\r\n{key}\r\n$2\r\nCH\r\n"
    for some in events.batches(ZADD_MEMBERS):
        members = [
            f"${len(score)}\r\n{score}\r\n${len(player)}\r\n{player}\r\n"
            for score, player in zip(map(str, some.scores.tolist()), some.ids(), strict=True)
        ]
        parts.append(f"*{3 + 2 * len(members)}\r\n{head}{''.join(members)}")
        commands += 1
    return Pipeline("".join(parts).encode("ascii"), commands)


def zrank(key: str, players: Sequence[str]) -> Pipeline:
    head = f"*3\r\n$5\r\nZRANK\r\n${len(key)}\r\n{key}\r\n"
    encoded = "".join([f"{head}${len(player)}\r\n{player}\r\n" for player in players])
    return Pipeline(encoded.encode("ascii"), len(players))


class Redis:
    """One sorted set in a running server."""

    name = "redis"
    calls_share = 0.1

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self._raw = RawConnection(server.port)
        self.client: Any = redis.Redis(port=server.port, socket_timeout=CALL_WAIT_S)
        self._around_sha = self.client.script_load(_AROUND_LUA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.__exit__()
        self.client.close()

    def update(self, events: Events, batch_rows: int) -> Timed:
        pipelines = [zadd(KEY, some) for some in events.batches(batch_rows)]
        began_ns = time.perf_counter_ns()
        replies = self._raw.exchange(pipelines)
        elapsed_ns = time.perf_counter_ns() - began_ns
        return Timed(len(events), elapsed_ns, sum(integers(replies)))

    def ranks(self, players: Sequence[str], batch_players: int) -> Timed:
        count = len(players)
        pipelines = [zrank(KEY, players[first : first + batch_players]) for first in range(0, count, batch_players)]
        began_ns = time.perf_counter_ns()
        replies = self._raw.exchange(pipelines)
        elapsed_ns = time.perf_counter_ns() - began_ns
        return Timed(count, elapsed_ns, sum(integers(replies)) + count)

    def rank_call(self) -> Call:
        client = self.client
        return Call(lambda player: client.zrank(KEY, player), lambda place: int(place) + 1)

    def around_call(self) -> Call:
        """What applications do: ask for the place, then for the places around it."""
        client = self.client

        def around(player: str) -> tuple[int, list[Any]]:
            place = client.zrank(KEY, player)
            first = max(0, place - AROUND)
            return first, client.zrange(KEY, first, place + AROUND, withscores=True)

        return Call(around, lambda answer: _places_and_scores(*answer))

    def around_script_call(self) -> Call:
        """One round trip in place of two, for those who write a script."""
        client, sha = self.client, self._around_sha

        def around(player: str) -> tuple[int, list[Any]]:
            first, flat = client.evalsha(sha, 1, KEY, player, AROUND)
            return first, list(zip(flat[::2], flat[1::2], strict=True))

        return Call(around, lambda answer: _places_and_scores(*answer))

    def top_call(self) -> Call:
        client = self.client
        return Call(
            lambda _: client.zrange(KEY, 0, TOP - 1, withscores=True), lambda lines: _places_and_scores(0, lines)
        )

    def send(self, pipelines: Iterable[Pipeline]) -> list[int]:
        """Send what is not timed."""
        return integers(self._raw.exchange(pipelines))

    def used_bytes(self) -> int:
        return int(self.client.info("memory")["used_memory"])

    def copy_bytes(self) -> int:
        """Return what a second sorted set with the same members takes, and let it go again."""
        before = self.used_bytes()
        self.client.copy(KEY, COPY_KEY)
        taken = self.used_bytes() - before
        self.client.delete(COPY_KEY)
        return taken

    def save(self) -> int:
        """Write the dump and return its size in bytes."""
        self.client.save()
        return self.server.dump.stat().st_size


def _places_and_scores(first: int, lines: Sequence[Sequence[Any]]) -> int:
    return sum(place + int(float(score)) for place, (_, score) in enumerate(lines, first + 1))


class Sorted:
    """sortedcontainers: a SortedList of (score, player) and a dict of scores."""

    name = "sortedcontainers"
    calls_share = 0.5

    def __init__(self) -> None:
        self._order: Any = SortedList()
        self._scores: dict[str, int] = {}

    def build(self, everybody: Events) -> None:
        self._scores = dict(zip(everybody.ids(), everybody.scores.tolist(), strict=True))
        self._order = SortedList((score, player) for player, score in self._scores.items())

    def update(self, events: Events, batch_rows: int) -> Timed:
        del batch_rows
        order, scores = self._order, self._scores
        rows = list(zip(events.ids(), events.scores.tolist(), strict=True))
        changed = 0
        began_ns = time.perf_counter_ns()
        for player, score in rows:
            old = scores[player]
            if old != score:
                order.remove((old, player))
                order.add((score, player))
                scores[player] = score
                changed += 1
        return Timed(len(rows), time.perf_counter_ns() - began_ns, changed)

    def ranks(self, players: Sequence[str], batch_players: int) -> Timed:
        del batch_players
        order, scores = self._order, self._scores
        began_ns = time.perf_counter_ns()
        places = [order.bisect_left((scores[player], player)) + 1 for player in players]
        return Timed(len(players), time.perf_counter_ns() - began_ns, sum(places))

    def _place(self, player: str) -> int:
        place: int = self._order.bisect_left((self._scores[player], player))
        return place

    def rank_call(self) -> Call:
        return Call(self._place, lambda place: place + 1)

    def around_call(self) -> Call:
        def around(player: str) -> tuple[int, list[Any]]:
            place = self._place(player)
            first = max(0, place - AROUND)
            return first, list(self._order.islice(first, place + AROUND + 1))

        return Call(around, lambda answer: _sorted_places_and_scores(*answer))

    def top_call(self) -> Call:
        return Call(lambda _: list(islice(self._order, TOP)), lambda lines: _sorted_places_and_scores(0, lines))


def _sorted_places_and_scores(first: int, lines: Sequence[tuple[int, str]]) -> int:
    return sum(place + score for place, (score, _) in enumerate(lines, first + 1))

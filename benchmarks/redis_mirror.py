"""The projector's way into Redis, beside the same ZADDs encoded beforehand and pipelined on a raw socket.

    rebuild   engine → pages → Loading               rival: the same entries, variadic ZADDs of 1,000
    updates   batch → engine → kept now → Mirror     rival: the ZADDs that follow from it, one an update, no positions

One board in five windows, all in one Redis with its log on; the rival has five sorted sets of its own beside ours. Ours
decides what is kept, writes the changes with their position in one call a batch, and prepares the next batch meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any

import numpy as np
import redis

from benchmarks.contender import without_garbage_collection
from benchmarks.figures import RANKD, REDIS, Row, Scale, Series
from benchmarks.redis_server import Pipeline, RawConnection, RedisServer, integers, running_redis
from benchmarks.workload import Events, Workload
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Kept, Order, Rules, Ties
from rankd.projection.engine import EngineStore
from rankd.projection.port import UpdateBatch, Verdict, walk
from rankd.redis.connection.client import connect
from rankd.redis.forms import choose_form
from rankd.redis.keys import KeyKind, ShardKeys, instance_name
from rankd.redis.write.changes import InstanceChange, PartitionMove, changed, whole_instance
from rankd.redis.write.mirror import Mirror, PendingWrite

BOARD = "bench"
WINDOWS = ("all_time", "monthly:2026-09", "weekly:2026-W38", "daily:2026-09-16", "hourly:2026-09-16T10")
KEYS = tuple(InstanceKey(BOARD, window) for window in WINDOWS)
SHARDS = 1
BEGIN_TIE = 1_789_552_800  # seconds: the time of the first event
VARIADIC_ENTRIES = 1_000
SAMPLE = 1_000
PLAIN = Rules(Keep.LATEST, Order.ASC, Ties.PLAYER, 0, 10**9)
SUMS = Rules(Keep.SUM, Order.DESC, Ties.EARLIEST, 0, 2**20 - 1)  # packed: the time of a score takes the other 33 bits
WIDE = Rules(Keep.SUM, Order.DESC, Ties.EARLIEST)  # prefixed: these bounds leave no bits for a time
ROWS = {
    "scaled_mirror": (PLAIN, "packed form, keep latest, ties by player: a plain ZADD is enough"),
    "scaled_mirror_sums": (SUMS, "packed form, keep sum, ties by time"),
    "scaled_mirror_prefixed": (WIDE, "prefixed form, keep sum, ties by time; redis: one sorted set, scores alone"),
}


def redis_mirror_rows(scale: Scale) -> Iterator[Row]:
    """A rebuild and updates in the packed form, then updates by other rules and in the prefixed form."""
    for name, (rules, note) in ROWS.items():
        with ExitStack() as stack:
            stand = Stand(scale, stack.enter_context(running_redis(append_only=True)), rules)
            stack.callback(stand.close)
            rebuilt = stand.rebuild()
            if name == "scaled_mirror":
                yield rebuilt
            yield stand.updates(name, note)


class Stand:
    """An engine with everybody in five windows, its mirror in Redis, and five sorted sets of the rival's."""

    def __init__(self, scale: Scale, server: RedisServer, rules: Rules) -> None:
        self._scale = scale
        self._server = server
        self._rules = rules
        self._form = choose_form(rules)
        self._workload = Workload(scale.scaled_players)
        self._engine, self._position = EngineStore(), 0
        self._client = connect(f"redis://127.0.0.1:{server.port}")
        self._mirror = Mirror(self._client)
        self._raw = RawConnection(server.port)
        self._plain: Any = redis.Redis(port=server.port, protocol=2)
        for events in self._workload.joining(scale.build_batch_rows):
            self._engine.apply(self._batch(events))

    def close(self) -> None:
        self._client.close()
        self._plain.close()
        self._raw.__exit__()

    # A rebuild

    def rebuild(self) -> Row:
        """Write every window from the engine, window by window in turns with the rival."""
        series = Series()
        loading = self._mirror.begin(BOARD, SHARDS, 1)
        if loading is None:
            raise RuntimeError("a fresh server already has a writer")
        players = self._workload.players
        for key in KEYS:
            with without_garbage_collection():
                began_ns = time.perf_counter_ns()
                for page in whole_instance(self._engine, key, self._rules):
                    loading.load([page])
                loading.settle()
                series.add(RANKD, (time.perf_counter_ns() - began_ns) / players)
            series.add(REDIS, self._load_raw(key) / players)
        loading.finish([(0, self._position)], time_ms=1)
        note = "every entry of five windows, in standing order; redis: ZADDs of 1,000 encoded beforehand, raw socket"
        self._check(series)
        return series.row("scaled_rebuild", players, "ns_per_entry", None, note, judged=not self._scale.smoke)

    def _load_raw(self, key: InstanceKey) -> int:
        """Return how long the rival takes; its commands are encoded outside the clock, some at a time."""
        entries = walk(self._engine, key, 10_000)
        elapsed_ns = 0
        while some := list(islice(entries, 100 * VARIADIC_ENTRIES)):
            pipelines = [
                self._variadic(key, some[first : first + VARIADIC_ENTRIES])
                for first in range(0, len(some), VARIADIC_ENTRIES)
            ]
            with without_garbage_collection():
                began_ns = time.perf_counter_ns()
                replies = self._raw.exchange(pipelines)
                elapsed_ns += time.perf_counter_ns() - began_ns
            integers(replies)
        return elapsed_ns

    def _variadic(self, key: InstanceKey, entries: Sequence[Any]) -> Pipeline:
        numbers = self._numbers([Kept(entry.score, entry.tie) for entry in entries])
        arguments = ["ZADD", key.window]
        for number, entry in zip(numbers, entries, strict=True):
            arguments += number, entry.player
        return Pipeline(_command(arguments), 1)

    # Updates

    def updates(self, name: str, note: str) -> Row:
        """Rounds of fresh events for random players, to both in turn."""
        series = Series()
        ours_ns = server_ns = rival_ns = updates = 0
        for _ in range(self._scale.rounds):
            events = self._workload.updates(self._scale.scaled_events)
            batches = [self._batch(some) for some in events.batches(self._scale.scaled_batch_events)]
            count = len(events) * len(KEYS)
            with without_garbage_collection():
                server_began_ns, ours_began_ns = self._server.processor_ns(), time.process_time_ns()
                began_ns = time.perf_counter_ns()
                self._write(batches)
                series.add(RANKD, (time.perf_counter_ns() - began_ns) / count)
                ours_ns += time.process_time_ns() - ours_began_ns
                server_ns += self._server.processor_ns() - server_began_ns
            pipelines = self._encoded(batches)
            with without_garbage_collection():
                server_began_ns, began_ns = self._server.processor_ns(), time.perf_counter_ns()
                replies = self._raw.exchange(pipelines)
                series.add(REDIS, (time.perf_counter_ns() - began_ns) / count)
                rival_ns += self._server.processor_ns() - server_began_ns
            integers(replies)
            updates += count
        self._check(series)
        extra = {
            "rankd_processor_ns_per_update": ours_ns / updates,
            "rankd_server_processor_ns_per_update": server_ns / updates,
            "redis_server_processor_ns_per_update": rival_ns / updates,
            "rankd_updates_per_second": 1e9 / float(np.median(series.samples[RANKD])),
            "redis_updates_per_second": 1e9 / float(np.median(series.samples[REDIS])),
        }
        entries = self._workload.players
        return series.row(name, entries, "ns_per_update", extra, note, judged=not self._scale.smoke)

    def _write(self, batches: Sequence[UpdateBatch]) -> None:
        """As the projector does: apply, gather what is kept now, send, and only then ask for the answer before."""
        under_way: PendingWrite | None = None
        for batch in batches:
            self._engine.apply(batch)
            players = list(dict.fromkeys(batch.players))
            changes = [changed(self._engine, key, self._rules, players) for key in KEYS]
            sent = self._send(batch, changes)
            if under_way is not None:
                _settled(under_way)
            under_way = sent
        if under_way is not None:
            _settled(under_way)

    def _send(self, batch: UpdateBatch, changes: list[InstanceChange]) -> PendingWrite:
        return self._mirror.send(BOARD, SHARDS, 1, [PartitionMove(0, batch.after, batch.upto)], changes, time_ms=1)

    def _encoded(self, batches: Sequence[UpdateBatch]) -> list[Pipeline]:
        """The rival's commands: for every event of a batch a ZADD a window of what is kept when all are applied."""
        pipelines = []
        for batch in batches:
            kept = [standing for standing in self._engine.scores(KEYS[0], batch.players) if standing is not None]
            parts = [
                _command(["ZADD", window, number, player])
                for number, player in zip(self._numbers(kept), batch.players, strict=True)
                for window in WINDOWS
            ]
            pipelines.append(Pipeline(b"".join(parts), len(parts)))
        return pipelines

    # What both are

    def _batch(self, events: Events) -> UpdateBatch:
        """Rows of the events in every window, as the applier makes them."""
        count, windows = len(events), len(KEYS)
        scores = events.scores % (min(self._rules.score_max, 10**9) + 1)
        if self._rules.keep is Keep.SUM:
            scores = scores % 1_000  # so that sums stay below their bound
        after = self._position
        self._position += count
        return UpdateBatch(
            instances=tuple((key, self._rules) for key in KEYS),
            players=events.ids(),
            score=np.tile(scores, windows).astype(np.int64).data,
            tie=np.full(count * windows, BEGIN_TIE + after // 1_000, dtype=np.int64).data,
            instance=np.repeat(np.arange(windows, dtype=np.uint32), count).data,
            player=np.tile(np.arange(count, dtype=np.uint32), windows).data,
            after=after,
            upto=self._position,
        )

    def _numbers(self, kept: Sequence[Kept]) -> list[str]:
        scores, ties = [standing.score for standing in kept], [standing.tie for standing in kept]
        return self._form.encode_packed(scores, ties) if self._form.is_packed else [str(-score) for score in scores]

    def _check(self, series: Series) -> None:
        """Sum up what both have of some players, the scores read back from what is stored."""
        players = list(dict.fromkeys(self._workload.ids(SAMPLE)))
        generation = int(self._plain.hget(ShardKeys(BOARD, 0).meta, "generation") or 0)
        sums = {RANKD: 0, REDIS: 0}
        for key in KEYS:
            ours = ShardKeys(BOARD, 0).of(KeyKind.STANDING, generation, instance_name(key))
            members = [player.encode() for player in players]
            theirs = [int(number) for number in self._plain.zmscore(key.window, members)]
            if self._form.is_packed:
                sums[RANKD] += sum(int(number) for number in self._plain.zmscore(ours, members))
                sums[REDIS] += sum(theirs)
                continue
            prefixes = self._plain.hmget(
                ShardKeys(BOARD, 0).of(KeyKind.PREFIXES, generation, instance_name(key)), players
            )
            numbers = self._plain.zmscore(ours, [a + b for a, b in zip(prefixes, members, strict=True)])
            decoded = [self._form.decode(number, prefix) for number, prefix in zip(numbers, prefixes, strict=True)]
            sums[RANKD] -= sum(standing.score for standing in decoded)
            sums[REDIS] += sum(theirs)
        for side, total in sums.items():
            series.checksums[side] = total


def _settled(sent: PendingWrite) -> None:
    answers = sent.answers()
    if any(answer.verdict is not Verdict.APPLIED for answer in answers):
        raise RuntimeError(f"a batch was answered with {answers}")


def _command(arguments: Sequence[str]) -> bytes:
    return "".join(
        [f"*{len(arguments)}\r\n", *(f"${len(argument)}\r\n{argument}\r\n" for argument in arguments)]
    ).encode("ascii")

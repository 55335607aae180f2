"""Events in columns, ours beside those who get the same events in turn: SQLite alone, and Redis with its log on.

Beside the times stand processor times, which a busy machine stretches less: where the two say different things, trust
neither, and wait until the machine is idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from statistics import median

from benchmarks.embedded_rivals import FiveSets, SqliteAlone
from benchmarks.embedded_stand import EVENT, Stand, rates, shares_of
from benchmarks.embedded_subject import columns_of
from benchmarks.figures import RANKD, REDIS, SQLITE, Row, Series
from benchmarks.redis_server import RedisServer, running_redis
from benchmarks.workload import Events

DESIRED_NS_PER_EVENT = 5_000.0  # 200 K events a second: beyond the target, where we would like to be


class RedisSide:
    """One way to write to Redis: its samples, ours of the same rounds, and the server's processor time."""

    def __init__(self, server: RedisServer, sets: FiveSets, *, raw: bool) -> None:
        self._server = server
        self._raw = raw
        self.sets = sets
        self.series = Series()
        self._processor_ns = self._events = 0

    def update(self, stand: Stand, events: Events) -> None:
        by_client, raw = self.sets.update_by_client, self.sets.update_raw
        work = partial(raw, events, stand.batch_rows) if self._raw else partial(by_client, events)
        turn = stand.turn(work, self._server.processor_ns)
        self.series.add(REDIS, turn.ns_per_event)
        self._processor_ns += turn.processor_ns
        self._events += len(events)

    def row(self, stand: Stand) -> Row:
        name, how = (
            ("redis_raw", "commands encoded beforehand, raw socket")
            if self._raw
            else ("redis_py", "redis-py's pipelines")
        )
        extra = {**rates(self.series), "redis_server_processor_ns_per_event": self._processor_ns / self._events}
        note = f"{how}; five ZADDs an event, appendfsync everysec"
        return stand.row(self.series, f"embedded_submit_many_{name}", EVENT, extra, note)


def column_rows(stand: Stand, with_redis: bool) -> Iterator[Row]:
    """Everybody joins, then rounds of fresh scores for random players, to each contender in turn."""
    subject = stand.subject
    ours = Series()
    processor_ns: list[float] = []
    with ExitStack() as stack:
        sqlite = stack.enter_context(SqliteAlone(stand.folder / "sqlite"))
        sides = _redis_sides(stand, stack) if with_redis else []
        joining_ns = _join(stand, sides)
        before = subject.events
        for _ in range(stand.scale.rounds):
            events = stand.events()
            turn = stand.turn(partial(subject.submit_columns, stand.columns(events)))
            ours.add(RANKD, turn.ns_per_event)
            processor_ns.append(turn.processor_ns / len(events))
            timed = stand.turn(partial(sqlite.insert, events, stand.batch_rows)).timed
            ours.add(SQLITE, timed.ns_per_operation, timed.checksum)
            for side in sides:
                side.series.add(RANKD, turn.ns_per_event)
                side.update(stand, events)
        ours.checksums[RANKD] = subject.score_sum(before)
        sample = stand.sample()
        for side in sides:
            side.series.checksums = {RANKD: subject.places(sample), REDIS: side.sets.places(sample)}
    extra = {
        **rates(ours),
        "share_of_sqlite_alone": median(ours.samples[SQLITE]) / median(ours.samples[RANKD]),
        "desired_ns_per_event": DESIRED_NS_PER_EVENT,
        "joining_ns_per_event": joining_ns,
        "processor_ns_per_event": median(processor_ns),
        **shares_of(lambda: subject.submit_columns(stand.columns(stand.events()))),
    }
    note = f"{stand.batch_rows:,} events a batch; sqlite: the same rows into its table and nothing else"
    yield stand.row(ours, "embedded_submit_many", EVENT, extra, note)
    for side in sides:
        yield side.row(stand)


def _redis_sides(stand: Stand, stack: ExitStack) -> list[RedisSide]:
    server = stack.enter_context(running_redis(append_only=True, parent=stand.folder))
    return [
        RedisSide(server, stack.enter_context(FiveSets(server, name)), raw=raw)
        for name, raw in (("client", False), ("raw", True))
    ]


def _join(stand: Stand, sides: list[RedisSide]) -> float:
    """Put everybody on every board, and return what that took us, in ns per event."""
    elapsed_ns = 0
    for events in stand.subject.workload.joining(stand.batch_rows):
        elapsed_ns += stand.subject.submit_columns([columns_of(events)]).elapsed_ns
        for side in sides:
            side.sets.join(events)
    return elapsed_ns / stand.subject.workload.players

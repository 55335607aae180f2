"""What stands beside the embedded library: Redis with its log on, SQLite alone, and a bare append with a sync.

Redis gets the same events into five sorted sets, five ZADDs an event, and syncs once a second where we sync before we
answer. Two copies, since a ZADD that changes nothing is cheap: one written by redis-py's pipelines, as applications
do, the other by commands encoded beforehand over a raw socket, the least a client can do.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import redis

from benchmarks.contender import Timed
from benchmarks.embedded_subject import BEGIN_MS, WINDOWS, columns_of
from benchmarks.redis_server import Pipeline, RawConnection, RedisServer, integers
from benchmarks.rivals import CALL_WAIT_S, zadd
from benchmarks.workload import Events
from rankd.ledger.event import NO_SEAL
from rankd.ledger.sqlite.database import Database
from rankd.ledger.sqlite.rows import insert_rows

CLIENT_EVENTS = 1_000  # a pipeline of redis-py: 5,000 commands
APPEND_BYTES = 64


class FiveSets:
    """A sorted set a window in a running server, under names of its own."""

    def __init__(self, server: RedisServer, name: str) -> None:
        self._keys = [f"{name}:{window}" for window in WINDOWS]
        self._raw = RawConnection(server.port)
        self._client: Any = redis.Redis(port=server.port, socket_timeout=CALL_WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.__exit__()
        self._client.close()

    def join(self, events: Events) -> None:
        integers(self._raw.exchange([zadd(key, events) for key in self._keys]))

    def update_by_client(self, events: Events) -> Timed:
        """Write through redis-py's pipelines."""
        rows = columns_of(events).rows()
        added = 0
        began_ns = time.perf_counter_ns()
        for first in range(0, len(rows), CLIENT_EVENTS):
            pipeline = self._client.pipeline(transaction=False)
            for player, score in rows[first : first + CLIENT_EVENTS]:
                entry = {player: score}
                for key in self._keys:
                    pipeline.zadd(key, entry)
            added += sum(pipeline.execute())
        return Timed(len(rows), time.perf_counter_ns() - began_ns, added)

    def update_raw(self, events: Events, batch_rows: int) -> Timed:
        """Write the same commands, encoded beforehand."""
        pipelines = [self._encoded(some) for some in events.batches(batch_rows)]
        began_ns = time.perf_counter_ns()
        replies = self._raw.exchange(pipelines)
        elapsed_ns = time.perf_counter_ns() - began_ns
        return Timed(len(events), elapsed_ns, sum(integers(replies)))

    def _encoded(self, events: Events) -> Pipeline:
        heads = [f"*4\r\n$4\r\nZADD\r\n${len(key)}\r\n{key}\r\n" for key in self._keys]
        tails = [
            f"${len(score)}\r\n{score}\r\n${len(player)}\r\n{player}\r\n"
            for score, player in zip(map(str, events.scores.tolist()), events.ids(), strict=True)
        ]
        encoded = "".join([head + tail for tail in tails for head in heads])
        return Pipeline(encoded.encode("ascii"), len(heads) * len(tails))

    def places(self, players: Sequence[str]) -> int:
        """Sum up scores and competition ranks (one more than there are better scores) in every window."""
        total = 0
        for key in self._keys:
            scores = [int(score) for score in self._client.zmscore(key, players)]
            pipeline = self._client.pipeline(transaction=False)
            for score in scores:
                pipeline.zcount(key, f"({score}", "+inf")
            total += sum(scores) + sum(pipeline.execute()) + len(scores)
        return total


class SqliteAlone:
    """The same rows into the same table by the same statements, a transaction a batch, and nothing else.

    The log is moved into the file outside of the clock: what is timed is the least that a ledger on SQLite can cost.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._database = Database(folder)
        self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def insert(self, events: Events, batch_rows: int) -> Timed:
        """Insert the events; the checksum is the sum of the scores, read back."""
        batches = [_ledger_columns(some) for some in events.batches(batch_rows)]
        before = self._last
        elapsed_ns = 0
        for columns in batches:
            began_ns = time.perf_counter_ns()
            with self._database.writing() as writer:
                insert_rows(writer, self._last + 1, columns, details=None, sealed=NO_SEAL)
            elapsed_ns += time.perf_counter_ns() - began_ns
            self._last += len(columns[0])
        self._database.checkpoint()
        with self._database.reading() as reader:
            total = reader.execute("SELECT total(score) FROM events WHERE sequence > ?", (before,)).get
        return Timed(len(events), elapsed_ns, int(total))


def _ledger_columns(events: Events) -> list[array[int]]:
    """Make the columns context, at, player, score and tiebreak."""
    count = len(events)
    numbers = array("q", (events.numbers + 1).tobytes())
    return [
        array("q", [1]) * count,
        array("q", [BEGIN_MS]) * count,
        numbers,
        array("q", events.scores.tobytes()),
        array("q", bytes(8 * count)),
    ]


@contextmanager
def bare_append(folder: Path) -> Iterator[BareAppend]:
    """Append to a file of its own for as long as the block lasts."""
    opened = os.open(folder / "append", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield BareAppend(opened)
    finally:
        os.close(opened)


class BareAppend:
    """The least that makes an event durable: 64 bytes at the end of a file, and a sync."""

    def __init__(self, opened: int) -> None:
        self._file = opened

    def append(self, times: int) -> Timed:
        line = bytes(APPEND_BYTES)
        write, sync, opened = os.write, os.fdatasync, self._file
        began_ns = time.perf_counter_ns()
        for _ in range(times):
            write(opened, line)
            sync(opened)
        return Timed(times, time.perf_counter_ns() - began_ns, times)

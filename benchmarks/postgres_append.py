"""The ledger on PostgreSQL beside a bare COPY of the same rows, and how fast it is read again.

    append   draft → partitions → one call → numbered, durable    rival: COPY of rows numbered and encoded beforehand
    replay   everything there is → runs of events               rival: the same rows sent by COPY, and not looked at

The rival has a table of its own, not partitioned, with the same columns and the same indexes, in the same server and by
turns. Every commit is synced to disk, of both. It numbers nothing, checks nothing and finds nobody's partition.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from operator import itemgetter
from struct import Struct

import psycopg
from tests.servers.postgres import running_postgres

from benchmarks.contender import without_garbage_collection
from benchmarks.disk import folder_on_disk
from benchmarks.figures import COPY, RANKD, Row, Scale, Series
from benchmarks.workload import Events, Workload
from rankd.domain.partition import partition_of
from rankd.ledger.event import AcceptanceContext, Context, EventKind, EventRun
from rankd.ledger.port import Draft
from rankd.ledger.postgres import PARTITIONS, PostgresLedger, migrate

EVENT = "ns_per_event"
AT = 1_777_896_000_000
CONTEXT = Context(EventKind.SCORE, "bench", "bench", {"bench": AcceptanceContext(1)})
# Few checkpoints in a run this short, as on a server that was set up for it; else as it comes.
SETTINGS = ("max_wal_size=4GB", "shared_buffers=256MB")
REPLAY_EVENTS = 50_000  # read at a time
BARE = """
CREATE TABLE bare (LIKE events);
ALTER TABLE bare ADD PRIMARY KEY (partition, sequence, committed);
CREATE INDEX bare_by_player ON bare (player, sequence)
"""
CHECKSUM = """
SELECT count(*), coalesce(sum(hashtextextended(
  concat_ws(',', partition, sequence, context, at, player, score, tiebreak), 0)::numeric), 0) % 2::numeric ^ 62 FROM
"""
_COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END = b"\xff\xff"
# Ten columns, each with its length: partition, sequence, committed, context, at, player; score, tiebreak, two nulls.
_BEFORE_PLAYER = Struct(">hihiqiqiiiqi")
_BEHIND_PLAYER = Struct(">iqiqii")


def postgres_rows(scale: Scale) -> Iterator[Row]:
    """Appends of ordinary and of large batches, then a replay of everything."""
    with folder_on_disk() as folder:
        folder.chmod(0o711)  # the server has a user of its own
        with running_postgres(SETTINGS, parent=folder) as server:
            migrate(server.url(), now=AT)
            stand = Stand(scale, PostgresLedger(server.url()))
            try:
                stand.fill()
                yield stand.append_row("scaled_append", scale.scaled_batch_events)
                yield stand.append_row("scaled_append_large", scale.scaled_batch_events * 10)
                yield stand.replay_row()
            finally:
                stand.close()


class Stand:
    """A ledger, a bare table beside it, and the same events for both."""

    def __init__(self, scale: Scale, ledger: PostgresLedger) -> None:
        self._scale = scale
        self._ledger = ledger
        self._context = ledger.number_context(CONTEXT)
        self._workload = Workload(scale.scaled_players)
        self._sequences = [0] * PARTITIONS  # of the bare table
        self._using = ledger.connections.using()
        self._bare = self._using.__enter__()
        self._bare.execute(BARE)

    def close(self) -> None:
        self._using.__exit__(None, None, None)
        self._ledger.close()

    def fill(self) -> None:
        """Let both have some rows: an index that is empty costs nothing."""
        for events in self._workload.updates(self._scale.scaled_rows_before).batches(10_000):
            self._append(events)
            self._copy(self._encoded(events))
        self._bare.execute("CHECKPOINT")

    def append_row(self, name: str, batch_events: int) -> Row:
        """Append batches by turns with the rival."""
        series, scale = Series(), self._scale
        for _ in range(scale.rounds):
            spent_ns = {RANKD: 0, COPY: 0}
            events = self._workload.updates(max(scale.scaled_events, batch_events))
            with without_garbage_collection():
                for number, batch in enumerate(events.batches(batch_events)):
                    encoded = self._encoded(batch)
                    if number % 2:  # nobody is always the second
                        spent_ns[RANKD] += self._append(batch)
                    spent_ns[COPY] += self._copy(encoded)
                    if not number % 2:
                        spent_ns[RANKD] += self._append(batch)
            for contender, spent in spent_ns.items():
                series.add(contender, spent / len(events))
        for contender, table in ((RANKD, "events"), (COPY, "bare")):
            series.checksums[contender] = self._checksum(table)
        rates = {f"{contender}_events_per_s": 1e9 / min(samples) for contender, samples in series.samples.items()}
        note = f"batches of {batch_events:,}, synced"
        return series.row(name, scale.scaled_players, EVENT, rates, note, judged=not scale.smoke)

    def replay_row(self) -> Row:
        """Read everything, by turns with a rival who does not look at it."""
        series, scale = Series(), self._scale
        for _ in range(scale.rounds):
            with without_garbage_collection():
                events, spent_ns = self._replay()
                series.add(RANKD, spent_ns / events)
                series.add(COPY, self._copy_out() / events)
        rates = {f"{contender}_events_per_s": 1e9 / min(samples) for contender, samples in series.samples.items()}
        return series.row("scaled_replay", scale.scaled_players, EVENT, rates, judged=not scale.smoke)

    def _append(self, events: Events) -> int:
        count = len(events)
        at = array("q", [AT]) * count
        zeros = array("q", bytes(8 * count))
        event_run = EventRun(self._context, at, zeros, array("q", events.scores.tobytes()), zeros, events.ids())
        draft = Draft([event_run], AT, 0)
        began = time.perf_counter_ns()
        self._ledger.append(draft)
        return time.perf_counter_ns() - began

    def _encoded(self, events: Events) -> bytes:
        """Return the rows as COPY takes them, in the order and with the numbers that the ledger gives them."""
        rows = zip(events.ids(), events.scores.tolist(), strict=True)
        placed = sorted(((partition_of(row[0], PARTITIONS), *row) for row in rows), key=itemgetter(0))
        parts = [_COPY_HEADER]
        for partition, player, score in placed:
            self._sequences[partition] += 1
            sequence, name = self._sequences[partition], player.encode()
            parts.append(_BEFORE_PLAYER.pack(10, 2, partition, 8, sequence, 8, AT, 4, self._context, 8, AT, len(name)))
            parts.append(name)
            parts.append(_BEHIND_PLAYER.pack(8, score, 8, 0, -1, -1))
        parts.append(_COPY_END)
        return b"".join(parts)

    def _copy(self, rows: bytes) -> int:
        began = time.perf_counter_ns()
        with self._bare.cursor().copy("COPY bare FROM STDIN (FORMAT binary)") as copy:
            copy.write(rows)
        return time.perf_counter_ns() - began

    def _checksum(self, table: str) -> int:
        rows, summed = self._bare.execute(CHECKSUM + table).fetchone() or (0, 0)
        return int(rows) + int(summed)

    def _replay(self) -> tuple[int, int]:
        began = time.perf_counter_ns()
        after, events = [0] * PARTITIONS, 0
        while parts := self._ledger.read(after, REPLAY_EVENTS):
            for part in parts:
                after[part.partition] += len(part.event_run)
                events += len(part.event_run)
        return events, time.perf_counter_ns() - began

    def _copy_out(self) -> int:
        asked = psycopg.sql.SQL("COPY (SELECT * FROM bare ORDER BY partition, sequence) TO STDOUT (FORMAT binary)")
        began = time.perf_counter_ns()
        with self._bare.cursor().copy(asked) as copy:
            for _ in copy:
                pass
        return time.perf_counter_ns() - began

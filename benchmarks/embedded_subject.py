"""The contender under test, whole: `rankd.open` on a data folder, one board in five windows, every event synced."""

from __future__ import annotations

import shutil
import threading
import time
from array import array
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import apsw

import rankd
from benchmarks.contender import Timed
from benchmarks.disk import bytes_below
from benchmarks.workload import Events, Workload
from rankd.ledger.sqlite.database import FILE_NAME
from rankd.node.open_embedded import embedded_of

BOARD = "bench"
WINDOWS = ("all_time", "monthly", "weekly", "daily", "hourly")
SAMPLE_PLAYERS = 1_000
# The start of an hour, in the middle of a day, a week and a month.
BEGIN_MS = int(datetime(2026, 9, 16, 10, tzinfo=UTC).timestamp() * 1_000)


class SteadyClock(rankd.SystemClock):
    """The machine's clock, set to the start of an hour: no window ends in the middle of a round."""

    def __init__(self) -> None:
        self._ahead_ms = super().now() - BEGIN_MS

    def now(self) -> int:
        return time.time_ns() // 1_000_000 - self._ahead_ms  # one function, as the machine's clock has


class Columns(NamedTuple):
    """A batch as `submit_many` takes it."""

    players: list[str]
    scores: array[int]

    def rows(self) -> list[tuple[str, int]]:
        return list(zip(self.players, self.scores, strict=True))


def columns_of(events: Events) -> Columns:
    return Columns(events.ids(), array("q", events.scores.tobytes()))


REST_S_MAX = 300.0
REST_POLL_S = 0.1


def rest(boards: rankd.Boards) -> None:
    """Let upkeep finish what the events so far left it to do: a snapshot, and the index by player."""
    boards.snapshot()
    wait_for_index(boards)


def wait_for_index(boards: rankd.Boards) -> None:
    """Let upkeep finish the index by player, which it writes as soon as no events come."""
    index = embedded_of(boards)._sqlite.player_index
    deadline = time.monotonic() + REST_S_MAX
    while index.behind(embedded_of(boards)._ranks.events) > 0 and time.monotonic() < deadline:
        time.sleep(REST_POLL_S)


class Embedded:
    """The library on a folder; a batch's columns are made before the clock starts, fresh for each batch."""

    def __init__(self, folder: Path, players: int) -> None:
        self.folder = folder
        self.workload = Workload(players)
        self._clock = SteadyClock()
        self.boards = rankd.open(folder, clock=self._clock)
        self.boards.define(BOARD, keep="latest", windows=list(WINDOWS))

    @property
    def commits(self) -> int:
        return embedded_of(self.boards).writer.commits

    @property
    def events(self) -> int:
        """How many the ledger holds, definitions included."""
        return embedded_of(self.boards)._ranks.events

    def rest(self) -> None:
        rest(self.boards)

    def wait_for_index(self) -> None:
        wait_for_index(self.boards)

    def submit_columns(self, batches: Iterable[Columns]) -> Timed:
        """Submit batch after batch; the checksum is how many events were acknowledged."""
        submit_many = self.boards.submit_many
        elapsed_ns = acknowledged = 0
        for players, scores in batches:
            began_ns = time.perf_counter_ns()
            answer = submit_many(BOARD, players=players, scores=scores)
            elapsed_ns += time.perf_counter_ns() - began_ns
            acknowledged += answer.count
        return Timed(acknowledged, elapsed_ns, acknowledged)

    def submit_each(self, events: Events) -> Timed:
        """Submit one event a call; the checksum is how many changed what is kept."""
        submit = self.boards.submit
        rows = columns_of(events).rows()
        began_ns = time.perf_counter_ns()
        answers = [submit(BOARD, player, score) for player, score in rows]
        elapsed_ns = time.perf_counter_ns() - began_ns
        return Timed(len(rows), elapsed_ns, sum(answer.changed for answer in answers))

    def submit_from_threads(self, parts: Sequence[Events]) -> Timed:
        """Submit one event a call, each part in a thread of its own, from when all are ready until the last is done."""
        submit = self.boards.submit
        ready = threading.Barrier(len(parts) + 1)

        def work(rows: list[tuple[str, int]]) -> int:
            ready.wait()
            return sum(submit(BOARD, player, score).changed for player, score in rows)

        with ThreadPoolExecutor(len(parts)) as threads:
            working = [threads.submit(work, columns_of(part).rows()) for part in parts]
            ready.wait()
            began_ns = time.perf_counter_ns()
            changed = sum(worker.result() for worker in working)
            elapsed_ns = time.perf_counter_ns() - began_ns
        return Timed(sum(map(len, parts)), elapsed_ns, changed)

    def places(self, players: Sequence[str]) -> int:
        """Sum up scores and competition ranks of some players in every window."""
        total = 0
        for window in WINDOWS:
            page = self.boards.ranks(BOARD, players, window=window, ranking="competition")
            total += sum(entry.rank + entry.score for entry in page.entries)
        return total

    def score_sum(self, after: int) -> int:
        """Sum up the scores the ledger holds after an event, as another reader of the file sees them."""
        with closing(self._reader()) as reader:
            return int(reader.execute("SELECT total(score) FROM events WHERE sequence > ?", (after,)).get)

    def open_again(self, *, with_snapshot: bool) -> rankd.Started:
        """Close the folder if it is open, open it again, and return what that did."""
        self.boards.close()
        if not with_snapshot:
            shutil.rmtree(self.folder / "snapshots")
        self.boards = rankd.open(self.folder, clock=self._clock, progress=lambda _done, _all: None)
        started = self.boards.started
        if with_snapshot != (started.snapshot is not None):
            raise RuntimeError(f"opened with{'' if started.snapshot else 'out'} a snapshot, which was not asked for")
        return started

    def close(self) -> None:
        self.boards.close()

    # On disk, once it is closed

    def ledger_bytes(self) -> int:
        return (self.folder / FILE_NAME).stat().st_size

    def table_bytes(self) -> dict[str, int]:
        """Return the bytes of each table and index of the ledger."""
        with closing(self._reader()) as reader:
            rows: list[Any] = reader.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall()
        return dict(rows)

    def _reader(self) -> apsw.Connection:
        return apsw.Connection(str(self.folder / FILE_NAME), flags=apsw.SQLITE_OPEN_READONLY)

    def snapshot_bytes(self) -> int:
        """Return the bytes of the newest snapshot."""
        return bytes_below(max((self.folder / "snapshots").iterdir()))

"""New players joining the embedded library, until there are ten million; minutes, and asked for by name.

    everybody sends a first score, in columns → how long the index of ids lags → the same ids into SQLite alone

The rival is the least that gives each id a number of its own: a table in SQLite with a unique index, a synced
transaction a batch. It ranks nothing and keeps no events.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw

from benchmarks.contender import Timed
from benchmarks.disk import folder_on_disk
from benchmarks.embedded_stand import EVENT, rates
from benchmarks.embedded_subject import BOARD, Embedded, columns_of
from benchmarks.figures import RANKD, SQLITE, Row, Scale, Series
from benchmarks.workload import Workload
from rankd.ledger.sqlite.database import CACHE_KIB
from rankd.node.open_embedded import embedded_of

SEARCH_LIMIT = 20
SEARCHES = 20
INDEXED_S_MAX = 300.0
INDEXED_POLL_S = 0.01


class IndexedIds:
    """Ids in a table of SQLite that keeps them sorted and apart."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", "full")
        self._connection.pragma("cache_size", -CACHE_KIB)
        self._connection.execute("CREATE TABLE players (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE) STRICT")

    def join(self, players: list[str]) -> None:
        with self._connection:
            self._connection.executemany("INSERT INTO players (id) VALUES (?)", ((player,) for player in players))

    def count(self) -> int:
        counted: int = self._connection.execute("SELECT count(*) FROM players").get
        return counted

    def close(self) -> None:
        self._connection.close()


def join_rows(scale: Scale) -> Iterator[Row]:
    """One row: what a new player costs, on average over all of them."""
    players = scale.join_players
    series = Series()
    with folder_on_disk() as folder:
        with closing(Embedded(folder / "data", players)) as subject:
            began_ns = time.process_time_ns()
            timed = _join(subject, scale.embedded_batch_rows)
            processor_ns = time.process_time_ns() - began_ns
            indexed_s = _wait_for_ids(subject)
            searched_ns = _search(subject)
            series.add(RANKD, timed.ns_per_operation, subject.boards.top(BOARD, 1).total)
        with closing(IndexedIds(folder / "ids.db")) as rival:
            spent_ns = _join_rival(rival, players, scale.embedded_batch_rows)
            series.add(SQLITE, spent_ns / players, rival.count())
    extra = {
        **rates(series),
        "processor_ns_rankd": processor_ns / players,
        "indexed_after_s": indexed_s,
        "search_ns": searched_ns,
    }
    note = "sqlite: the ids alone into a table with a unique index, a synced transaction a batch"
    yield series.row("embedded_join", players, EVENT, extra, note, judged=not scale.smoke)


def _join(subject: Embedded, batch_rows: int) -> Timed:
    return subject.submit_columns(columns_of(events) for events in subject.workload.joining(batch_rows))


def _join_rival(rival: IndexedIds, players: int, batch_rows: int) -> int:
    spent_ns = 0
    for events in Workload(players).joining(batch_rows):
        ids = events.ids()
        began_ns = time.perf_counter_ns()
        rival.join(ids)
        spent_ns += time.perf_counter_ns() - began_ns
    return spent_ns


def _wait_for_ids(subject: Embedded) -> float:
    """Wait until all whole chunks of ids are indexed, and return how long that took."""
    ids = embedded_of(subject.boards)._sqlite.player_ids
    began = time.monotonic()
    while ids.is_behind() and time.monotonic() - began < INDEXED_S_MAX:
        time.sleep(INDEXED_POLL_S)
    return time.monotonic() - began


def _search(subject: Embedded) -> float:
    """Return the time of a search by a prefix of an id, the players' own."""
    prefixes = [player[:-2] for player in subject.workload.ids(SEARCHES)]
    began_ns = time.perf_counter_ns()
    for prefix in prefixes:
        if not subject.boards.search(prefix, SEARCH_LIMIT):
            raise RuntimeError(f"a search for {prefix} found nobody")
    return (time.perf_counter_ns() - began_ns) / len(prefixes)

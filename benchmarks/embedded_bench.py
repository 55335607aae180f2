"""The embedded library as people use it: every event synced to disk and ranked in five windows when the call returns.

    join → columns (rivals in turn) → 64 threads → one thread → close, open, replay → readers

One board with the default rules but keep = latest, so that every event changes its score in every window.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from hashlib import sha256
from itertools import cycle
from statistics import median
from typing import TypeVar

from benchmarks.contender import Call, Timed, without_garbage_collection
from benchmarks.disk import file_system_of, folder_on_disk
from benchmarks.embedded_columns import column_rows
from benchmarks.embedded_rivals import bare_append
from benchmarks.embedded_stand import EVENT, Stand, rates, shares_of
from benchmarks.embedded_subject import BOARD, Columns, Embedded
from benchmarks.figures import APPEND, RANKD, Row, Scale, Series
from benchmarks.reader_bench import READ_PLAYERS, SWITCH_S, Watched, Writer, watch, watched_figures
from benchmarks.shares import measured_shares
from rankd.node.open_embedded import embedded_of

Batch = TypeVar("Batch")

# No common divisor: each time a list of players comes round, it meets other scores.
RING_PLAYERS, RING_SCORES = 10, 3
PLAYER_TABLES = {"players", "player_ids"}
BUSY_BYTES = 16 << 20  # hashed in some ten milliseconds, about a batch


def embedded_rows(scale: Scale, with_redis: bool) -> Iterator[Row]:
    """All rows of one size but those that need a huge board."""
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        subject = Embedded(folder / "data", scale.embedded_players)
        stack.callback(subject.close)
        stand = Stand(scale, subject, folder)
        yield from column_rows(stand, with_redis)
        yield _thread_row(stand)
        yield _single_row(stand)
        yield from _reopened_rows(stand)
        yield from _reader_rows(stand)


# One event a call


def _thread_row(stand: Stand) -> Row:
    scale, subject = stand.scale, stand.subject

    def once() -> Timed:
        calls = scale.embedded_thread_calls
        return subject.submit_from_threads([subject.workload.updates(calls) for _ in range(scale.embedded_threads)])

    series = Series()
    commits, events = subject.commits, 0
    for _ in range(scale.rounds):
        timed = stand.turn(once).timed
        series.add(RANKD, timed.ns_per_operation)
        events += timed.operations
    extra = {**rates(series), "commits_per_event": (subject.commits - commits) / events, **shares_of(once)}
    return stand.row(series, "embedded_submit_threads", EVENT, extra, f"{scale.embedded_threads} threads")


def _single_row(stand: Stand) -> Row:
    """One thread, by turns with a bare append: few calls a turn, so that both meet the same disk."""
    scale, subject = stand.scale, stand.subject
    calls = scale.embedded_calls_a_turn
    series = Series()
    with bare_append(stand.folder) as bare:
        for _ in range(scale.rounds):
            spent_ns = {RANKD: 0, APPEND: 0}
            with without_garbage_collection():
                for _ in range(scale.embedded_calls // calls):
                    spent_ns[APPEND] += bare.append(calls).elapsed_ns
                    spent_ns[RANKD] += subject.submit_each(subject.workload.updates(calls)).elapsed_ns
            for side, ns in spent_ns.items():
                series.add(side, ns / scale.embedded_calls)
    extra = {**rates(series), **shares_of(lambda: subject.submit_each(subject.workload.updates(calls)))}
    note = f"one thread; append: 64 bytes and fdatasync on the same {file_system_of(stand.folder)}"
    return stand.row(series, "embedded_submit", EVENT, extra, note)


# Closed and opened again


def _reopened_rows(stand: Stand) -> Iterator[Row]:
    """What is on disk, and how fast it is ranked again: from the snapshot, and from the events alone."""
    subject, rounds = stand.subject, min(stand.scale.rounds, stand.scale.load_rounds_max)
    sample = stand.sample()
    before = subject.places(sample)
    subject.close()
    yield from disk_rows(subject, subject.events, judged=not stand.scale.smoke)
    opened, replayed = Series(), Series()
    events = subject.events
    for _ in range(rounds):
        opened.add(RANKD, subject.open_again(with_snapshot=True).seconds)
        check_places(subject, sample, before)
        started = subject.open_again(with_snapshot=False)
        check_places(subject, sample, before)
        replayed.add(RANKD, started.seconds * 1e9 / started.replayed)
    shares = opening_shares(subject, with_snapshot=True)
    yield stand.row(opened, "embedded_open", "seconds", shares, "from a snapshot, nothing to replay")
    extra = {**rates(replayed), **opening_shares(subject, with_snapshot=False)}
    yield stand.row(replayed, "embedded_replay", EVENT, extra, f"{events:,} events, no snapshot")


def opening_shares(subject: Embedded, *, with_snapshot: bool) -> dict[str, float]:
    """Open once more, timed part by part."""
    subject.close()
    with measured_shares() as shares:
        started = subject.open_again(with_snapshot=with_snapshot)
    return shares.figures(int(started.seconds * 1e9))


def disk_rows(subject: Embedded, events: int, *, judged: bool) -> Iterator[Row]:
    """What a closed folder takes on disk."""
    players = subject.workload.players
    tables = subject.table_bytes()
    people = sum(taken for name, taken in tables.items() if name in PLAYER_TABLES)
    ledger = Series({RANKD: [subject.ledger_bytes() / events]})
    extra = {"events_bytes_per_event": tables["events"] / events, "players_bytes_per_player": people / players}
    yield ledger.row(
        "embedded_ledger_bytes", players, "bytes_per_event", extra, f"ledger.db of {events:,} events", judged=judged
    )
    snapshot = Series({RANKD: [subject.snapshot_bytes() / players]})
    yield snapshot.row("embedded_snapshot_bytes", players, "bytes_per_player", note="five windows", judged=judged)


def check_places(subject: Embedded, sample: list[str], before: int) -> None:
    """Refuse figures of a folder that does not open to what it was."""
    if subject.places(sample) != before:
        raise RuntimeError("the board opened again is not the one that was closed: places differ")


# Readers


def _reader_rows(stand: Stand) -> Iterator[Row]:
    """One reader beside a writer at full rate; Python's own switch interval, as an application has it."""
    python_s = sys.getswitchinterval()
    ring = _ring(stand)
    stand.subject.submit_columns(ring)  # a folder just opened has yet to meet its players
    yield _reader_row(stand, "embedded_reader_p99", _column_writer(stand, ring), python_s)
    yield _reader_row(stand, "embedded_reader_p99_tuples", _tuple_writer(stand, ring), python_s)
    yield _reader_row(stand, "embedded_reader_p99_short_switch", _column_writer(stand, ring), SWITCH_S)


def _reader_row(stand: Stand, name: str, write: Writer, switch_s: float) -> Row:
    scale, boards = stand.scale, stand.subject.boards
    store = embedded_of(boards).rank_store
    call = Call(lambda player: boards.rank(BOARD, player), lambda standing: int(standing.rank))
    series = Series()
    rounds: list[Watched] = []
    idle: list[Watched] = []
    busy: list[Watched] = []
    store.forget_waits()
    for _ in range(min(scale.rounds, scale.reader_rounds_max)):
        players = stand.subject.workload.ids(READ_PLAYERS)
        idle.append(watch(call, _nothing, players, scale.reader_s, switch_s))
        busy.append(watch(call, _threads, players, scale.reader_s, switch_s))
        rounds.append(watch(call, write, players, scale.reader_s, switch_s))
        series.add(RANKD, rounds[-1].p99_ns)
    inside = store.longest_waits()
    extra = {
        "switch_interval_s": switch_s,
        "without_a_writer_p99_ns": median(watched.p99_ns for watched in idle),
        "beside_a_busy_thread_p99_ns": median(watched.p99_ns for watched in busy),
        "engine_wait_max_ns": float(inside.reader_ns),
        "engine_work_max_ns": float(inside.work_ns),
        **watched_figures(RANKD, rounds),
    }
    return stand.row(series, name, "ns_p99", extra, f"writer: {stand.batch_rows:,} events a batch, no pause")


def _nothing(stop: threading.Event) -> int:
    """Write nothing: what the reader waits then is the machine's doing."""
    stop.wait()
    return 0


def _threads(stop: threading.Event) -> int:
    """Keep a processor busy with something that is not ours and needs no interpreter: what a reader waits then, too."""
    some = bytes(BUSY_BYTES)
    while not stop.is_set():
        sha256(some)
    return 0


def _column_writer(stand: Stand, ring: Sequence[Columns]) -> Writer:
    submit_many = stand.subject.boards.submit_many
    return _writer(ring, lambda batch: submit_many(BOARD, players=batch.players, scores=batch.scores).count)


def _tuple_writer(stand: Stand, ring: Sequence[Columns]) -> Writer:
    submit_many = stand.subject.boards.submit_many
    return _writer([batch.rows() for batch in ring], lambda rows: submit_many(BOARD, rows).count)


def _ring(stand: Stand) -> list[Columns]:
    """Make batches to go round for as long as a writer likes: every event changes a score every time."""
    workload, rows = stand.subject.workload, stand.batch_rows
    players = [workload.ids(rows) for _ in range(RING_PLAYERS)]
    scores = [array("q", workload.scores(rows).tobytes()) for _ in range(RING_SCORES)]
    turns = range(RING_PLAYERS * RING_SCORES)
    return [Columns(players[turn % RING_PLAYERS], scores[turn % RING_SCORES]) for turn in turns]


def _writer(ring: Sequence[Batch], submit: Callable[[Batch], int]) -> Writer:
    def write(stop: threading.Event) -> int:
        written = 0
        for batch in cycle(ring):
            if stop.is_set():
                break
            written += submit(batch)
        return written

    return write

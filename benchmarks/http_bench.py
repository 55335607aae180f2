"""The service over HTTP, everything on, beside a handler that does nothing.

    load (library) → serve → answers as the library's → memory → rounds of reads → a minute at a fixed rate
    → rounds of single scores → rounds of batches → places as the library's on the same folder

Batches come last: they leave upkeep a snapshot and an index to write, which would be on everybody else's account.

A cost is time per request as a closed loop of connections sees it; a ratio is the share of the bare handler's rate.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx

import rankd
from benchmarks.disk import file_system_of, folder_on_disk
from benchmarks.figures import BARE, BARE_OWN, BARE_POST, LIBRARY, PLAIN, RANKD, Row, Scale, Series
from benchmarks.http_check import ANSWER_WAIT_S, READS, http_places, http_reads, library_places, load, position, sample
from benchmarks.http_memory import Held, library_alone
from benchmarks.http_servers import HttpServer, running_bare, running_rankd
from benchmarks.http_sustained import sustained_rows
from benchmarks.http_wrk import BOARD, COUNTRIES, Wrk, WrkResult

READ_CONNECTIONS = 32
WRITE_CONNECTIONS = 64
BATCH_CONNECTIONS = 8
BATCHES = {"http_batch": "batch_json", "http_batch_ndjson": "batch_ndjson", "http_batch_msgpack": "batch_msgpack"}
BATCH_SCOPES = "http_batch_scopes"
DESIRED = {"http_rank": 0.7}  # beyond the target, where we would like to be


@dataclass(slots=True)
class Measured:
    """One row while rounds go on: samples, and what wrk says beside them."""

    series: Series = field(default_factory=Series)
    failures: list[str] = field(default_factory=list)
    p99_us: dict[str, list[float]] = field(default_factory=dict)
    processor_ns: dict[str, list[float]] = field(default_factory=dict)  # of the server, per request or event


@dataclass(slots=True)
class HttpStand:
    """Two servers and a client, and how much is asked of them."""

    scale: Scale
    server: HttpServer
    bare: HttpServer
    bare_own: HttpServer
    wrk: Wrk
    rows: dict[str, Measured] = field(default_factory=dict)
    acknowledged: int = 0  # events

    def turn(
        self, side: str, question: str, connections: int, *names: str, with_key: bool = False, per: int = 1
    ) -> None:
        """Let one contender answer for a while; what it costs goes to the rows of these names, per so many events."""
        server = {RANKD: self.server, PLAIN: self.server, BARE_OWN: self.bare_own}.get(side, self.bare)
        began_ns = server.processor_ns()
        result = self.wrk.ask(question, server.url, connections, self.scale.http_turn_s, with_key=with_key)
        processor_ns = server.processor_ns() - began_ns
        problem = result.problem()
        if problem is not None:
            print(f"FAILED: {side}, {question}: {problem}", file=sys.stderr, flush=True)
        for name in names:
            row = self.rows.setdefault(name, Measured())
            if problem is not None:
                row.failures.append(f"{side}: {problem}")
                continue
            row.series.add(side, result.ns_per_request / per)
            row.p99_us.setdefault(side, []).append(result.p99_us)
            row.processor_ns.setdefault(side, []).append(processor_ns / result.requests / per)
        if server is self.server and question.startswith(("submit", "batch")):
            self.acknowledged += _fine(result) * per

    def read_round(self) -> None:
        """Everybody once; the bare handler before those who are held against it."""
        self.turn(BARE, "rank", READ_CONNECTIONS, "http_rank", "http_rank_with_key", "http_around", "http_top")
        self.turn(BARE_OWN, "rank", READ_CONNECTIONS, "http_rank")
        self.turn(RANKD, "rank", READ_CONNECTIONS, "http_rank")
        self.turn(RANKD, "rank", READ_CONNECTIONS, "http_rank_with_key", with_key=True)
        self.turn(RANKD, "around", READ_CONNECTIONS, "http_around")
        self.turn(RANKD, "top", READ_CONNECTIONS, "http_top")

    def write_round(self) -> None:
        self.turn(BARE, "rank", READ_CONNECTIONS, "http_submit", "http_submit_keyed")
        self._settle()
        self.turn(RANKD, "submit", WRITE_CONNECTIONS, "http_submit")
        self.turn(BARE_POST, "submit", WRITE_CONNECTIONS, "http_submit", "http_submit_keyed")
        self._settle()
        self.turn(RANKD, "submit_keyed", WRITE_CONNECTIONS, "http_submit_keyed")

    def batch_round(self) -> None:
        for name, question in BATCHES.items():
            self._settle()
            self.turn(RANKD, question, BATCH_CONNECTIONS, name, per=self.scale.http_batch_events)
        for side, question in ((PLAIN, "batch_json"), (RANKD, "batch_scopes")):
            self._settle()
            self.turn(side, question, BATCH_CONNECTIONS, BATCH_SCOPES, per=self.scale.http_batch_events)

    def _settle(self) -> None:
        """Leave the disk nothing to write for the one before."""
        if not self.scale.smoke:
            os.sync()

    def row(self, name: str, unit: str, note: str) -> Row:
        measured = self.rows[name]
        extra = {
            f"{side}_{'events' if unit == 'ns_per_event' else 'requests'}_per_second": 1e9 / median(samples)
            for side, samples in measured.series.samples.items()
        }
        extra |= {f"{side}_p99_us": median(samples) for side, samples in measured.p99_us.items()}
        bare_post, ours = measured.series.samples.get(BARE_POST), measured.series.samples.get(RANKD)
        if bare_post and ours:
            extra["share_of_bare_post"] = median(bare_post) / median(ours)
        extra |= {f"{side}_processor_{unit}": median(samples) for side, samples in measured.processor_ns.items()}
        if name in DESIRED:
            extra["desired_ratio"] = DESIRED[name]
        row = measured.series.row(name, self.scale.http_players, unit, extra, note, judged=not self.scale.smoke)
        row.failures = measured.failures
        return row


def http_rows(scale: Scale) -> Iterator[Row]:
    """All rows of the service."""
    with folder_on_disk() as folder:
        data = folder / "data"
        load(data, scale.http_players, scale.embedded_batch_rows, with_scopes=True)
        alone = library_alone(data, scale.http_players)
        yield from _served_rows(scale, folder, data, alone)


def _served_rows(scale: Scale, folder: Path, data: Path, alone: Held) -> Iterator[Row]:
    players = sample(scale.http_players)
    with ExitStack() as stack:
        server = stack.enter_context(running_rankd(data))
        token = (data / "admin.key").read_text().strip()
        client = stack.enter_context(
            httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=ANSWER_WAIT_S)
        )
        reads = http_reads(client, players)
        body_bytes = len(client.get(f"/v1/boards/{BOARD}/players/{players[0]}").content)
        wrk = Wrk(folder, scale.http_players, token, scale.http_batch_events, scale.http_answers_max)
        for read in READS:  # as many connections and as much memory as reads ever need
            wrk.ask(read, server.url, WRITE_CONNECTIONS, 1)
        held_bytes = server.resident_bytes()
        bare = stack.enter_context(running_bare(body_bytes, folder / "bare.log", "granian"))
        bare_own = stack.enter_context(running_bare(body_bytes, folder / "bare_own.log", "rankd"))
        stand = HttpStand(scale, server, bare, bare_own, wrk)
        before = position(client)
        rounds = range(min(scale.rounds, scale.http_rounds_max))
        for _ in rounds:
            stand.read_round()
        for read in READS:
            stand.rows[f"http_{read}"].series.checksums = {RANKD: reads[read], LIBRARY: alone.reads[read]}
        yield from _read_rows(stand, body_bytes)
        yield from sustained_rows(scale, server, token)
        for _ in rounds:
            stand.write_round()
        for _ in rounds:
            stand.batch_round()
        yield _memory_row(scale, held_bytes, server.resident_bytes(), alone)
        instances, places = http_places(client, players)
    again = _library_again(data, instances, players, before + stand.acknowledged)
    for name in ("http_submit", "http_submit_keyed", *BATCHES, BATCH_SCOPES):
        stand.rows[name].series.checksums = {RANKD: places, LIBRARY: again}
    yield from _write_rows(stand, data)


def _read_rows(stand: HttpStand, body_bytes: int) -> Iterator[Row]:
    bare = f"bare: a handler that answers {body_bytes} bytes, on Granian; bare_own: on rankd's server"
    yield stand.row("http_rank", "ns_per_request", f"random players, {READ_CONNECTIONS} connections; {bare}")
    yield stand.row("http_rank_with_key", "ns_per_request", "the same with an API key")
    yield stand.row("http_around", "ns_per_request", "ten around a random player; the same bare handler")
    yield stand.row("http_top", "ns_per_request", "the first ten; the same bare handler")


def _write_rows(stand: HttpStand, data: Path) -> Iterator[Row]:
    disk = f"five windows, durable on {file_system_of(data)}"
    note = f"{WRITE_CONNECTIONS} connections, {disk}; bare: GET as above; bare_post: reads the body"
    yield stand.row("http_submit", "ns_per_request", note)
    yield stand.row("http_submit_keyed", "ns_per_request", "the same with an Idempotency-Key")
    for name, question in BATCHES.items():
        media = question.removeprefix("batch_")
        note = f"{stand.scale.http_batch_events:,} events a batch as {media}, {BATCH_CONNECTIONS} connections, {disk}"
        yield stand.row(name, "ns_per_event", note)
    note = f"the same as json on a board with scopes = [country], {COUNTRIES} of them; plain: http_batch beside it"
    yield stand.row(BATCH_SCOPES, "ns_per_event", note)


def _memory_row(scale: Scale, held_bytes: int, after_bytes: int, alone: Held) -> Row:
    added = Series({RANKD: [float(held_bytes - alone.resident_bytes)]})
    extra = {
        "server_resident_bytes": float(held_bytes),
        "library_resident_bytes": float(alone.resident_bytes),
        "server_resident_bytes_after_rounds": float(after_bytes),
    }
    note = "the server's process after reads, minus a process that opened the folder with the library"
    return added.row("http_memory", scale.http_players, "bytes", extra, note, judged=not scale.smoke)


def _library_again(data: Path, instances: list[str], players: list[str], events_min: int) -> int:
    """Open the folder after the server let it go: all it acknowledged must be there, places as it answered."""
    with rankd.open(data) as boards:
        events = boards.figures().position
        if events < events_min:
            raise RuntimeError(f"the ledger holds {events:,} events, and {events_min:,} were acknowledged")
        return library_places(boards, instances, players)


def _fine(result: WrkResult) -> int:
    return result.requests - result.status

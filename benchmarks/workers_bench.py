"""Two workers on one folder beside one process on a copy of it, with the same client on the same machine.

    load (library) → copy → serve each → answers of each worker as the library's → rounds of reads, then of scores
    → scores through one worker, read from the other → memory of each worker

The client takes its part of the processors too. A page of 99 entries, compressed as browsers want it, costs the server
so much more than wrk that the client's share stays small beside one worker and beside two; each row says what it was.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import quantiles

import httpx
from tests.acceptance.workers_serving import WRITER, Workers, running_workers

import rankd
from benchmarks.disk import file_system_of, folder_on_disk
from benchmarks.figures import ONE_WORKER, RANKD, Row, Scale, Series
from benchmarks.http_check import http_reads, library_reads, load, sample
from benchmarks.http_servers import processor_ns_of, resident_bytes_of, running_rankd
from benchmarks.http_wrk import BOARD, Wrk

WORKERS = 2
CONNECTIONS = 32
GENERATOR_SHARE_MAX = 0.25  # of one processor, for a row that is judged


@dataclass(slots=True)
class Turns:
    """One row while rounds go on."""

    series: Series = field(default_factory=Series)
    failures: list[str] = field(default_factory=list)
    extra: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Side:
    """A server, of one process or of several."""

    url: str
    processes: Sequence[int | None]

    def processor_ns(self) -> int:
        """The processor time of all its workers: what a request costs, however many others use the machine."""
        return sum(processor_ns_of(process) for process in self.processes if process is not None)


def worker_rows(scale: Scale) -> Iterator[Row]:
    """All rows of workers."""
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        data, alone = folder / "several" / "data", folder / "one" / "data"
        load(data, scale.http_players, scale.embedded_batch_rows)
        players = sample(scale.http_players)
        with rankd.open(data) as boards:
            answers = sum(library_reads(boards, players).values())
        shutil.copytree(data, alone)
        workers = stack.enter_context(running_workers(data, WORKERS))
        lone = stack.enter_context(running_rankd(alone))
        sides = {
            RANKD: Side(workers.serving.url, [*map(workers.process, range(WORKERS))]),
            ONE_WORKER: Side(lone.url, [lone.process.pid]),
        }
        wrks = {
            RANKD: Wrk(folder / "several", scale.http_players, workers.serving.admin_key, 1, scale.http_answers_max),
            ONE_WORKER: Wrk(
                folder / "one", scale.http_players, (alone / "admin.key").read_text().strip(), 1, scale.http_answers_max
            ),
        }
        checked = [_answers(workers, number, players) for number in range(WORKERS)]
        for question, note in (
            ("page", f"pages of 99 entries by gzip, {CONNECTIONS} connections"),
            ("rank", f"one rank, {CONNECTIONS} connections: here the client is a larger part of the load"),
        ):
            turns = _turns(scale, question, sides, wrks)
            turns.series.checksums = {RANKD: max(checked), ONE_WORKER: answers}
            if min(checked) != max(checked):
                turns.failures.append("the workers answer differently")
            yield _row(scale, f"workers_{question}", turns, note)
        yield _visible_row(scale, workers)
        note = (
            f"one score, {CONNECTIONS} connections, durable on {file_system_of(data)}: half come to the one that reads"
        )
        yield _row(scale, "workers_submit", _turns(scale, "submit", sides, wrks), note)
        yield _memory_row(scale, workers)


def _answers(workers: Workers, number: int, players: Sequence[str]) -> int:
    with workers.only(number) as client:
        return sum(http_reads(client, players).values())


def _turns(scale: Scale, question: str, sides: dict[str, Side], wrks: dict[str, Wrk]) -> Turns:
    turns = Turns()
    for _ in range(min(scale.rounds, scale.http_rounds_max)):
        for side, server in sides.items():
            began, processor_s, processor_ns = time.monotonic(), _children_s(), server.processor_ns()
            result = wrks[side].ask(question, server.url, CONNECTIONS, scale.http_turn_s)
            share = (_children_s() - processor_s) / (time.monotonic() - began)
            turns.extra[f"{side}_processor_ns_per_request"] = (server.processor_ns() - processor_ns) / result.requests
            turns.series.add(side, result.ns_per_request)
            turns.extra[f"{side}_requests_per_second"] = 1e9 / result.ns_per_request
            turns.extra[f"{side}_p99_us"] = result.p99_us
            turns.extra[f"{side}_generator_share"] = share
            if (problem := result.problem()) is not None:
                turns.failures.append(f"{side}: {problem}")
            if question == "page" and not scale.smoke and share > GENERATOR_SHARE_MAX:
                turns.failures.append(f"{side}: the client took {share:.2f} of a processor")
    return turns


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row(scale: Scale, name: str, turns: Turns, note: str) -> Row:
    text = f"{note}; {WORKERS} workers beside one"
    row = turns.series.row(name, scale.http_players, "ns_per_request", turns.extra, text, judged=not scale.smoke)
    row.failures = turns.failures
    return row


def _visible_row(scale: Scale, workers: Workers) -> Row:
    """From the writer's answer to a score until a read of the other worker shows it."""
    delays_ns: list[float] = []
    with workers.admin(WRITER) as written, workers.only(1) as read:
        for number in range(scale.workers_visible_calls):
            event = {"board": BOARD, "player": "user_00000000", "score": number}
            position = _fine(written.post("/v1/scores", json=event)).json()["position"]
            began_ns = time.perf_counter_ns()
            _fine(read.get(f"/v1/boards/{BOARD}/top", params={"limit": 1, "at_least": position}))
            delays_ns.append(time.perf_counter_ns() - began_ns)
    series = Series({RANKD: [quantiles(delays_ns, n=100)[98]]})
    extra = {"p50_ms": quantiles(delays_ns, n=2)[0] / 1e6}
    note = "from the answer to a score until a read of the other worker, with at_least, is answered"
    return series.row("workers_visible_p99", scale.http_players, "ns_p99", extra, note, judged=not scale.smoke)


def _fine(response: httpx.Response) -> httpx.Response:
    if response.status_code != 200:
        raise RuntimeError(f"the server answers {response.status_code}: {response.text[:300]}")
    return response


def _memory_row(scale: Scale, workers: Workers) -> Row:
    processes = [workers.process(number) for number in range(WORKERS)]
    writes, reads = (float(resident_bytes_of(process)) for process in processes if process is not None)
    extra = {"writer_resident_bytes": writes, "supervisor_resident_bytes": float(resident_bytes_of(workers.supervisor))}
    note = f"resident bytes of the worker that reads, {scale.http_players:,} players in five windows, after the rounds"
    return Series({RANKD: [reads]}).row("workers_memory", scale.http_players, "bytes", extra, note, judged=False)

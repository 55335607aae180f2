"""Nodes on a Kafka ledger: what a score costs until the brokers have it, and until others show it.

submit    wrk → one score a request → 202 once the broker has it; beside the embedded server, which ranks it first
p99       single scores at a fixed rate → 202
batches   threads of a node → submit_many of 1,000 scores → returned once the broker has them; the node ranks beside it
visible   a score is sent to one node → a read of the other shows it, while others are sent at a fixed rate
backlog   a follower reads, judges and ranks a topic that was filled before
rebuild   a node opens without a checkpoint; beside the embedded folder without a snapshot

One broker runs beside us on the same processors, and PostgreSQL for the registry.
"""

from __future__ import annotations

import shutil
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

from tests.acceptance.scaled_serving import Nodes
from tests.acceptance.serving import Serving
from tests.servers.kafka import running_kafka
from tests.servers.postgres import running_postgres

import rankd
from benchmarks.disk import folder_on_disk
from benchmarks.figures import LIBRARY, RANKD, Row, Scale, Series
from benchmarks.http_check import sample
from benchmarks.http_servers import HttpServer, running_rankd
from benchmarks.http_sustained import Load, run_load
from benchmarks.http_wrk import BOARD, Wrk
from benchmarks.nodes_bench import TIMEOUT_S, WAIT_MS, NodeStand, load_boards, places
from benchmarks.postgres_append import SETTINGS
from benchmarks.workload import Events, Workload
from rankd import Client
from rankd.background import rare_collections
from rankd.node.open_node import CHECKPOINTS, open_node
from rankd.projection.catalogue import Catalogue
from rankd.projection.counting import CountingStore
from rankd.projection.follower import Follower
from rankd.projection.state import State

CONNECTIONS = 64
THREADS = 8
PER_S = 2_000
READ_EVENTS = 50_000
SNAPSHOTS = "snapshots"


def kafka_ledger_rows(scale: Scale, wrk_is_there: bool) -> Iterator[Row]:
    """All rows of a Kafka ledger."""
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        folder.chmod(0o711)
        broker = stack.enter_context(running_kafka())
        postgres = stack.enter_context(running_postgres(SETTINGS, parent=folder))
        nodes = Nodes(folder, postgres, {"RANKD_RANKS_AT_LEAST_WAIT_MS": str(WAIT_MS)}, broker.url)
        stack.callback(nodes.stop)
        with rankd.open(folder / "embedded") as boards:
            load_boards(boards, scale.scaled_players)
        with open_node(nodes.stores, nodes.node_folder("a"), at_least_wait_ms=WAIT_MS) as boards:
            load_boards(boards, scale.scaled_players)
            boards.settle()
        yield _backlog_row(scale, nodes)
        yield _rebuild_row(scale, nodes, folder / "embedded")
        yield _batches_row(scale, nodes)
        first = nodes.node("a")
        with running_rankd(folder / "embedded") as embedded:
            token = (folder / "embedded" / "admin.key").read_text().strip()
            if wrk_is_there:
                yield _submit_row(scale, folder, (first, nodes.admin), (embedded, token))
        yield _p99_row(scale, first, nodes.admin)
        second = nodes.node("b")
        with (
            Client(first.url, nodes.admin, timeout_s=TIMEOUT_S) as written,
            Client(second.url, nodes.admin, timeout_s=TIMEOUT_S) as read,
        ):
            stand = NodeStand(scale, written, read)
            per_s = scale.http_writes_per_s if scale.smoke else PER_S
            yield stand.visible_row("kafka_ledger_visible_p99", per_s, stand.most_per_s(), "Kafka with acks=all")


def _backlog_row(scale: Scale, nodes: Nodes) -> Row:
    series = Series()
    for _ in range(scale.rounds):
        with closing(nodes.stores.open_ledger()) as ledger, rare_collections():  # as in every process that ranks
            events = sum(ledger.heads().sequences)
            began_ns = time.perf_counter_ns()
            follower = Follower(ledger, CountingStore(), State(), Catalogue())
            follower.follow_to_head(READ_EVENTS, lambda _done, _all: None)
            spent_ns = time.perf_counter_ns() - began_ns
            series.add(RANKD, spent_ns / events, follower.events)
    extra = {"events_per_s": 1e9 / median(series.samples[RANKD])}
    note = "one follower from the first event on: read, judged, ranked in five windows"
    return series.row("kafka_ledger_backlog", scale.scaled_players, "ns_per_event", extra, note, judged=not scale.smoke)


def _rebuild_row(scale: Scale, nodes: Nodes, embedded: Path) -> Row:
    series, players = Series(), sample(scale.scaled_players)
    for _ in range(scale.rounds):
        shutil.rmtree(nodes.node_folder("a") / CHECKPOINTS)
        began = time.perf_counter()
        with open_node(nodes.stores, nodes.node_folder("a")) as boards:
            series.add(RANKD, time.perf_counter() - began, places(boards, players))
        shutil.rmtree(embedded / SNAPSHOTS)
        began = time.perf_counter()
        with rankd.open(embedded) as boards:
            series.add(LIBRARY, time.perf_counter() - began, places(boards, players))
    extra = {"events_per_s": scale.scaled_players / median(series.samples[RANKD])}
    note = "everybody in five windows, without a checkpoint; library: the embedded folder without a snapshot"
    return series.row("kafka_ledger_rebuild", scale.scaled_players, "seconds", extra, note, judged=not scale.smoke)


def _batches_row(scale: Scale, nodes: Nodes) -> Row:
    series, workload, size = Series(), Workload(scale.scaled_players), scale.scaled_batch_events
    with open_node(nodes.stores, nodes.node_folder("a")) as boards, ThreadPoolExecutor(THREADS) as threads:
        for _ in range(scale.rounds):
            batches = [
                (events.ids(), scores_of(events)) for events in workload.updates(scale.kafka_records).batches(size)
            ]
            began_ns = time.perf_counter_ns()
            sent = threads.map(
                lambda batch: boards.submit_many(BOARD, players=batch[0], scores=batch[1]).count, batches
            )
            events = sum(sent)
            series.add(RANKD, (time.perf_counter_ns() - began_ns) / events, events)
            boards.settle()
    extra = {"events_per_s": 1e9 / median(series.samples[RANKD])}
    note = f"submit_many of {size:,} scores by {THREADS} threads of a node, which ranks in five windows meanwhile"
    return series.row("kafka_ledger_batches", scale.scaled_players, "ns_per_event", extra, note, judged=not scale.smoke)


def scores_of(events: Events) -> array[int]:
    """Return the scores of events as a column."""
    return array("q", events.scores.tolist())


def _submit_row(scale: Scale, folder: Path, node: tuple[Serving, str], embedded: tuple[HttpServer, str]) -> Row:
    series, failures, extra = Series(), [], {}
    for _ in range(scale.rounds):
        for side, server, token in ((RANKD, *node), (LIBRARY, *embedded)):
            wrk = Wrk(folder, scale.scaled_players, token, 1, scale.http_answers_max)
            result = wrk.ask("submit", server.url, CONNECTIONS, scale.http_turn_s)
            if (problem := result.problem()) is not None:
                failures.append(f"{side}: {problem}")
            series.add(side, result.ns_per_request)
            extra[f"{side}_scores_per_s"] = 1e9 / result.ns_per_request
            extra[f"{side}_p99_us"] = result.p99_us
    note = f"wrk, {CONNECTIONS} connections, one score a request; library: the embedded server on the same boards"
    row = series.row("kafka_ledger_submit", scale.scaled_players, "ns_per_score", extra, note, judged=not scale.smoke)
    row.failures = failures
    return row


def _p99_row(scale: Scale, node: Serving, token: str) -> Row:
    series, failures, extra = Series(), [], {}
    per_s = scale.http_writes_per_s if scale.smoke else PER_S
    for _ in range(scale.rounds):
        report = run_load(Load(scale.scaled_players, per_s, 1.0, max(1, int(scale.scaled_seconds))), node.url, token)
        (latencies,) = [kind.latencies for kind in report.kinds.values() if kind.latencies.p99_ms is not None]
        series.add(RANKD, (latencies.p99_ms or 0.0) * 1e6)
        extra["p50_ms"] = latencies.p50_ms or 0.0
        extra["generator_late_p99_ms"] = report.generator_late.p99_ms or 0.0
        if report.errors:
            failures.append(f"{report.errors}: {report.first_errors}")
    note = f"{per_s:,} scores/s, each answered with 202, counted from when it was due"
    row = series.row("kafka_ledger_submit_p99", scale.scaled_players, "ns_p99", extra, note, judged=not scale.smoke)
    row.failures = failures
    return row

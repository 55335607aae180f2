"""Priority under saturation: one score and one rank of many small clients while large ones send without pause.

    load (library) → serve → batches, imports and exports as fast as they are answered ∥ single calls at a fixed rate

A latency counts from when its request was due, as in the sustained rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.acceptance.scaled_serving import Nodes
from tests.servers.postgres import running_postgres

from benchmarks.disk import folder_on_disk
from benchmarks.figures import RANKD, Row, Scale, Series
from benchmarks.http_check import load
from benchmarks.http_servers import running_rankd
from benchmarks.http_sustained import Load, run_load
from benchmarks.http_wrk import Wrk
from benchmarks.nodes_bench import load_boards
from benchmarks.scaled_path import SETTINGS
from rankd.node.open_node import open_node
from rankd.node.shared_stores import SharedStores

WRITES_SHARE = 0.3
SETTLE_S = 2  # large senders begin before and end after what is measured


@dataclass(frozen=True, slots=True)
class LargeSender:
    """A client that sends without pause."""

    name: str
    question: str
    connections: int
    events: int  # of a batch


def large_senders(scale: Scale) -> list[LargeSender]:
    return [
        LargeSender("batches", "batch_json", 4, scale.http_batch_events),
        LargeSender("imports", "batch_ndjson", 2, scale.priority_import_events),
        LargeSender("exports", "export", 2, 1),
    ]


def priority_rows(scale: Scale) -> Iterator[Row]:
    """The slowest hundredth of single scores and of ranks beside large senders, on an embedded server."""
    with folder_on_disk() as folder:
        data = folder / "data"
        load(data, scale.http_players, scale.embedded_batch_rows)
        with running_rankd(data) as server:
            token = (data / "admin.key").read_text().strip()
            yield from _measured(scale, folder, (server.url, token), "priority")


def priority_node_rows(scale: Scale) -> Iterator[Row]:
    """The same on a node, whose ledger is a synced PostgreSQL on the same machine."""
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        folder.chmod(0o711)  # PostgreSQL has a user of its own
        nodes = Nodes(folder, stack.enter_context(running_postgres(SETTINGS, parent=folder)), {})
        stack.callback(nodes.stop)
        with open_node(SharedStores(nodes.ledger_url), nodes.node_folder("a")) as boards:
            load_boards(boards, scale.http_players)
        yield from _measured(scale, folder, (nodes.node("a").url, nodes.admin), "priority_node")


def _measured(scale: Scale, folder: Path, server: tuple[str, str], prefix: str) -> Iterator[Row]:
    """Saturate a server, given by its URL and a token, and send single calls beside."""
    url, token = server
    senders = large_senders(scale)
    seconds = scale.priority_s + 2 * SETTLE_S
    with ThreadPoolExecutor() as threads:
        sent = {
            sender.name: threads.submit(
                partial(_wrk(sender, scale, folder, token).ask, with_key=True),
                sender.question,
                url,
                sender.connections,
                seconds,
            )
            for sender in senders
        }
        small = Load(scale.http_players, scale.priority_calls_per_s, WRITES_SHARE, scale.priority_s)
        report = run_load(small, url, token)
        results = {name: future.result() for name, future in sent.items()}
    failures = [f"{name}: {problem}" for name, result in results.items() if (problem := result.problem()) is not None]
    if report.errors:
        failures.append(f"{report.errors}: {report.first_errors}")
    per_s = {sender.name: results[sender.name].requests * sender.events / seconds for sender in senders}
    extra = {f"{name}_per_s": rate for name, rate in per_s.items()}
    extra["generator_late_p99_ms"] = report.generator_late.p99_ms or 0.0
    extra["after_sending_p99_ms"] = report.after_sending.p99_ms or 0.0
    note = (
        f"{scale.priority_calls_per_s} single calls/s for {scale.priority_s} s, counted from when each was due, beside "
        f"batches of {scale.http_batch_events:,}, imports of {scale.priority_import_events:,} and pages of 1,000 "
        "without pause"
    )
    for kind in ("submit", "rank"):
        latencies = report.kinds[kind].latencies
        series = Series({RANKD: [(latencies.p99_ms or 0.0) * 1e6]})
        further = {**extra, f"{kind}_p50_ms": latencies.p50_ms or 0.0}
        name, remarks = f"{prefix}_{kind}_p99", "; ".join([note, *report.warnings])
        row = series.row(name, scale.http_players, "ns_p99", further, remarks, judged=not scale.smoke)
        row.failures = failures
        yield row


def _wrk(sender: LargeSender, scale: Scale, folder: Path, token: str) -> Wrk:
    own = folder / sender.name
    own.mkdir()
    return Wrk(own, scale.http_players, token, sender.events)

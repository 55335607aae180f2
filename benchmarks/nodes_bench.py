"""Nodes on a PostgreSQL ledger (synced): two servers that rank in engines of their own, beside the embedded server.

open      a checkpoint of everybody in five windows → loaded, the rest followed → ready
rank      wrk → HTTP → the node's own engine; beside the embedded server on the same boards
submit    one score at a fixed rate → durable → followed → answered with its rank
visible   a score is sent to one node → a read of the other shows it, while others are sent at a fixed rate
"""

from __future__ import annotations

import shutil
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from tests.acceptance.scaled_serving import Nodes
from tests.acceptance.serving import Serving
from tests.servers.postgres import running_postgres

import rankd
from benchmarks.disk import folder_on_disk
from benchmarks.figures import LIBRARY, RANKD, Row, Scale, Series
from benchmarks.http_check import digest, http_reads, sample
from benchmarks.http_servers import HttpServer, running_rankd
from benchmarks.http_sustained import Load, run_load
from benchmarks.http_wrk import BOARD, Wrk
from benchmarks.scaled_path import BUSY_SHARE, CONNECTIONS, DEFINITION, LEAST_PER_S, LOAD_EVENTS, SETTINGS, Stand
from rankd import Boards, Client
from rankd.node.open_node import open_node
from rankd.node.shared_stores import SharedStores

WAIT_MS = 60_000
TIMEOUT_S = 120.0


def node_rows(scale: Scale, wrk_is_there: bool) -> Iterator[Row]:
    """All rows of nodes."""
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        folder.chmod(0o711)
        postgres = stack.enter_context(running_postgres(SETTINGS, parent=folder))
        nodes = Nodes(folder, postgres, {"RANKD_RANKS_AT_LEAST_WAIT_MS": str(WAIT_MS)})
        stack.callback(nodes.stop)
        with rankd.open(folder / "embedded") as boards:
            load_boards(boards, scale.scaled_players)
        with open_node(SharedStores(nodes.ledger_url), nodes.node_folder("a")) as boards:
            load_boards(boards, scale.scaled_players)
        yield _open_row(scale, nodes, folder / "embedded")
        shutil.copytree(nodes.node_folder("a"), nodes.node_folder("b"))  # a checkpoint is of a ledger, not of a node
        first, second = nodes.node("a"), nodes.node("b")
        with running_rankd(folder / "embedded") as embedded:
            token = (folder / "embedded" / "admin.key").read_text().strip()
            if wrk_is_there:
                yield _rank_row(scale, folder, first, embedded)
            yield _submit_row(scale, (first.url, nodes.admin), (embedded.url, token))
        with (
            Client(first.url, nodes.admin, timeout_s=TIMEOUT_S) as written,
            Client(second.url, nodes.admin, timeout_s=TIMEOUT_S) as read,
        ):
            stand = NodeStand(scale, written, read)
            most = stand.most_per_s()
            yield stand.visible_row("nodes_visible_p99", LEAST_PER_S, most)
            yield stand.visible_row("nodes_visible_busy_p99", max(LEAST_PER_S, int(most * BUSY_SHARE)), most)


class NodeStand(Stand):
    """Scores go to one node, and are looked for on the other."""

    def __init__(self, scale: Scale, written: Client, read: Client) -> None:
        super().__init__(scale, written)
        self._written = written
        self._read = read

    def show(self, player: str) -> None:
        """Send a score to one node, and return when a read of the other shows it."""
        self.wait_for(self._written.submit(BOARD, player, 1).position)

    def wait_for(self, position: str) -> None:
        """Return when a read of the other node shows everything up to a position."""
        self._read.top(BOARD, 1, at_least=position)


def load_boards(boards: Boards, players: int) -> None:
    """Give everybody a score in five windows."""
    boards.define(BOARD, DEFINITION)
    for start in range(0, players, LOAD_EVENTS):
        ids = [f"user_{number:08d}" for number in range(start, min(start + LOAD_EVENTS, players))]
        boards.submit_many(BOARD, players=ids, scores=array("q", range(len(ids))))


def _open_row(scale: Scale, nodes: Nodes, embedded: Path) -> Row:
    series, players = Series(), sample(scale.scaled_players)
    for _ in range(scale.rounds):
        began = time.perf_counter()
        with open_node(SharedStores(nodes.ledger_url), nodes.node_folder("a")) as boards:
            seconds = time.perf_counter() - began
            if boards.started.snapshot is None:
                raise AssertionError("a checkpoint was not loaded")
            series.add(RANKD, seconds, places(boards, players))
        began = time.perf_counter()
        with rankd.open(embedded) as boards:
            series.add(LIBRARY, time.perf_counter() - began, places(boards, players))
    note = "from a checkpoint, five windows; library: the embedded folder from its snapshot"
    return series.row("nodes_open", scale.scaled_players, "seconds", {}, note, judged=not scale.smoke)


def places(boards: Boards, players: Sequence[str]) -> int:
    """Return a digest of the places of some players."""
    entries: list[dict[str, Any]] = [
        {"player": entry.player, "rank": entry.rank, "score": entry.score}
        for entry in boards.ranks(BOARD, players).entries
    ]
    return digest(entries)


def _rank_row(scale: Scale, folder: Path, node: Serving, embedded: HttpServer) -> Row:
    series, players = Series(), sample(scale.scaled_players)
    for side, url in ((RANKD, node.url), (LIBRARY, embedded.url)):
        with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
            series.checksums[side] = sum(http_reads(client, players).values())
    wrk, failures, extra = Wrk(folder, scale.scaled_players, "", 1, scale.http_answers_max), [], {}
    for _ in range(scale.rounds):
        for side, url in ((RANKD, node.url), (LIBRARY, embedded.url)):
            result = wrk.ask("rank", url, CONNECTIONS, scale.http_turn_s)
            if (problem := result.problem()) is not None:
                failures.append(f"{side}: {problem}")
            series.add(side, result.ns_per_request)
            extra[f"{side}_requests_per_second"] = 1e9 / result.ns_per_request
            extra[f"{side}_p99_us"] = result.p99_us
    note = f"wrk, {CONNECTIONS} connections, random players; library: the embedded server on the same boards"
    row = series.row("nodes_http_rank", scale.scaled_players, "ns_per_request", extra, note, judged=not scale.smoke)
    row.failures = failures
    return row


def _submit_row(scale: Scale, node: tuple[str, str], embedded: tuple[str, str]) -> Row:
    series, failures, extra = Series(), [], {}
    per_s = LEAST_PER_S if not scale.smoke else scale.http_writes_per_s
    load = Load(scale.scaled_players, per_s, 1.0, max(1, int(scale.scaled_seconds)))
    for _ in range(scale.rounds):
        for side, (url, token) in ((RANKD, node), (LIBRARY, embedded)):
            report = run_load(load, url, token)
            (latencies,) = [kind.latencies for kind in report.kinds.values() if kind.latencies.p99_ms is not None]
            series.add(side, (latencies.p99_ms or 0.0) * 1e6)
            extra[f"{side}_p50_ms"] = latencies.p50_ms or 0.0
            extra[f"{side}_rate"] = report.rate
            extra[f"{side}_generator_late_p99_ms"] = report.generator_late.p99_ms or 0.0
            if report.errors:
                failures.append(f"{side}: {report.errors}: {report.first_errors}")
    note = (
        f"{per_s:,} scores/s, each answered with its rank, counted from when it was due; library: the embedded server"
    )
    row = series.row("nodes_submit_p99", scale.scaled_players, "ns_p99", extra, note, judged=not scale.smoke)
    row.failures = failures
    return row

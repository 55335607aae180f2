"""A minute at a fixed rate: requests are due when they are due, and a server that stalls pays for all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from benchmarks.figures import RANKD, Row, Scale, Series
from benchmarks.http_servers import HttpServer
from benchmarks.http_wrk import BOARD
from benchmarks.isolated import ROOT
from rankd.bench import LoadReport

CONNECTIONS = 256  # of many clients: one write that waits for the disk keeps no read from being sent


def sustained_rows(scale: Scale, server: HttpServer, token: str) -> Iterator[Row]:
    """Reads and writes at their rates; the slowest kind of call is judged."""
    rate = scale.http_reads_per_s + scale.http_writes_per_s
    load = Load(scale.http_players, rate, scale.http_writes_per_s / rate, scale.http_sustained_s)
    report = run_load(load, server.url, token)
    kinds = {name: kind.latencies for name, kind in report.kinds.items()}
    failures = [] if not report.errors else [f"{report.errors}: {report.first_errors}"]
    note = (
        f"{scale.http_writes_per_s:,} writes/s and {scale.http_reads_per_s:,} reads/s for {scale.http_sustained_s} s, "
        "counted from when each was due; the slowest kind of call"
    )
    extra = {
        "rate": report.rate,
        "answered": float(report.answered),
        "after_sending_p99_ms": report.after_sending.p99_ms or 0.0,
        "generator_late_p99_ms": report.generator_late.p99_ms or 0.0,
        "generator_processor_share": report.processor_share,
        "waited_for_connection": float(report.waited_for_connection),
    }
    for percent in ("p95", "p99"):
        by_kind = {name: getattr(latencies, f"{percent}_ms") or 0.0 for name, latencies in kinds.items()}
        series = Series({RANKD: [max(by_kind.values()) * 1e6]})
        further = {**{f"{name}_{percent}_ms": ms for name, ms in by_kind.items()}, **extra}
        name, text = f"http_sustained_{percent}", "; ".join([note, *report.warnings])
        row = series.row(name, scale.http_players, f"ns_{percent}", further, text, judged=not scale.smoke)
        row.failures = failures
        yield row


@dataclass(frozen=True, slots=True)
class Load:
    """Requests at a rate."""

    players: int
    per_s: int
    writes_share: float
    seconds: int


def run_load(load: Load, url: str, token: str) -> LoadReport:
    """Send requests at a rate; a latency counts from when its request was due."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "rankd", "bench", "--url", url, "--board", BOARD, "--no-join", "--json"),
            *("--players", str(load.players), "--prefix", "user_", "--connections", str(CONNECTIONS)),
            *("--rate", str(load.per_s), "--writes", str(load.writes_share)),
            *("--duration", f"{load.seconds}s"),
        ],
        cwd=ROOT,
        env={**os.environ, "RANKD_TOKEN": token},
        capture_output=True,
        timeout=load.seconds + 120,
        check=False,
    )
    if not done.stdout:
        raise RuntimeError(f"rankd bench ended with {done.returncode}: {done.stderr.decode()[-1_000:]}")
    return msgspec.json.decode(done.stdout, type=LoadReport)

"""Live connections: how soon many clients hear of a score, what a message and an idle client cost, and who pays.

    load (library) → serve → idle clients → changes one by one → scores at a rate → submits with and without watchers

Clients are in a process of their own (live_client.py), beside a handler on the same server that sends the same bytes to
everybody and knows nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx
import msgspec

from benchmarks.disk import file_system_of, folder_on_disk
from benchmarks.figures import BARE, RANKD, UNWATCHED, Row, Scale, Series
from benchmarks.http_check import load
from benchmarks.http_servers import HttpServer
from benchmarks.http_wrk import BOARD, Wrk
from benchmarks.isolated import ROOT
from benchmarks.live_client import Asked, Result
from benchmarks.live_config import allow_files, running_bare_live, running_live
from benchmarks.redis_server import stop_process

TOPIC = f"top:{BOARD}"
WATCHED_TOPICS = [
    *(f"top:{BOARD}{window}" for window in ("", "@monthly", "@weekly", "@daily", "@hourly")),
    *(f"player:{BOARD}:user_{number:08d}" for number in range(5)),
]
SUBMIT_CONNECTIONS = 64
CLIENT_WAIT_S = 600.0
SETTLED_S = 0.5
CORE_NS = 1e9


class Clients:
    """A process full of clients that are connected."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def result(self) -> Result:
        """Let them do what they were asked for, and return what they saw."""
        out, _ = self._process.communicate(b"go\n", CLIENT_WAIT_S)
        if self._process.returncode != 0:
            raise RuntimeError(f"the clients ended with {self._process.returncode}")
        return msgspec.json.decode(out.splitlines()[-1], type=Result)


@contextmanager
def connected(asked: Asked) -> Iterator[Clients]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.live_client", msgspec.json.encode(asked).decode()],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        if process.stdout is None or process.stdout.readline() != b"ready\n":
            raise RuntimeError("the clients could not connect")
        yield Clients(process)
    finally:
        stop_process(process)


class Stand:
    """A server with a board, and what clients of it need to know."""

    def __init__(self, scale: Scale, server: HttpServer, token: str) -> None:
        self.scale = scale
        self.server = server
        self.token = token

    def asked(self, **more: object) -> Asked:
        fields = {
            "port": int(self.server.url.rpartition(":")[2]),
            "server_process": self.server.process.pid,
            "clients": self.scale.live_clients,
            "topics": [TOPIC],
            "token": self.token,
            "board": BOARD,
            **more,
        }
        return msgspec.convert(fields, Asked)


def live_rows(scale: Scale) -> Iterator[Row]:
    """All rows of live connections."""
    allow_files()
    with folder_on_disk() as folder:
        data = folder / "data"
        load(data, scale.live_players, scale.embedded_batch_rows)
        with running_live(data) as server:
            stand = Stand(scale, server, (data / "admin.key").read_text().strip())
            first_bytes = len(_snapshot(server))
            with running_bare_live(first_bytes, folder / "bare.log") as bare:
                yield _memory_row(stand, Stand(scale, bare, ""))
                yield _message_row(stand, Stand(scale, bare, ""))
            yield from _score_rows(stand)
            yield _submit_row(stand, folder, data)


def _snapshot(server: HttpServer) -> bytes:
    with httpx.stream("GET", f"{server.url}/v1/stream", params={"topic": TOPIC}) as answer:
        return next(answer.iter_raw())


def _memory_row(stand: Stand, bare: Stand) -> Row:
    """What an idle client takes: the server's process with all of them, less the same without."""
    series = Series()
    extra = {}
    scale = stand.scale
    for side, side_stand, asked in (
        (BARE, bare, bare.asked(task="idle", path="/stream", topics=[], is_bare=True)),
        (RANKD, stand, stand.asked(task="idle")),
    ):
        with connected(msgspec.structs.replace(asked, clients=min(100, scale.live_clients))) as few:
            few.result()  # what the first connections bring with them is not theirs
        before = side_stand.server.resident_bytes()
        with connected(asked) as clients:
            _until_steady(side_stand.server.resident_bytes)
            after = side_stand.server.resident_bytes()
            clients.result()
        series.add(side, (after - before) / scale.live_clients)
        extra[f"{side}_resident_bytes"] = float(after)
    note = (
        f"{scale.live_clients:,} streams of {TOPIC} that hear nothing; bare: a handler that sends the same first bytes"
    )
    return series.row("live_memory", scale.live_clients, "bytes_per_client", extra, note, judged=not scale.smoke)


def _until_steady(read: Callable[[], int]) -> None:
    """Wait until a figure stays what it is."""
    seen = -1
    while seen != (seen := read()):
        time.sleep(SETTLED_S)


def _message_row(stand: Stand, bare: Stand) -> Row:
    """What one change costs the server for each client, by its processor time."""
    scale = stand.scale
    series, extra, failures = Series(), {}, []
    with connected(stand.asked(task="changes", changes=scale.live_changes)) as clients:
        ours = clients.result()
    length = max(16, ours.message_bytes)
    sent = bare.asked(
        task="changes", path="/stream", topics=[], is_bare=True, changes=scale.live_changes, change_bytes=length
    )
    with connected(sent) as clients:
        theirs = clients.result()
    for side, figures in ((RANKD, ours), (BARE, theirs)):
        series.add(side, figures.server_ns / figures.messages)
        extra[f"{side}_until_last_client_ms"] = median(figures.until_last_ms)
        extra[f"{side}_client_processor_ns"] = figures.client_ns / figures.messages
        if figures.late:
            failures.append(f"{side}: {figures.late} changes did not reach a client")
    extra["message_bytes"] = float(ours.message_bytes)
    note = f"{scale.live_changes} changes, one after the other; the server's processor time for each of them and client"
    row = series.row("live_message", scale.live_clients, "ns_per_client", extra, note, judged=not scale.smoke)
    row.failures = failures
    return row


def _score_rows(stand: Stand) -> Iterator[Row]:
    scale = stand.scale
    asked = stand.asked(task="scores", scores_per_s=scale.live_scores_per_s, seconds=scale.live_scores_s)
    with connected(asked) as clients:
        report = clients.result()
    if report.delays is None:
        raise RuntimeError("no score was sent")
    failures = [] if not report.late else [f"{report.late} clients did not hear of the last score"]
    rate = report.scores / report.seconds
    if rate < 0.95 * scale.live_scores_per_s and not scale.smoke:
        failures.append(f"{rate:.0f} scores/s in place of {scale.live_scores_per_s}")
    shares = {
        "scores_per_s": rate,
        "messages_per_client": report.messages / report.clients,
        "message_bytes": float(report.message_bytes),
        "server_cores": report.server_ns / report.seconds / CORE_NS,
        "client_cores": report.client_ns / report.seconds / CORE_NS,
    }
    setting = (
        f"{scale.live_clients:,} streams of {TOPIC}, {scale.live_scores_per_s:,} scores/s for {scale.live_scores_s:g} s"
    )
    spread = {f"{name}_ms": value for name, value in msgspec.to_builtins(report.delays).items()}
    rows = [
        Series({RANKD: [report.delays.worst_client_p99 * 1e6]}).row(
            "live_delay_p99",
            scale.live_clients,
            "ns_p99",
            {**spread, **shares},
            f"{setting}: from a score's answer until a message holds it, of the client that fares worst",
            judged=not scale.smoke,
        ),
        Series({RANKD: [report.server_ns / report.seconds]}).row(
            "live_processor",
            scale.live_clients,
            "ns_per_second",
            shares,
            f"{setting}: the server's processor time",
            judged=not scale.smoke,
        ),
    ]
    for row in rows:
        row.failures = failures
        yield row


def _submit_row(stand: Stand, folder: Path, data: Path) -> Row:
    """How fast scores are taken while others watch, beside how fast without."""
    scale = stand.scale
    wrk = Wrk(folder, scale.live_players, stand.token, 1, scale.http_answers_max)
    series, failures, extra = Series(), [], {"batches_per_watcher": 0.0}
    url = stand.server.url

    def turn(side: str) -> None:
        if not scale.smoke:
            os.sync()
        result = wrk.ask("submit", url, SUBMIT_CONNECTIONS, scale.live_turn_s)
        if problem := result.problem():
            failures.append(f"{side}: {problem}")
        else:
            series.add(side, result.ns_per_request)

    for _ in range(min(scale.rounds, scale.live_rounds_max)):
        turn(UNWATCHED)
        asked = stand.asked(task="idle", clients=scale.live_watchers, topics=WATCHED_TOPICS)
        with connected(asked) as watchers:
            turn(RANKD)
            extra["batches_per_watcher"] = watchers.result().messages / scale.live_watchers
    extra |= {f"{side}_per_second": 1e9 / median(samples) for side, samples in series.samples.items()}
    note = (
        f"{SUBMIT_CONNECTIONS} connections, five windows, durable on {file_system_of(data)}; "
        f"{scale.live_watchers} streams of the same {len(WATCHED_TOPICS)} topics each"
    )
    row = series.row("live_submit", scale.live_watchers, "ns_per_request", extra, note, judged=not scale.smoke)
    row.failures = failures
    return row

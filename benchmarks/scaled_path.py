"""The whole scaled-out path: PostgreSQL (synced), a projector, Redis, an API process, each a process of its own.

    backlog   a projector held up → events appended → let go: ledger → ranked → Redis, until a read shows the last
    visible   a score is sent → durable → ranked → a read shows it, while others are sent at a fixed rate
    reads     wrk → HTTP → one call to Redis, or none where the answer is in memory; beside the embedded server

The rate is held whether or not anybody keeps up. `busy` is 0.7 of what was ranked at most, found in the same run.
"""

from __future__ import annotations

import signal
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from subprocess import Popen
from typing import Any

from tests.acceptance.scaled_serving import Installation
from tests.servers.postgres import running_postgres
from tests.servers.redis import RedisServer, running_redis

import rankd
from benchmarks.disk import folder_on_disk
from benchmarks.figures import LIBRARY, RANKD, REDIS, Row, Scale, Series
from benchmarks.http_servers import running_rankd
from benchmarks.http_wrk import BOARD, Wrk
from benchmarks.redis_server import Pipeline, RawConnection, integers
from benchmarks.workload import Events, Workload
from rankd import Boards, Client
from rankd.node.open_thin import open_thin
from rankd.node.shared_stores import SharedStores

SETTINGS = ("max_wal_size=4GB", "shared_buffers=256MB")
WINDOWS = ["all_time", "daily", "weekly", "monthly", "hourly"]
DEFINITION: dict[str, Any] = {"windows": WINDOWS, "keep": "latest", "ties": "player"}
LOAD_EVENTS = 10_000
TICK_S = 0.01
PROBE_EVERY_S = 0.05
SLOW_S = 30.0
LEAST_PER_S = 2_000
BUSY_SHARE = 0.7
P99 = 0.99
CONNECTIONS = 32
BACKLOG_BATCHES = 100


def scaled_path_rows(scale: Scale, wrk_is_there: bool) -> Iterator[Row]:
    """Delays at two rates and, where wrk is installed, reads over HTTP."""
    with ExitStack() as stack:
        folder = stack.enter_context(folder_on_disk())
        folder.chmod(0o711)
        postgres = stack.enter_context(running_postgres(SETTINGS, parent=folder))
        redis = stack.enter_context(running_redis())
        installation = Installation(folder, postgres, redis, {"RANKD_RANKS_CACHE_MS": "0"})
        stack.callback(installation.stop)
        projector = installation.project()
        boards = stack.enter_context(
            open_thin(SharedStores(installation.ledger_url), redis.url, at_least_wait_ms=60_000)
        )
        stand = Stand(scale, boards)
        stand.load()
        yield stand.backlog_row(projector, redis)
        most = stand.most_per_s()
        yield stand.visible_row("scaled_visible_p99", LEAST_PER_S, most)
        yield stand.visible_row("scaled_visible_busy_p99", max(LEAST_PER_S, int(most * BUSY_SHARE)), most)
        if wrk_is_there:
            yield from _read_rows(scale, installation, folder)


class Stand:
    """Boards of an API process in this one, filled, and what is sent to them."""

    def __init__(self, scale: Scale, boards: Boards | Client) -> None:
        self._scale = scale
        self._boards = boards
        self._workload = Workload(scale.scaled_players)
        boards.define(BOARD, DEFINITION)

    def load(self) -> None:
        """Give everybody a score."""
        for start in range(0, self._scale.scaled_players, LOAD_EVENTS):
            ids = [
                f"user_{number:08d}" for number in range(start, min(start + LOAD_EVENTS, self._scale.scaled_players))
            ]
            last = self._boards.submit_many(BOARD, players=ids, scores=array("q", range(len(ids))))
        self._boards.top(BOARD, 1, at_least=last.position)

    def backlog_row(self, projector: Popen[bytes], redis: RedisServer) -> Row:
        """Let a projector find events that wait for it, by turns with the ZADDs that follow from them.

        It is held up for less than it may keep its lease without a sign of life.
        """
        series, scale = Series(), self._scale
        count = BACKLOG_BATCHES * scale.scaled_batch_events
        with RawConnection(redis.port) as raw:
            self._load_rival(raw)
            for _ in range(scale.rounds):
                batches = list(self._workload.updates(count).batches(scale.scaled_batch_events))
                projector.send_signal(signal.SIGSTOP)
                try:
                    for events in batches:
                        last = self._submit(events)
                finally:
                    projector.send_signal(signal.SIGCONT)
                began_ns = time.perf_counter_ns()
                self._boards.top(BOARD, 1, at_least=last)
                series.add(RANKD, (time.perf_counter_ns() - began_ns) / (count * len(WINDOWS)))
                pipelines = [_zadds(list(zip(batch.scores.tolist(), batch.ids(), strict=True))) for batch in batches]
                began_ns = time.perf_counter_ns()
                replies = raw.exchange(pipelines)
                series.add(REDIS, (time.perf_counter_ns() - began_ns) / (count * len(WINDOWS)))
                integers(replies)
        extra = {"rankd_events_per_s": 1e9 / len(WINDOWS) / median(series.samples[RANKD])}
        note = "a whole projector, from the ledger on, five windows; redis: ZADDs encoded beforehand, raw socket"
        return series.row("scaled_backlog", scale.scaled_players, "ns_per_update", extra, note, judged=not scale.smoke)

    def _load_rival(self, raw: RawConnection) -> None:
        """Give everybody a score in the rival's sorted sets too: what an update costs grows with them."""
        players = range(self._scale.scaled_players)
        for start in range(0, len(players), LOAD_EVENTS):
            some = [(number % LOAD_EVENTS, f"user_{number:08d}") for number in players[start : start + LOAD_EVENTS]]
            integers(raw.exchange([_zadds(some)]))

    def most_per_s(self) -> float:
        """Return how many events a second are ranked at most: appended for a while, until a read shows the last."""
        began, sent = time.perf_counter(), 0
        while sent == 0 or time.perf_counter() - began < self._scale.scaled_seconds:
            last = self._send(self._scale.scaled_batch_events)
            sent += self._scale.scaled_batch_events
        self.wait_for(last)
        return sent / (time.perf_counter() - began)

    def wait_for(self, position: str) -> None:
        """Return when a read shows everything up to a position."""
        self._boards.top(BOARD, 1, at_least=position)

    def visible_row(self, name: str, per_s: int, most: float, ledger: str = "PostgreSQL synced") -> Row:
        """Send at a rate, and see how long it takes until a read shows a score."""
        series = Series()
        extra: dict[str, float] = {"sent_per_s": float(per_s), "most_per_s": most}
        for _ in range(self._scale.rounds):
            delays_s, sent_per_s = self._delays(per_s, self._scale.scaled_seconds)
            series.add(RANKD, delays_s[int(len(delays_s) * P99)] * 1e9, len(delays_s))
            extra["p50_ms"] = delays_s[len(delays_s) // 2] * 1_000
            extra["held_per_s"] = sent_per_s
        note = f"five windows, {ledger}, from sending until shown, while {per_s} events/s are sent"
        return series.row(name, self._scale.scaled_players, "ns_p99", extra, note, judged=not self._scale.smoke)

    def _delays(self, per_s: int, seconds: float) -> tuple[list[float], float]:
        stop, sent = threading.Event(), [0]
        began = time.perf_counter()

        def send() -> None:
            while not stop.is_set():
                due = int((time.perf_counter() - began) * per_s) - sent[0]
                if due > 0:
                    self._send(min(due, LOAD_EVENTS))
                    sent[0] += min(due, LOAD_EVENTS)
                stop.wait(TICK_S)

        sender = threading.Thread(target=send)
        sender.start()
        delays_s: list[float] = []
        try:
            while time.perf_counter() - began < seconds:
                sent_at = time.perf_counter()
                self.show(f"user_{len(delays_s) % self._scale.scaled_players:08d}")
                delays_s.append(time.perf_counter() - sent_at)
                stop.wait(PROBE_EVERY_S)
        finally:
            stop.set()
            sender.join(SLOW_S)
        return sorted(delays_s), sent[0] / (time.perf_counter() - began)

    def show(self, player: str) -> None:
        """Send a score, and return when a read shows it."""
        if self._boards.submit(BOARD, player, 1).rank is None:
            raise AssertionError("a score was not ranked within a minute")

    def _send(self, count: int) -> str:
        return self._submit(self._workload.updates(count))

    def _submit(self, events: Events) -> str:
        return self._boards.submit_many(BOARD, players=events.ids(), scores=array("q", events.scores.tolist())).position


def _read_rows(scale: Scale, installation: Installation, folder: Path) -> Iterator[Row]:
    """Reads over HTTP: ranks of random players, each asked of Redis; then the top, from memory."""
    cold = installation.serve()
    cached = installation.serve(RANKD_RANKS_CACHE_MS="100")
    redis = installation.redis.client()
    with rankd.open(folder / "embedded") as boards:
        boards.define(BOARD, DEFINITION)
        for start in range(0, scale.scaled_players, LOAD_EVENTS):
            ids = [f"user_{number:08d}" for number in range(start, min(start + LOAD_EVENTS, scale.scaled_players))]
            boards.submit_many(BOARD, players=ids, scores=array("q", range(len(ids))))
    with running_rankd(folder / "embedded") as embedded:
        wrk = Wrk(folder, scale.scaled_players, installation.admin, 1, scale.http_answers_max)
        for name, question, serving in (("scaled_http_rank", "rank", cold), ("scaled_http_top_cached", "top", cached)):
            series, extra = Series(), {}
            for _ in range(scale.rounds):
                before = _calls(redis)
                ours = wrk.ask(question, serving.url, CONNECTIONS, scale.http_turn_s)
                asked = _calls(redis) - before
                theirs = wrk.ask(question, embedded.url, CONNECTIONS, scale.http_turn_s)
                for side, result in ((RANKD, ours), (LIBRARY, theirs)):
                    series.add(side, result.ns_per_request, 0)
                    if (problem := result.problem()) is not None:
                        raise AssertionError(f"{side}: {problem}")
                extra["calls_to_redis_per_request"] = asked / ours.requests
                extra["requests_per_s"] = 1e9 / ours.ns_per_request
                extra["embedded_requests_per_s"] = 1e9 / theirs.ns_per_request
            note = "wrk, 32 connections, one API process; library: the embedded server on the same boards"
            yield series.row(name, scale.scaled_players, "ns_per_request", extra, note, judged=not scale.smoke)


def _zadds(scores: Sequence[tuple[int, str]]) -> Pipeline:
    parts = []
    for number, player in scores:
        for window in WINDOWS:
            arguments = ["ZADD", window, str(number), player]
            parts.append("".join(["*4\r\n", *(f"${len(argument)}\r\n{argument}\r\n" for argument in arguments)]))
    return Pipeline("".join(parts).encode("ascii"), len(parts))


def _calls(redis: Any) -> int:
    stats = redis.info("commandstats")
    return int(stats.get("cmdstat_fcall_ro", {}).get("calls", 0))

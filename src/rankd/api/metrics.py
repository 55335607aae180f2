"""The metrics at /metrics, in Prometheus' text format; docs/operating.md explains each.

Counting a request must cost next to nothing, so requests are counted in lists of integers, which become families of
prometheus-client at a scrape. No label contains text of a request, since labels are kept for ever.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from rankd.backend import Figures
from rankd.backup.archiver import ArchiveStatus

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4.encode()
BOARDS_SHOWN_MAX = 1_000
TEXT_KEPT_S = 1.0  # how long one collection answers other scrapes
UNMATCHED = -1  # the index of requests without a route
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
EVENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
_UP = b"# HELP rankd_worker_up Whether a worker answers\n# TYPE rankd_worker_up gauge"
_SAMPLE = re.compile(rb"([A-Za-z_:][A-Za-z0-9_:]*)(.*)", re.DOTALL)
_log = logging.getLogger("rankd.metrics")


class Histogram:
    """A histogram of observations, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` ascend; larger observations are counted too."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one; from one thread at a time."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self._counts)

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> None:
        """Add it to a family, cumulated."""
        bounds = [*map(str, map(float, self._bounds)), "+Inf"]
        family.add_metric(labels, list(zip(bounds, accumulate(list(self._counts)), strict=True)), self._sum)


class Routes:
    """Requests by route and status, and their duration; counted on the event loop only."""

    __slots__ = ("_seconds", "_statuses", "names", "refused_credentials")

    def __init__(self, routes: Iterable[tuple[str, str]]) -> None:
        """`routes` are method and path, such as ("GET", "/v1/boards/{board}"), in the order of their indices."""
        self.names = [*routes, ("any", "unmatched")]
        self.refused_credentials = 0  # counted by the application
        self._statuses: list[defaultdict[int, int]] = [defaultdict(int) for _ in self.names]
        self._seconds = [Histogram(SECONDS) for _ in self.names]

    def observe(self, route: int, status: int, seconds: float) -> None:
        """Count a request that has ended, by the index of its route or UNMATCHED."""
        self._statuses[route][status] += 1
        # Histogram.observe, inlined.
        histogram = self._seconds[route]
        histogram._counts[bisect_left(SECONDS, seconds)] += 1
        histogram._sum += seconds

    def collect(self) -> Iterator[Metric]:
        """Yield the counts; unused routes are left out."""
        requests = CounterMetricFamily("rankd_requests", "Requests answered", labels=["route", "method", "status"])
        seconds = HistogramMetricFamily("rankd_request_seconds", "Seconds until the answer", labels=["route", "method"])
        for (method, path), statuses, histogram in zip(self.names, self._statuses, self._seconds, strict=True):
            for status, count in sorted(dict(statuses).items()):
                requests.add_metric([path, method, str(status)], count)
            if statuses:
                histogram.add_to(seconds, [path, method])
        yield requests
        yield seconds
        text = "Requests refused for their credential"
        yield CounterMetricFamily("rankd_auth_refusals", text, value=self.refused_credentials)


class Commits:
    """The number of events in a commit, and its duration; one commit runs at a time."""

    __slots__ = ("_events", "_seconds")

    def __init__(self) -> None:
        self._events = Histogram(EVENTS)
        self._seconds = Histogram(SECONDS)

    def observe(self, events: int, seconds: float) -> None:
        """Count a durable commit."""
        self._events.observe(events)
        self._seconds.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield the counts."""
        events = HistogramMetricFamily("rankd_commit_events", "Events that shared a commit")
        seconds = HistogramMetricFamily("rankd_commit_seconds", "Seconds a commit took, the sync included")
        self._events.add_to(events)
        self._seconds.add_to(seconds)
        yield events
        yield seconds
        yield CounterMetricFamily("rankd_commits", "Commits made durable", value=self._events.count)


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Figures of other components, read at each scrape."""

    requests_open: Callable[[], int]
    figures: Callable[[], Figures]  # of the boards
    queue_depth: Callable[[], int]  # requests waiting for a commit
    work_waiting: Callable[[], Mapping[str, int]]  # requests waiting for a thread, by their cost
    streams: Callable[[], int]  # live connections
    topics: Callable[[], int]  # watched, or kept for clients that reconnect
    boards: Callable[[], int]
    board_entries: Callable[[int], Mapping[str, int]]  # by board, of at most so many boards
    replay_events: Callable[[], int]  # at the start
    replay_seconds: Callable[[], float]
    rate_refusals: Callable[[], Mapping[str, int]]  # by the limit's setting
    consumed: Callable[[], Mapping[str, int]] = dict  # records of topics, by what became of them
    consume_lag: Callable[[], int | None] = lambda: None  # records of topics that wait; None where none are consumed
    relayed: Callable[[], int | None] = lambda: None  # events sent to a topic; None where none are relayed
    relay_lag: Callable[[], int | None] = lambda: None  # events that wait to be; None where another process relays
    archive: Callable[[], ArchiveStatus | None] = lambda: None  # how far it is behind; None where there is none


class Metrics(Collector):
    """All metrics."""

    def __init__(self, version: str, routes: Routes, commits: Commits, sources: Sources) -> None:
        self._version = version
        self._routes = routes
        self._commits = commits
        self._sources = sources
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)  # processor time, open files, start

    def text(self) -> bytes:
        """Return the exposition; may be called from any thread."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every family; one whose source fails is left out."""
        about = {"version": self._version, "python": platform.python_version()}
        yield InfoMetricFamily("rankd", "What is running", value=about)
        yield from self._routes.collect()
        yield from self._commits.collect()
        for make in self._others():
            try:
                yield from make()
            except Exception as problem:
                _log.warning("a metric is left out: %s", problem)

    def _others(self) -> Iterator[Callable[[], Iterable[Metric]]]:
        sources = self._sources
        for name, text, source in (
            ("rankd_requests_open", "Requests under way", sources.requests_open),
            ("rankd_queue_depth", "Requests waiting for a commit", sources.queue_depth),
            ("rankd_streams_open", "Live connections", sources.streams),
            ("rankd_topics", "Topics that are watched, or kept for clients that reconnect", sources.topics),
            ("rankd_boards", "Boards defined", sources.boards),
            ("rankd_process_resident_bytes", "Bytes of memory the process has", resident_bytes),
            ("rankd_consume_lag_records", "Records of topics that wait to be appended", sources.consume_lag),
            ("rankd_relay_lag_events", "Events of the ledger that Kafka has not confirmed", sources.relay_lag),
            ("rankd_replay_events", "Events replayed at the start", sources.replay_events),
            ("rankd_replay_seconds", "Seconds the start took", sources.replay_seconds),
        ):
            yield partial(_gauge, name, text, source)
        yield self._figures
        yield self._board_entries
        yield self._work_waiting
        yield self._rate_refusals
        yield self._consumed
        yield self._relayed
        yield self._archive

    def _figures(self) -> list[Metric]:
        figures = self._sources.figures()
        followed_at_s = None if figures.followed_at is None else figures.followed_at / 1_000
        lag_s = None if figures.lag_ms is None else figures.lag_ms / 1_000
        gauges: list[Metric] = [
            GaugeMetricFamily(name, text, value=value)
            for name, text, value in (
                ("rankd_position", "Position of the last event that is ranked", figures.position),
                ("rankd_snapshot_position", "Position of the newest snapshot", figures.snapshot),
                ("rankd_entries", "Entries in all instances of all boards", figures.entries),
                ("rankd_engine_bytes", "Bytes the engine holds", figures.engine_bytes),
                ("rankd_followed_timestamp_seconds", "What was committed by then is ranked", followed_at_s),
                ("rankd_lag_seconds", "How far the ranks are behind the ledger", lag_s),
                ("rankd_lease", "Whether this node runs the timed work", figures.holds_lease),
            )
            if value is not None
        ]
        counters: list[Metric] = [
            CounterMetricFamily(name, text, value=value)
            for name, text, value in (
                ("rankd_ledger_refused_events", "Events of a Kafka ledger that became dead letters", figures.refused),
                ("rankd_ledger_repeated_events", "Events of a Kafka ledger that came again", figures.repeats),
            )
            if value is not None
        ]
        return gauges + counters

    def _board_entries(self) -> list[Metric]:
        family = GaugeMetricFamily("rankd_board_entries", "Entries in all instances of a board", labels=["board"])
        for board, entries in islice(self._sources.board_entries(BOARDS_SHOWN_MAX).items(), BOARDS_SHOWN_MAX):
            family.add_metric([board], entries)
        return [family]

    def _work_waiting(self) -> list[Metric]:
        family = GaugeMetricFamily("rankd_work_waiting", "Requests waiting for a thread", labels=["cost"])
        for cost, count in self._sources.work_waiting().items():
            family.add_metric([cost], count)
        return [family]

    def _rate_refusals(self) -> list[Metric]:
        family = CounterMetricFamily("rankd_rate_refusals", "Requests refused by a rate limit", labels=["limit"])
        for setting, count in self._sources.rate_refusals().items():
            family.add_metric([setting], count)
        return [family]

    def _consumed(self) -> list[Metric]:
        family = CounterMetricFamily("rankd_consumed_records", "Records of topics", labels=["outcome"])
        counts = self._sources.consumed()
        for outcome, count in counts.items():
            family.add_metric([outcome], count)
        return [family] if counts else []

    def _relayed(self) -> list[Metric]:
        value = self._sources.relayed()
        text = "Events of the ledger that Kafka has confirmed"
        return [] if value is None else [CounterMetricFamily("rankd_relayed_events", text, value=value)]

    def _archive(self) -> list[Metric]:
        status = self._sources.archive()
        if status is None:
            return []
        is_failing = status.problem is not None
        return [
            GaugeMetricFamily(name, text, value=value)
            for name, text, value in (
                ("rankd_archive_behind_events", "Events and changes the archive lacks", status.behind_events),
                ("rankd_archive_behind_seconds", "Since when the archive lacks something", status.behind_ms / 1_000),
                ("rankd_archive_failing", "Whether the last attempt to send has failed", is_failing),
            )
            if value is not None
        ]


class Scrapes:
    """Answers scrapes: one collection at a time, whose text answers all scrapes within a second; on the event loop."""

    def __init__(self, collect: Callable[[], Awaitable[bytes]]) -> None:
        """`collect` returns the exposition."""
        self._collect = collect
        self._text = b""
        self._collected_at_s: float | None = None  # by the event loop's clock
        self._collecting: asyncio.Task[None] | None = None

    async def text(self) -> bytes:
        """Return the exposition, at most a second old."""
        loop = asyncio.get_running_loop()
        if self._collected_at_s is None or loop.time() - self._collected_at_s >= TEXT_KEPT_S:
            if self._collecting is None:
                self._collecting = loop.create_task(self._collect_once())
            await asyncio.shield(self._collecting)  # a client that leaves does not cancel it for the others
        return self._text

    async def _collect_once(self) -> None:
        began_s = asyncio.get_running_loop().time()
        try:
            self._text = await self._collect()
            self._collected_at_s = began_s
        finally:
            self._collecting = None


def merged(texts: Mapping[int, bytes], workers: Iterable[int]) -> bytes:
    """Return the expositions of several workers as one, each sample with its worker's number.

    >>> one = b"# HELP a A\\n# TYPE a gauge\\na 1.0\\n"
    >>> two = b'# HELP a A\\n# TYPE a gauge\\na{b="c"} 2.0\\n'
    >>> print(merged({0: one, 1: two}, [0, 1, 2]).decode(), end="")
    # HELP a A
    # TYPE a gauge
    a{worker="0"} 1.0
    a{worker="1",b="c"} 2.0
    # HELP rankd_worker_up Whether a worker answers
    # TYPE rankd_worker_up gauge
    rankd_worker_up{worker="0"} 1
    rankd_worker_up{worker="1"} 1
    rankd_worker_up{worker="2"} 0
    """
    families: dict[bytes, list[bytes]] = {}  # samples by the two lines above them
    for number, text in sorted(texts.items()):
        head = b""
        for line in text.splitlines():
            if line.startswith(b"# HELP"):
                head = line
            elif line.startswith(b"# TYPE"):
                head += b"\n" + line
                families.setdefault(head, [])
            elif line:
                families[head].append(_labelled(line, number))
    up = families[_UP] = []
    up += [_labelled(b"rankd_worker_up %d" % (number in texts), number) for number in sorted(workers)]
    return b"".join(b"%b\n" % line for head, samples in families.items() for line in (head, *samples))


def _labelled(sample: bytes, worker: int) -> bytes:
    name, rest = _SAMPLE.fullmatch(sample).groups()  # type: ignore[union-attr]  # every line matches
    label = b'worker="%d"' % worker
    return b"%b{%b,%b" % (name, label, rest[1:]) if rest.startswith(b"{") else b"%b{%b}%b" % (name, label, rest)


def _gauge(name: str, text: str, source: Callable[[], float | None]) -> list[Metric]:
    value = source()
    return [] if value is None else [GaugeMetricFamily(name, text, value=value)]


def resident_bytes() -> int | None:
    """Return the resident memory of this process; None where the system does not report it."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")

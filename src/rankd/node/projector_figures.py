"""The metrics of a projector: its role, its lag, and whether it is ready.

    Projector → ProjectorFigures → /metrics and /readyz of probe_server.py

The projector's thread writes them, any thread reads them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from rankd.node.probe_server import Readiness

READY_WITHIN_S = 10.0  # since it last reached the ledger's head, and as the leader mirrored it
STARTING, STANDBY, ACTIVE = ROLES = ("starting", "standby", "active")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ProjectorFigures:
    """The metrics of a projector."""

    def __init__(self) -> None:
        """Begin in the role STARTING."""
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._role = Gauge("rankd_projector_role", "1 for the role it has now", ["role"], registry=registry)
        self._epoch = Gauge("rankd_projector_epoch", "Epoch it ranks under; 0: it does not rank", registry=registry)
        self._behind = Gauge(
            "rankd_projector_events_behind",
            "Events in the ledger that are not ranked yet",
            ["partition"],
            registry=registry,
        )
        self._events = Counter("rankd_projector_events", "Events ranked since the start", registry=registry)
        self._batches = Histogram(
            "rankd_projector_batch_seconds",
            "Seconds from reading events to their being sent to Redis",
            buckets=SECONDS,
            registry=registry,
        )
        self._stepped = Gauge(
            "rankd_projector_stepped_timestamp_seconds", "When the ledger was followed last", registry=registry
        )
        self._mirrored = Gauge(
            "rankd_projector_mirrored_timestamp_seconds",
            "When all that was in the ledger was in Redis last",
            registry=registry,
        )
        self._rows = Counter("rankd_projector_redis_entries", "Entries sent to Redis", registry=registry)
        self._catch_ups = Counter(
            "rankd_projector_redis_catch_ups",
            "Times that a board in Redis was behind and was sent what it lacked",
            registry=registry,
        )
        self._loads = Counter("rankd_projector_redis_loads", "Boards reloaded into Redis", registry=registry)
        self._standings = Gauge(
            "rankd_projector_standings_behind_seconds",
            "How old the standings in PostgreSQL are; 0 for one that does not rank",
            registry=registry,
        )
        self._rewrites = Gauge(
            "rankd_projector_standings_rewrites", "Times that all standings were rewritten", registry=registry
        )
        self._archives = Gauge(
            "rankd_projector_archives_waiting", "Windows that are final and not archived yet", registry=registry
        )
        self._archives_failed = Gauge(
            "rankd_projector_archive_failures", "Times that a window could not be archived", registry=registry
        )
        self._judged: tuple[Counter, Counter] | None = None  # of a log: refused, repeated
        self._lock = threading.Lock()
        self._has_role = STARTING
        self._level_at: float | None = None
        self._waits_for: str | None = "the ledger"
        self.set_role(STARTING, 0)

    # Written by the projector

    def set_role(self, role: str, epoch: int) -> None:
        """Set the role; a new role is not ready before it has caught up."""
        with self._lock:
            if self._has_role != role:
                self._level_at = None
            self._has_role = role
        for label in ROLES:
            self._role.labels(label).set(label == role)
        self._epoch.set(epoch)

    def set_waiting(self, why: str) -> None:
        """Set what the projector waits for."""
        with self._lock:
            self._waits_for = why

    def set_behind(self, behind: Sequence[int]) -> None:
        """Set the lag of each partition, in events."""
        for partition, count in enumerate(behind):
            self._behind.labels(str(partition)).set(count)

    def observe_step(self, seconds: float, events: int) -> None:
        """Count a successful step; a step without events is no batch."""
        self._stepped.set_to_current_time()
        if events:
            self._batches.observe(seconds)
            self._events.inc(events)

    def set_level(self, mirrored_ms: int | None) -> None:
        """Record that the ledger's head is ranked and, by the leader, was mirrored at `mirrored_ms`."""
        with self._lock:
            self._level_at, self._waits_for = monotonic(), None
        if mirrored_ms is not None:
            self._mirrored.set(mirrored_ms / 1_000)

    def count_sent(self, rows: int, catch_ups: int, loads: int) -> None:
        """Count rows, backfills and reloads sent to Redis."""
        self._rows.inc(rows)
        self._catch_ups.inc(catch_ups)
        self._loads.inc(loads)

    def set_kept(self, behind_s: float, rewrites: int, archives: int, archives_failed: int) -> None:
        """Set the state of stored standings and archives."""
        self._standings.set(behind_s)
        self._rewrites.set(rewrites)
        self._archives.set(archives)
        self._archives_failed.set(archives_failed)

    def count_judged(self, refused: int, repeated: int) -> None:
        """Count events of a log that were refused, and that came again."""
        if self._judged is None:
            registry = self._registry
            self._judged = (
                Counter(
                    "rankd_ledger_refused_events",
                    "Events of a Kafka ledger that became dead letters",
                    registry=registry,
                ),
                Counter("rankd_ledger_repeated_events", "Events of a Kafka ledger that came again", registry=registry),
            )
        for counter, count in zip(self._judged, (refused, repeated), strict=True):
            counter.inc(count)

    # Read by HTTP

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format; from any thread."""
        return generate_latest(self._registry)

    def readiness(self) -> Readiness:
        """Return whether it ranks, or follows closely enough to take over; from any thread."""
        with self._lock:
            role, level_at, waits_for = self._has_role, self._level_at, self._waits_for
        if level_at is not None and monotonic() - level_at <= READY_WITHIN_S:
            return Readiness(True, role, "")
        return Readiness(False, role, f"it waits for {waits_for}" if waits_for else "it is behind the ledger")

"""What `rankd relay` serves to Prometheus and to probes: how far it is, and whether it relays.

RelayFigures → RelayMetrics → node/probe_server.py
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rankd.node.probe_server import Readiness
from rankd.outbox.relay import RelayFigures


class RelayMetrics(Collector):
    """The metrics of a relay; from any thread."""

    def __init__(self, figures: RelayFigures) -> None:
        """The figures are read at each scrape."""
        self._figures = figures
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the figures, under the names that a server gives them."""
        relayed, lag = self._figures.relayed, self._figures.lag
        yield CounterMetricFamily("rankd_relayed_events", "Events that Kafka has confirmed", value=relayed)
        if lag is not None:
            yield GaugeMetricFamily("rankd_relay_lag_events", "Events of the ledger that Kafka has not confirmed", lag)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def readiness(self) -> Readiness:
        """Return whether it relays, or could take over."""
        role = "standby" if self._figures.lag is None else "active"
        is_ready = self._figures.reason is None
        return Readiness(is_ready, role, "" if is_ready else "it waits for Kafka or the ledger; its log says why")

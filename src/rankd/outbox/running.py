"""Relays as the configuration says: in a process of its own, or beside a server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from rankd.boards import Boards
from rankd.config.model import Config
from rankd.errors import InvalidValue, KafkaUnavailable, Unavailable
from rankd.kafka.address import client_settings
from rankd.kafka.clients import Backoff, KafkaAdmin, KafkaProducer, cluster_of
from rankd.ledger.port import Ledger
from rankd.node.ledger_tail import LedgerTail
from rankd.outbox.relay import RETRY_FIRST_S, RETRY_MAX_S, LeaseTerm, Relay, RelayFigures
from rankd.outbox.session import PRODUCER, OutboxTopic, RelaySession

SOURCES = "relay:"  # what the names of relays in the ledger begin with; the cluster and the topic follow


class ConfiguredRelay:
    """A configured relay, which is not connected yet."""

    def __init__(self, config: Config) -> None:
        """Refuse a configuration without brokers."""
        self._outbox = config.outbox
        if self._outbox.url == "none":
            raise InvalidValue("outbox.url", "must be set: the brokers, kafka://…, that events are relayed to")
        self._settings = client_settings(self._outbox.url, config.kafka, "outbox.url")
        self.figures = RelayFigures()

    def run(self, boards: Boards, tail: LedgerTail, stop: threading.Event, warn: Callable[[str], None]) -> None:
        """Relay until `stop` is set; wait for brokers that are away at the start. KafkaUnusable where they refuse."""
        backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        while not stop.is_set():
            try:
                self._topics()
                break
            except KafkaUnavailable as problem:
                self.figures.reason = str(problem)
                with suppress(Unavailable):
                    self.figures.lag = backlog_of(tail.ledger, self._outbox.topic)
                warn(f"the relay waits for Kafka: {problem}")
                backoff.pause(stop)
        Relay(tail.lease, self.figures, lambda term: self._relay(boards, tail, term)).run(stop)

    def relayed(self) -> int:
        """Return how many events the brokers have confirmed."""
        return self.figures.relayed

    def lag(self) -> int | None:
        """Return how many events of the ledger are not confirmed; None while another process relays."""
        return self.figures.lag

    def _relay(self, boards: Boards, tail: LedgerTail, term: LeaseTerm) -> None:
        try:
            events, tops = self._topics()
        except KafkaUnavailable:
            self.figures.lag = backlog_of(tail.ledger, self._outbox.topic)
            raise
        producer = KafkaProducer(self._settings, PRODUCER)
        try:
            cluster = cluster_of(producer.client, producer.reason)
            self.figures.reason = None
            RelaySession(
                tail.ledger,
                boards.sources,
                boards,
                producer,
                source=f"{SOURCES}{cluster}/{events.name}",
                events=events,
                tops=tops,
                term=term,
                figures=self.figures,
            ).run()
        finally:
            producer.drop()

    def _topics(self) -> tuple[OutboxTopic, OutboxTopic]:
        """Return both topics; those that are missing are created."""
        outbox, admin = self._outbox, KafkaAdmin(self._settings)
        kept = {"retention.ms": str(outbox.retention_ms)}
        newest = {"retention.ms": str(outbox.notifications_retention_ms), "cleanup.policy": "compact,delete"}
        events = admin.ensure_topic(outbox.topic, outbox.partitions, kept)
        tops = admin.ensure_topic(outbox.notifications_topic, outbox.notifications_partitions, newest)
        return OutboxTopic(outbox.topic, events), OutboxTopic(outbox.notifications_topic, tops)


def backlog_of(ledger: Ledger, topic: str) -> int:
    """Return how many events of a ledger were not relayed to a topic, as the ledger knows.

    The brokers that are away do not say which cluster they are: the relay counts that has come furthest.
    """
    relays = [name for name in ledger.sources() if name.startswith(SOURCES) and name.endswith(f"/{topic}")]
    relayed = [sum(max(0, offset - 1) for offset in ledger.source_offsets(name).values()) for name in relays]
    return sum(ledger.heads().sequences) - max(relayed, default=0)

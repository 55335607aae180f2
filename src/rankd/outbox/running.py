"""Relays as the configuration says: in a process of its own, or beside a server."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rankd.boards import Boards
from rankd.config.model import Config
from rankd.errors import InvalidValue, KafkaUnavailable
from rankd.kafka.address import client_settings
from rankd.kafka.clients import Backoff, KafkaAdmin, KafkaProducer, cluster_of
from rankd.node.ledger_tail import LedgerTail
from rankd.outbox.relay import RETRY_FIRST_S, RETRY_MAX_S, LeaseTerm, Relay, RelayFigures
from rankd.outbox.session import PRODUCER, OutboxTopic, RelaySession


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
        events, tops = self._topics()
        producer = KafkaProducer(self._settings, PRODUCER)
        try:
            cluster = cluster_of(producer.client, producer.reason)
            RelaySession(
                tail.ledger,
                boards.sources,
                boards,
                producer,
                source=f"relay:{cluster}/{events.name}",
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

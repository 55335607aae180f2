"""Consumes as the configuration says: in a process of its own, or beside a server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from rankd.config.model import Config
from rankd.consume.appending import ConsumerFigures, Intake
from rankd.consume.consumer import RETRY_FIRST_S, RETRY_MAX_S, ScoreConsumer
from rankd.consume.queue import DeadLetterQueue, LetterReader
from rankd.errors import InvalidValue, KafkaUnavailable
from rankd.kafka.address import client_settings
from rankd.kafka.clients import Backoff, KafkaAdmin
from rankd.kafka.dead_letters import DeadLetters

Warn = Callable[[str], None]


def open_letters(config: Config) -> LetterReader:
    """Open the dead letters of a Kafka ledger, which are on its own brokers."""
    settings = client_settings(config.ledger.url, config.kafka, "ledger.url")
    KafkaAdmin(settings).check_topic(config.consume.dead_letters)
    return LetterReader(settings, config.consume.dead_letters, f"{config.consume.group}-dlq")


class ConfiguredConsumer:
    """A configured consumer, which is not connected yet."""

    def __init__(self, config: Config) -> None:
        """Refuse a configuration without topics."""
        self._consume = config.consume
        if self._consume.url == "none" or not self._consume.topics:
            raise InvalidValue(
                "consume.url",
                "must be set, and consume.topics too: the brokers, kafka://…, and the topics with scores",
            )
        self._settings = client_settings(self._consume.url, config.kafka, "consume.url")
        self.figures = ConsumerFigures()

    def run(self, intake: Intake, stop: threading.Event, warn: Warn) -> None:
        """Consume until `stop` is set; wait for brokers that are away at the start. KafkaUnusable where they refuse."""
        consume, backoff = self._consume, Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        while not stop.is_set():
            try:
                dead_letters = self._dead_letters()
                break
            except KafkaUnavailable as problem:
                warn(f"the consumer waits for Kafka: {problem}")
                backoff.pause(stop)
        else:
            return
        ScoreConsumer(
            intake,
            self._settings,
            consume.topics,
            group=consume.group,
            batch_events_max=consume.batch_events_max,
            dead_letters=dead_letters,
            figures=self.figures,
        ).run(stop)

    def open_queue(self, intake: Intake) -> DeadLetterQueue:
        """Open the queue of dead letters."""
        return DeadLetterQueue(intake, self._settings, self._dead_letters(), self._consume.group)

    def counts(self) -> Mapping[str, int]:
        """Return counts of records by what became of them, for metrics."""
        figures = self.figures
        return {"appended": figures.consumed, "refused": figures.refused, "lost": figures.lost}

    def lag(self) -> int:
        """Return how many records of the partitions assigned here are not appended yet."""
        return sum(list(self.figures.lag.values()))

    def _dead_letters(self) -> DeadLetters:
        consume = self._consume
        admin = KafkaAdmin(self._settings)
        for topic in consume.topics:
            admin.check_topic(topic)
        return DeadLetters(consume.dead_letters, consume.dead_letters_retention_ms, self._settings)

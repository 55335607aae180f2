"""Produces records and returns their offsets, once all brokers in sync have them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, Message

from rankd.errors import KafkaUnavailable, KafkaUnusable
from rankd.kafka.clients import ANSWER_WAIT_S, Headers, KafkaProducer
from rankd.ledger.kafka.failures import as_ledger_failures, unavailable

_NO_HEADERS: Headers = []
_MORE: dict[str, str | bool] = {
    "linger.ms": "1",
    "delivery.report.only.error": False,  # the offsets come in reports
    "reconnect.backoff.max.ms": "1000",
}


class NewRecord(NamedTuple):
    """A record to produce."""

    value: bytes
    key: bytes | None = None
    partition: int = 0


class LogProducer:
    """Produces records, in order within each partition; from any thread, one at a time."""

    def __init__(self, settings: Mapping[str, str], wait_ms: int) -> None:
        """Begin to connect; `wait_ms` is how long a broker that is away is waited for."""
        self._settings = settings
        self._more = {**_MORE, "message.timeout.ms": str(wait_ms)}
        self._wait_s = wait_ms / 1_000
        self._lock = threading.Lock()
        # At once: it takes a while until the brokers have given it an id.
        self._producer: KafkaProducer | None = KafkaProducer(settings, self._more)

    def produce(self, topic: str, records: Sequence[NewRecord], at: int) -> dict[int, list[int]]:
        """Produce records of a time; return the offsets by partition, in order, once they are on stable storage.

        LedgerUnavailable where some may not be; they may yet appear.
        """
        with self._lock, as_ledger_failures():
            producer = self._producer or KafkaProducer(self._settings, self._more)
            self._producer = None  # unless it succeeds: after a failure, some of its records may still be under way
            try:
                offsets = self._deliver(producer, topic, records, at, monotonic() + self._wait_s + ANSWER_WAIT_S)
            except (KafkaUnavailable, KafkaUnusable):
                producer.drop()
                raise
            self._producer = producer
            return offsets

    @staticmethod
    def _deliver(
        producer: KafkaProducer, topic: str, records: Sequence[NewRecord], at: int, deadline_s: float
    ) -> dict[int, list[int]]:
        offsets: dict[int, list[int]] = {record.partition: [] for record in records}
        errors: list[KafkaError] = []
        last: list[Message] = []

        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets[message.partition()].append(message.offset())  # type: ignore[index,arg-type]
                last[:] = [message]
            else:
                errors.append(error)

        def check() -> None:
            if errors:
                producer.reason.raise_for(KafkaException(errors[0]), topic)
            if monotonic() > deadline_s:
                raise KafkaUnavailable(f"{topic}: Kafka at {producer.brokers} does not confirm records")

        producer.enqueue(
            ((topic, value, key, partition, note, None, at, _NO_HEADERS) for value, key, partition in records), check
        )
        while not producer.is_flushed(topic):
            check()
        check()
        if last and _is_stamped(last[0], at):
            raise unavailable(stamped_by_brokers(topic))
        return offsets

    def close(self) -> None:
        """Drop what is not confirmed."""
        with self._lock:
            if self._producer is not None:
                self._producer.drop()
                self._producer = None


def _is_stamped(message: Message, at: int) -> bool:
    """Return whether the brokers gave a record of this time another one.

    Records whose confirmation was lost with a leader are sent again, and their new leader confirms them as if it had
    stamped them, with the time that they have.
    """
    kind, time = message.timestamp()
    return kind != TIMESTAMP_CREATE_TIME and time != at


def stamped_by_brokers(topic: str) -> str:
    """Return why a topic cannot hold a ledger whose records have the brokers' time."""
    return f"{topic} gives records the time of its brokers; set message.timestamp.type=CreateTime on the topic"

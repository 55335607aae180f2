"""Topics of a test: created, filled and read with a plain client."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import count
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

WAIT_S = 60.0
QUEUED_MAX = 50_000
RECORD_BYTES_MAX = 10_000_000
_numbers = count(1)


class Topics:
    """Topics of one test on a broker that others use too."""

    def __init__(self, brokers: str, more: Mapping[str, Any] | None = None) -> None:
        self._settings: dict[str, Any] = {"bootstrap.servers": brokers, "log_level": 0, **(more or {})}
        self._admin = AdminClient(self._settings)
        own = {"enable.idempotence": True, "linger.ms": 5, "message.max.bytes": RECORD_BYTES_MAX}
        self._producer = Producer({**self._settings, **own})
        self._number = next(_numbers)

    def name(self, name: str) -> str:
        """Return a name that no other test has."""
        return f"{name}-{self._number}"

    def create(self, name: str, partitions: int = 1, **config: str) -> str:
        topic = self.name(name)
        self.create_named(topic, partitions, **config)
        return topic

    def create_named(self, topic: str, partitions: int, **config: str) -> None:
        """Create a topic of exactly this name."""
        new = NewTopic(topic, partitions, config={key.replace("_", "."): value for key, value in config.items()})
        self._admin.create_topics([new])[topic].result(WAIT_S)

    def configure(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def value_of(self, topic: str, name: str) -> str:
        """Return a setting of a topic, as the broker knows it."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entry: ConfigEntry = self._admin.describe_configs([resource])[resource].result(WAIT_S)[name]
        return str(entry.value)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(WAIT_S)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the records before an offset, as retention does."""
        place = TopicPartition(topic, partition, before)
        for deleted in self._admin.delete_records([place]).values():
            deleted.result(WAIT_S)

    def send(self, topic: str, records: Iterable[object], partition: int = -1) -> None:
        """Send values: objects as JSON, bytes as they are; (key, value) with a key."""
        for record in records:
            key, value = record if isinstance(record, tuple) else (None, record)
            encoded = value if isinstance(value, bytes | None) else json.dumps(value).encode()
            if len(self._producer) >= QUEUED_MAX:
                assert self._producer.flush(WAIT_S) == 0
            self._producer.produce(topic, encoded, key, partition=partition)
        assert self._producer.flush(WAIT_S) == 0

    def read(self, topic: str, records: int, partition: int = 0) -> list[Message]:
        """Return the first records of a partition."""
        consumer = Consumer({**self._settings, "group.id": "reader", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(topic, partition, 0)])
            messages: list[Message] = []
            deadline = monotonic() + WAIT_S
            while len(messages) < records:
                some = [message for message in consumer.consume(records - len(messages), 1.0) if not message.error()]
                assert some or monotonic() < deadline, "the records did not come in time"
                messages += some
            return messages
        finally:
            consumer.close()

    def headers(self, message: Message) -> dict[str, str]:
        """Return the headers of a record as text."""
        headers = message.headers() or ()
        return {header[0]: bytes(header[1] or b"").decode() for header in headers}  # type: ignore[arg-type]

    def end(self, topic: str, partition: int = 0) -> int:
        """Return the offset behind the last record."""
        consumer = Consumer({**self._settings, "group.id": "reader"})
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S)[1]
        finally:
            consumer.close()

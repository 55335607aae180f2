"""The producer: what Kafka does not confirm is an error, whatever became of the other records."""

from __future__ import annotations

import pytest
from tests.servers.kafka import KafkaBroker
from tests.servers.topics import Topics

from rankd.errors import KafkaUnavailable
from rankd.kafka.clients import KafkaProducer, SentRecord


def test_records_that_are_too_large_for_the_topic_are_named(kafka: KafkaBroker) -> None:
    topics = Topics(kafka.address)
    topic = topics.create("small", max_message_bytes="1000")
    producer = KafkaProducer({"bootstrap.servers": kafka.address, "compression.type": "none"})
    records: list[SentRecord] = [(b"ann", b"x", []), (b"bob", b"x" * 5_000, []), (b"cid", b"x", [])]

    refused = producer.send(topic, records)

    assert 1 in refused
    sent = [key for index, (key, _, _) in enumerate(records) if index not in refused]
    assert producer.send(topic, [(b"dan", b"x", [])]) == []
    end = topics.end(topic)
    assert [message.key() for message in topics.read(topic, end)] == [*sent, b"dan"]


def test_brokers_that_are_away_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankd.kafka.clients.DELIVERY_WAIT_S", 0.2)
    monkeypatch.setattr("rankd.kafka.clients.ANSWER_WAIT_S", 0.2)

    with pytest.raises(KafkaUnavailable, match="topic: Kafka"):
        KafkaProducer({"bootstrap.servers": "127.0.0.1:1"}).send("topic", [(None, b"x", [])])

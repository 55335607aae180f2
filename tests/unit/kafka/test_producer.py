"""The producer: what Kafka does not confirm is an error, whatever became of the other records."""

from __future__ import annotations

import pytest
from tests.servers.kafka import KafkaBroker
from tests.servers.topics import Topics

from rankd.errors import KafkaUnavailable, KafkaUnusable
from rankd.kafka.clients import KafkaProducer


def test_one_record_that_is_refused_fails_all_of_them(kafka: KafkaBroker) -> None:
    topics = Topics(kafka.address)
    topic = topics.create("small", max_message_bytes="1000")
    producer = KafkaProducer({"bootstrap.servers": kafka.address, "compression.type": "none"})

    with pytest.raises(KafkaUnusable, match=r"small-\d+: Kafka refuses a record of that size"):
        producer.send(topic, [(b"ann", b"x", []), (b"bob", b"x" * 5_000, []), (b"cid", b"x", [])])

    producer.send(topic, [(b"dan", b"x", [])])
    assert topics.read(topic, topics.end(topic))[-1].key() == b"dan"


def test_brokers_that_are_away_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankd.kafka.clients.DELIVERY_WAIT_S", 0.2)
    monkeypatch.setattr("rankd.kafka.clients.ANSWER_WAIT_S", 0.2)

    with pytest.raises(KafkaUnavailable, match="topic: Kafka"):
        KafkaProducer({"bootstrap.servers": "127.0.0.1:1"}).send("topic", [(None, b"x", [])])

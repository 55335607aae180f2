"""The topics of a ledger on Kafka: made once, by whoever comes first, and refused where they do not fit."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
from tests.contract.kafka_ledgers import KafkaStorage, NoBacklog
from tests.servers.kafka import KafkaBroker
from tests.servers.topics import Topics
from tests.servers.waiting import join_all

from rankd.config.model import KafkaConfig
from rankd.errors import InvalidValue, LedgerNewer, LedgerUnavailable
from rankd.kafka.address import client_settings
from rankd.ledger.kafka import KafkaLedger, migrate
from rankd.ledger.kafka.control import LedgerRecord, encode_ledger, encode_record
from rankd.ledger.kafka.topics import PARTITIONS, control_topic_of


def test_a_ledger_is_made_once(kafka: KafkaBroker) -> None:
    settings = client_settings(kafka.url, KafkaConfig())
    topics = Topics(kafka.address)
    topic = topics.name("made")

    assert migrate(settings, topic, retention_ms=7_200_000) == 0
    with closing(KafkaLedger(settings, topic, NoBacklog())) as ledger:
        assert ledger.partitions == PARTITIONS
        identity = ledger.identity
    assert migrate(settings, topic) == 1
    assert migrate(settings, topic, PARTITIONS) == 1
    with pytest.raises(InvalidValue, match="partitions: is 8 in this ledger and cannot be changed; for 5"):
        migrate(settings, topic, 5)
    with closing(KafkaLedger(settings, topic, NoBacklog())) as ledger:
        assert ledger.identity == identity
    expected = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime", "retention.bytes": "-1"}
    for name, retention in ((topic, "7200000"), (control_topic_of(topic), "-1")):
        topic_settings = {key: topics.value_of(name, key) for key in (*expected, "retention.ms")}
        assert topic_settings == {**expected, "retention.ms": retention}


@pytest.mark.parametrize("partitions", [0, 1_025])
def test_a_number_of_partitions_has_limits(kafka: KafkaBroker, partitions: int) -> None:
    with pytest.raises(InvalidValue, match="must be from 1 to 1024"):
        migrate(client_settings(kafka.url, KafkaConfig()), "limits", partitions)


def test_processes_that_make_a_ledger_at_once_make_the_same(kafka: KafkaBroker) -> None:
    settings = client_settings(kafka.url, KafkaConfig())
    topic = Topics(kafka.address).name("at-once")
    identities, problems = list[str](), list[BaseException]()

    def make() -> None:
        try:
            migrate(settings, topic, 2, retention_ms=-1)
            with closing(KafkaLedger(settings, topic, NoBacklog())) as ledger:
                identities.append(ledger.identity)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=make) for _ in range(3)]
    for thread in threads:
        thread.start()
    join_all(threads)

    assert problems == []
    assert len(identities) == 3
    assert len(set(identities)) == 1


def test_who_writes_a_second_ledger_into_the_topics_changes_nothing(kafka: KafkaBroker) -> None:
    storage = KafkaStorage(kafka.url, 2)
    with closing(storage.ledger()) as ledger:
        identity = ledger.identity
    storage.topics.send(storage.control_topic, [encode_ledger("another", 64)])

    with closing(storage.ledger()) as ledger:
        assert (ledger.identity, ledger.partitions) == (identity, 2)


def test_topics_that_nobody_made_are_refused(kafka: KafkaBroker) -> None:
    settings = client_settings(kafka.url, KafkaConfig())

    with pytest.raises(LedgerUnavailable, match="run `rankd migrate`"):
        KafkaLedger(settings, "nobody-made-them", NoBacklog())


def test_a_ledger_whose_creation_is_incomplete_is_refused_until_it_is_completed(kafka: KafkaBroker) -> None:
    settings = client_settings(kafka.url, KafkaConfig())
    topics = Topics(kafka.address)
    topic = topics.create("incomplete", 3)
    topics.create_named(control_topic_of(topic), 1)

    with pytest.raises(LedgerUnavailable, match="incomplete: run `rankd migrate`"):
        KafkaLedger(settings, topic, NoBacklog())
    with pytest.raises(InvalidValue, match="is 3 in this ledger"):
        migrate(settings, topic, 4)
    assert migrate(settings, topic, 3) == 0
    KafkaLedger(settings, topic, NoBacklog()).close()


def test_a_ledger_of_a_newer_version_is_refused(kafka: KafkaBroker) -> None:
    settings = client_settings(kafka.url, KafkaConfig())
    topics = Topics(kafka.address)
    topic = topics.create("newer", 1)
    topics.create_named(control_topic_of(topic), 1)
    topics.send(control_topic_of(topic), [encode_record(LedgerRecord("newer", 1, version=2))])

    with pytest.raises(LedgerNewer, match="has version 2"):
        KafkaLedger(settings, topic, NoBacklog())


def test_a_topic_of_events_that_was_made_anew_with_fewer_partitions_is_refused(kafka: KafkaBroker) -> None:
    settings = client_settings(kafka.url, KafkaConfig())
    topics = Topics(kafka.address)
    topic = topics.create("fewer", 2)
    topics.create_named(control_topic_of(topic), 1)
    topics.send(control_topic_of(topic), [encode_ledger("one", 8)])

    with pytest.raises(LedgerUnavailable, match="has 2 partitions, and its ledger has 8"):
        KafkaLedger(settings, topic, NoBacklog())

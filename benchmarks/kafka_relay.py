"""Events that leave through Kafka: relayed from SQLite and from PostgreSQL, beside a bare producer of the same bytes.

    a ledger that was filled before → read, encoded, sent, confirmed | records of a list, sent, confirmed

The broker runs beside us on the same processors. The producers have the same settings: idempotent, acks=all, lz4. The
clock runs from when the relay knows where to begin until the brokers have confirmed all events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import median

import msgspec
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from tests.servers.kafka import KafkaBroker, running_kafka
from tests.servers.postgres import binaries, running_postgres
from tests.servers.topics import Topics

from benchmarks.disk import folder_on_disk
from benchmarks.figures import KAFKA, RANKD, Row, Scale, Series
from benchmarks.kafka_bench import BOARD, PARTITIONS, STOP_S, WAIT_S, WINDOWS
from benchmarks.postgres_append import SETTINGS
from benchmarks.workload import SEED
from rankd.boards import Boards
from rankd.config.model import Config, LedgerConfig, OutboxConfig, RanksConfig
from rankd.domain.position import parse_position
from rankd.kafka.clients import Record
from rankd.node.installation import Installation, installation_of
from rankd.node.shared_stores import SharedStores
from rankd.outbox.records import POSITION
from rankd.outbox.running import ConfiguredRelay

BATCH_EVENTS = 10_000
READ_AT_ONCE = 5_000
POLL_S = 0.001
COUNT_ABOVE_BITS = 64
BARE = {"enable.idempotence": True, "acks": "all", "linger.ms": 5, "compression.type": "lz4"}


class RelayedScore(msgspec.Struct):
    """What is added up of a record; a control event has no score."""

    score: int = 0


def kafka_relay_rows(scale: Scale) -> Iterator[Row]:
    """A row for each ledger: what a relayed event costs."""
    with running_kafka() as broker, folder_on_disk() as folder, ExitStack() as stack:
        yield _row(scale, broker, "kafka_relay_sqlite", f"sqlite:{folder / 'data'}", folder)
        if binaries() is not None:
            folder.chmod(0o711)  # the server has a user of its own
            url = stack.enter_context(running_postgres(SETTINGS, parent=folder)).url()
            SharedStores(url).migrate()
            yield _row(scale, broker, "kafka_relay_postgres", url, folder)


def _row(scale: Scale, broker: KafkaBroker, name: str, ledger: str, folder: Path) -> Row:
    series, topics, events = Series(), Topics(broker.address), scale.kafka_records
    config = Config(ledger=LedgerConfig(url=ledger), ranks=RanksConfig(folder=str(folder / "node")))
    installation = installation_of(config)
    with installation.open_boards() as boards:
        _fill(boards, scale)
        for number in range(scale.rounds):
            outbox = OutboxConfig(
                url=broker.url,
                topic=topics.name(f"{name}-{number}"),
                notifications_topic=topics.name(f"{name}-tops"),
                partitions=PARTITIONS,
            )
            relayed_ns = _relay(ConfiguredRelay(Config(outbox=outbox)), installation, boards)
            records = _records(topics, broker.address, outbox.topic)
            bare = topics.create(f"{name}-bare-{number}", PARTITIONS)
            bare_ns = _produce(broker.address, bare, records)
            series.add(RANKD, relayed_ns / events, _sum(records))
            series.add(KAFKA, bare_ns / events, _sum(_records(topics, broker.address, bare)))
            topics.delete(outbox.topic)
            topics.delete(bare)
    extra = {"events_per_s": 1e9 / median(series.samples[RANKD])}
    note = "kafka: a bare producer of the same keys, values and headers, from memory"
    return series.row(name, events, "ns_per_event", extra, note, judged=not scale.smoke)


def _fill(boards: Boards, scale: Scale) -> None:
    chosen = Random(SEED)
    boards.define(BOARD, keep="latest", windows=WINDOWS)
    for first in range(0, scale.kafka_records, BATCH_EVENTS):
        scores = range(first, min(first + BATCH_EVENTS, scale.kafka_records))
        players = [f"user_{chosen.randrange(scale.kafka_players):08}" for _ in scores]
        boards.submit_many(BOARD, players=players, scores=[*scores])


def _relay(relay: ConfiguredRelay, installation: Installation, boards: Boards) -> float:
    """Return the nanoseconds until all events were confirmed."""
    stop, pause, deadline_s = threading.Event(), threading.Event(), time.monotonic() + WAIT_S
    with installation.open_tail(boards) as tail:
        thread = threading.Thread(target=relay.run, args=(boards, tail, stop, print))
        thread.start()
        try:
            while relay.lag() is None and time.monotonic() < deadline_s:
                pause.wait(POLL_S)
            began_ns, waiting = time.perf_counter_ns(), relay.lag()
            while relay.lag() and time.monotonic() < deadline_s:
                pause.wait(POLL_S)
            spent_ns = time.perf_counter_ns() - began_ns
        finally:
            stop.set()
            thread.join(STOP_S)
    if not waiting or relay.lag():
        raise RuntimeError("the relay did not begin with everything, or did not come to the end")
    return spent_ns


def _produce(brokers: str, topic: str, records: Sequence[Record]) -> float:
    """Return the nanoseconds until all records were confirmed."""
    producer = Producer({"bootstrap.servers": brokers, **BARE})
    producer.list_topics(topic, timeout=STOP_S)
    own = [(topic, *record[1:]) for record in records]
    began_ns = time.perf_counter_ns()
    for record in own:
        while True:
            try:
                producer.produce(*record)
                break
            except BufferError:
                producer.poll(POLL_S)
    if producer.flush(STOP_S):
        raise RuntimeError("the broker did not take all records")
    return time.perf_counter_ns() - began_ns


def _records(topics: Topics, brokers: str, topic: str) -> list[Record]:
    """Return what a topic holds, as it was sent: in the order of the ledger, for one partition of it."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "bench", "enable.auto.commit": False})
    try:
        places = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        wanted = sum(consumer.get_watermark_offsets(place, timeout=STOP_S)[1] for place in places)
        consumer.assign(places)
        messages: list[Message] = []
        while len(messages) < wanted:
            some = consumer.consume(min(READ_AT_ONCE, wanted - len(messages)), STOP_S)
            if not some:
                raise RuntimeError("the broker does not send the records")
            messages += some
    finally:
        consumer.close()
    read = []
    for message in messages:
        headers = topics.headers(message)
        position = parse_position(headers[POSITION])
        sent = [(name, value.encode()) for name, value in headers.items()]
        record: Record = (topic, message.value(), message.key(), message.partition() or 0, None, None, 0, [*sent])
        read.append((position.sequence, position.partition, record))
    return [record for _, _, record in sorted(read, key=lambda row: row[:2])]


def _sum(records: Sequence[Record]) -> int:
    """Return how many records there are, above the sum of their scores."""
    scores = (msgspec.json.decode(record[1] or b"", type=RelayedScore).score for record in records)
    return (len(records) << COUNT_ABOVE_BITS) + sum(scores)

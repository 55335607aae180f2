"""Scores that arrive through Kafka: consumed into a folder, beside a bare consumer of the same bytes.

    records are sent once → a rank in five windows for each, synced | read and dropped

The broker runs beside us on the same processors. Sending is outside the clock.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from random import Random
from statistics import median

from confluent_kafka import Consumer, TopicPartition
from tests.servers.kafka import running_kafka
from tests.servers.topics import Topics
from tests.servers.waiting import wait_until

import rankd
from benchmarks.disk import folder_on_disk
from benchmarks.figures import KAFKA, RANKD, Row, Scale, Series
from benchmarks.workload import SEED
from rankd.config.model import Config, ConsumeConfig
from rankd.consume.running import ConfiguredConsumer

BOARD = "arcade"
WINDOWS = ["all_time", "monthly", "weekly", "daily", "hourly"]
PARTITIONS = 6
AT_ONCE = 5_000
WAIT_S = 600.0
STOP_S = 60.0


def kafka_rows(scale: Scale) -> Iterator[Row]:
    """One row: what a consumed record costs."""
    series, records = Series(), scale.kafka_records
    chosen = Random(SEED)
    values = [
        json.dumps(
            {"board": BOARD, "player": f"user_{chosen.randrange(scale.kafka_players):08}", "score": number}
        ).encode()
        for number in range(records)
    ]
    with running_kafka() as broker, folder_on_disk() as folder, rankd.open(folder / "data") as boards:
        boards.define(BOARD, keep="latest", windows=WINDOWS)
        topics = Topics(broker.address)
        topic = topics.create("bench", PARTITIONS)
        for number in range(scale.rounds):
            topics.send(topic, values)
            consume = ConsumeConfig(url=broker.url, topics=(topic,), dead_letters=topics.name("dead"))
            consumer = ConfiguredConsumer(Config(consume=consume))
            series.add(RANKD, _consume(consumer, boards, records) / records, records)
            series.add(KAFKA, _read(broker.address, topic, number * records, records) / records, records)
    extra = {"records_per_s": 1e9 / median(series.samples[RANKD])}
    note = "kafka: a bare consumer that drops what it reads, 5,000 records at a time"
    yield series.row("kafka_consume", records, "ns_per_record", extra, note, judged=not scale.smoke)


def _consume(consumer: ConfiguredConsumer, boards: rankd.Boards, records: int) -> float:
    """Return the nanoseconds from the first record to the last commit."""
    stop, figures = threading.Event(), consumer.figures
    thread = threading.Thread(target=consumer.run, args=(boards.sources, stop, print))
    thread.start()
    try:
        wait_until(lambda: figures.consumed > 0, WAIT_S)
        first, began_ns = figures.consumed, time.perf_counter_ns()
        wait_until(lambda: figures.consumed == records, WAIT_S)
        spent_ns = time.perf_counter_ns() - began_ns
        return spent_ns * records / max(1, records - first)
    finally:
        stop.set()
        thread.join(STOP_S)


def _read(brokers: str, topic: str, before: int, records: int) -> float:
    """Return the nanoseconds to read the newest records, which are spread over the partitions."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "bare", "enable.auto.commit": False})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, part), timeout=STOP_S)[1] for part in range(PARTITIONS)
        ]
        skipped = [end * before // (before + records) for end in ends]
        consumer.assign([TopicPartition(topic, part, offset) for part, offset in enumerate(skipped)])
        wanted, done = sum(ends) - sum(skipped), 0
        began_ns = time.perf_counter_ns()
        while done < wanted:
            done += len(consumer.consume(min(AT_ONCE, wanted - done), STOP_S))
        return (time.perf_counter_ns() - began_ns) * records / wanted
    finally:
        consumer.close()

"""A burst into a topic: ten times the sustained rate for half a minute, and how far ranks fall behind meanwhile.

    a sender of its own → topic → consumed into a folder, five windows an event, synced

A record's lag is the time from when it was sent until it is ranked. All clocks are the machine's monotonic one.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random

import msgspec
from confluent_kafka import Producer
from tests.servers.kafka import KafkaBroker, running_kafka
from tests.servers.topics import Topics
from tests.servers.waiting import wait_until

import rankd
from benchmarks.disk import folder_on_disk
from benchmarks.figures import QUIET, RANKD, Row, Scale, Series
from benchmarks.isolated import run_isolated
from benchmarks.kafka_bench import BOARD, PARTITIONS, STOP_S, WAIT_S, WINDOWS
from benchmarks.workload import SEED
from rankd.config.model import Config, ConsumeConfig
from rankd.consume.running import ConfiguredConsumer

BURST_TIMES = 10
TICK_S = 0.01
SAMPLE_EVERY_S = 0.005
SETTLED = 0.5  # the last half of what is sent at the sustained rate after the burst shows the recovered lag
VALUES = 100_000  # different ones, made before anything is sent
PAGE = 1_000

Stamp = tuple[int, int]  # an instant in ns, and how many records there were by then


class Sending(msgspec.Struct):
    """What the sender is asked for: its phases are (records per second, seconds)."""

    brokers: str
    topic: str
    players: int
    phases: list[tuple[int, float]]


class Sent(msgspec.Struct):
    """What was sent by when, in each phase; counts begin with the first phase."""

    phases: list[list[Stamp]]


def kafka_burst_rows(scale: Scale) -> Iterator[Row]:
    """One row: the lag after a burst beside the lag before it."""
    series, extra = Series(), {}
    rate, seconds = scale.kafka_records_per_s, scale.kafka_burst_s
    with running_kafka() as broker, folder_on_disk() as folder, rankd.open(folder / "data") as boards:
        boards.define(BOARD, keep="sum", windows=WINDOWS)
        phases, consumed = _sent_and_consumed(broker, boards, scale)
        before, during, after = (_lags_ns(phase, consumed) for phase in phases)
        settled = after[int(len(after) * SETTLED) :]
        sent = phases[-1][-1][1]
        ranked = _ranked(boards)
        series.add(RANKD, _p99(settled), ranked)
        series.add(QUIET, _p99(before), sent)
        ended_ns = phases[1][-1][0]
        drained_ns = consumed[bisect_left(consumed, phases[1][-1][1], key=lambda stamp: stamp[1])][0]
        extra = {
            "sustained_per_s": float(rate),
            "burst_p99_ms": _p99(during) / 1e6,
            "burst_worked_off_s": max(0, drained_ns - ended_ns) / 1e9,
            "backlog_records_max": float(_backlog_max(phases, consumed)),
        }
    note = f"{rate:,} records/s, {BURST_TIMES} times as many for {seconds:g} s, then {rate:,} again; quiet: before"
    yield series.row("kafka_burst_p99", sent, "ns_p99", extra, note, judged=not scale.smoke)


def _sent_and_consumed(
    broker: KafkaBroker, boards: rankd.Boards, scale: Scale
) -> tuple[list[list[Stamp]], list[Stamp]]:
    topics = Topics(broker.address)
    topic = topics.create("burst", PARTITIONS)
    rate, seconds = scale.kafka_records_per_s, scale.kafka_burst_s
    phases = [(rate, seconds / 2), (rate * BURST_TIMES, seconds), (rate, seconds)]
    consume = ConsumeConfig(url=broker.url, topics=(topic,), dead_letters=topics.name("dead"))
    consumer = ConfiguredConsumer(Config(consume=consume))
    stop, consumed = threading.Event(), list[Stamp]()

    def sample() -> None:
        while not stop.wait(SAMPLE_EVERY_S):
            consumed.append((time.monotonic_ns(), consumer.figures.consumed))

    threads = [
        threading.Thread(target=consumer.run, args=(boards.sources, stop, print)),
        threading.Thread(target=sample),
    ]
    for thread in threads:
        thread.start()
    try:
        topics.send(topic, [_value(Random(SEED), scale.kafka_players)])
        wait_until(lambda: consumer.figures.consumed == 1, WAIT_S)  # it has its partitions
        with ThreadPoolExecutor(1) as sender:
            sending = Sending(broker.address, topic, scale.kafka_players, phases)
            sent = sender.submit(run_isolated, "benchmarks.kafka_burst", sending, Sent).result(WAIT_S)
        wait_until(lambda: consumer.figures.consumed == sent.phases[-1][-1][1] + 1, WAIT_S)
        wait_until(lambda: consumed[-1][1] == consumer.figures.consumed, WAIT_S)
    finally:
        stop.set()
        for thread in threads:
            thread.join(STOP_S)
    return [[(at, count + 1) for at, count in phase] for phase in sent.phases], consumed


def _ranked(boards: rankd.Boards) -> int:
    """Return the sum of all scores: each record adds one."""
    total = boards.top(BOARD, 1).total
    pages = (boards.range(BOARD, first, first + PAGE - 1) for first in range(1, total + 1, PAGE))
    return sum(entry.score for page in pages for entry in page.entries)


def _lags_ns(phase: Sequence[Stamp], consumed: Sequence[Stamp]) -> list[int]:
    """Return the lag of the last record of each tick, in the order in which they were sent."""
    counts = [count for _, count in consumed]
    return [max(0, consumed[bisect_left(counts, count)][0] - at) for at, count in phase]


def _p99(lags: Sequence[int]) -> float:
    return float(sorted(lags)[int(len(lags) * 0.99)])


def _backlog_max(phases: Sequence[Sequence[Stamp]], consumed: Sequence[Stamp]) -> int:
    instants = [at for at, _ in consumed]
    return max(count - consumed[max(0, bisect_left(instants, at) - 1)][1] for phase in phases for at, count in phase)


def _value(chosen: Random, players: int) -> bytes:
    return json.dumps({"board": BOARD, "player": f"user_{chosen.randrange(players):08}", "score": 1}).encode()


def send(sending: Sending) -> Sent:
    """Send at the rate of each phase, a tick at a time; a sender that falls behind says so by its stamps."""
    chosen = Random(SEED)
    values = [_value(chosen, sending.players) for _ in range(VALUES)]
    producer = Producer({"bootstrap.servers": sending.brokers, "enable.idempotence": True, "linger.ms": 5})
    phases: list[list[Stamp]] = []
    count, due_s, pause = 0, time.monotonic(), threading.Event()
    for rate, seconds in sending.phases:
        stamps: list[Stamp] = []
        for _ in range(int(seconds / TICK_S)):
            due_s += TICK_S
            for _ in range(int(rate * TICK_S)):
                while True:
                    try:
                        producer.produce(sending.topic, values[count % VALUES])
                        break
                    except BufferError:
                        producer.poll(TICK_S)
                count += 1
            producer.poll(0)
            stamps.append((time.monotonic_ns(), count))
            pause.wait(max(0.0, due_s - time.monotonic()))
        phases.append(stamps)
    if producer.flush(STOP_S):
        raise RuntimeError("the broker did not take all records")
    return Sent(phases)


if __name__ == "__main__":
    print(msgspec.json.encode(send(msgspec.json.decode(sys.argv[1], type=Sending))).decode())

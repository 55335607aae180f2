"""A log whose brokers are away, or lose a leader: an append waits for a while, and can be sent again."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest
from tests.contract.kafka_ledgers import KafkaStorage
from tests.contract.ledger_drafts import AT, PLAYERS, control, draft, events_in, everything
from tests.servers.fixtures_kafka import needs_kafka
from tests.servers.kafka import KafkaBroker, KafkaCluster
from tests.servers.load_bound import LoadBound
from tests.servers.slow_line import SlowLine
from tests.servers.waiting import join_all, wait_until

from rankd.errors import LedgerUnavailable
from rankd.ledger.kafka import KafkaLedger
from rankd.ledger.port import KEY_BYTES, Appended

PARTITIONS = 2
WAIT_MS = 2_000
GRACE_S = 10.0  # of a busy machine
LONG_WAIT_MS = 60_000
LINE_DELAY_S, CUTS = 0.2, 6


@pytest.fixture
def storage(own_kafka: KafkaBroker) -> KafkaStorage:
    return KafkaStorage(own_kafka.url, PARTITIONS, wait_ms=WAIT_MS)


@pytest.fixture
def ledger(storage: KafkaStorage) -> Iterator[KafkaLedger]:
    with closing(storage.ledger()) as ledger:
        yield ledger


def keys_in(ledger: KafkaLedger) -> list[bytes]:
    """Return the keys of all events, as often as they are there."""
    keys = []
    position = [0] * ledger.partitions
    while parts := ledger.read(position, 1_000):
        for part in parts:
            position[part.partition] = part.event_run.first + len(part.event_run) - 1
            assert part.log is not None
            packed = part.log.keys or b""
            keys += [packed[start : start + KEY_BYTES] for start in range(0, len(packed), KEY_BYTES)]
    return keys


def refused(call: Callable[[], object], within_s: float) -> None:
    began_s = monotonic()
    with pytest.raises(LedgerUnavailable) as raised:
        call()
    assert monotonic() - began_s < within_s
    assert "127.0.0.1" not in raised.value.public_message


def test_while_the_brokers_are_away_every_call_says_so_in_time(own_kafka: KafkaBroker, ledger: KafkaLedger) -> None:
    ledger.append(draft(ledger, *((player, 1) for player in PLAYERS)))
    late = draft(ledger, *((player, 2) for player in PLAYERS), key="k")
    assert len(events_in(ledger)) == len(PLAYERS)
    ends = ledger.heads().sequences
    own_kafka.kill()

    refused(lambda: ledger.append(late), WAIT_MS / 1_000 + GRACE_S)
    refused(lambda: ledger.append_control([control()], seen=0), WAIT_MS / 1_000 + GRACE_S)
    refused(ledger.heads, GRACE_S + 5)
    refused(lambda: ledger.read(ends, 10), GRACE_S + 5)
    refused(lambda: ledger.event(0, 1), GRACE_S + 5)

    own_kafka.start()
    bound = LoadBound()
    while bound.take():
        try:
            ledger.append(late)
            break
        except LedgerUnavailable:
            continue
    keys = [key for key in keys_in(ledger) if any(key)]
    assert len(set(keys)) == len(PLAYERS)  # those that were written twice are known by their keys
    wait_until(lambda: ledger.heads().control == 0)
    (event,) = ledger.append_control([control()], seen=0)
    assert event.number == 1


def test_an_append_waits_for_brokers_that_come_back_in_time(own_kafka: KafkaBroker) -> None:
    storage = KafkaStorage(own_kafka.url, PARTITIONS, wait_ms=LONG_WAIT_MS)
    with closing(storage.ledger()) as ledger:
        ledger.append(draft(ledger, *((player, 1) for player in PLAYERS)))
        late = draft(ledger, *((player, 2) for player in PLAYERS), at=AT + 1)
        done = list[Appended]()
        own_kafka.kill()
        waiting = threading.Thread(target=lambda: done.append(ledger.append(late)))
        waiting.start()
        waiting.join(1.0)
        assert not done

        own_kafka.start()

        join_all([waiting])
        (appended,) = done
        assert appended.positions(0, len(PLAYERS)) == dict(enumerate(ledger.heads().sequences))
        assert len(events_in(ledger)) == 2 * len(PLAYERS)


def test_nothing_is_lost_when_the_leader_of_a_partition_is_killed(kafka_cluster: KafkaCluster) -> None:
    storage = KafkaStorage(kafka_cluster.url, PARTITIONS, wait_ms=LONG_WAIT_MS)
    with closing(storage.ledger()) as ledger:
        written = list[tuple[str, int]]()
        for number in range(40):
            if number == 10:
                kafka_cluster.leader(storage.topic, 1).kill()
            events = [(player, number) for player in PLAYERS[:6]]
            ledger.append(draft(ledger, *events))
            written += events
            if number == 20:
                ledger.append_control([control()], seen=0)

        bound = LoadBound()
        while bound.take():
            try:
                rows = everything(ledger)
                break
            except LedgerUnavailable:
                continue
        player_scores = sorted((row.player, row.score) for partition in rows for row in partition if row.player)
        assert player_scores == sorted(written)


@pytest.fixture
def line(tmp_path: Path) -> Iterator[SlowLine]:
    """A slow line to a broker that is reached by nothing else."""
    needs_kafka()
    broker = KafkaBroker(tmp_path)
    line = SlowLine(broker.port, LINE_DELAY_S)
    broker.set({"advertised.listeners": f"BROKER://127.0.0.1:{line.port}"})
    try:
        broker.start()
        yield line
    finally:
        line.close()
        broker.kill()


def test_records_whose_confirmation_is_lost_are_confirmed_when_they_are_sent_again(line: SlowLine) -> None:
    """As when a leader is killed: the records are there, and the client does not know."""
    storage = KafkaStorage(f"kafka://127.0.0.1:{line.port}", PARTITIONS, wait_ms=LONG_WAIT_MS)
    pause, chosen, refusals = threading.Event(), random.Random(1), list[LedgerUnavailable]()
    with closing(storage.ledger()) as ledger:

        def append(score: int) -> None:
            try:
                ledger.append(draft(ledger, *((player, score) for player in PLAYERS), key=f"k-{score}"))
            except LedgerUnavailable as problem:
                refusals.append(problem)

        append(0)  # the client is connected, and every broker knows the context
        for score in range(1, CUTS + 1):
            appending = threading.Thread(target=append, args=(score,))
            appending.start()
            pause.wait(chosen.uniform(LINE_DELAY_S / 2, LINE_DELAY_S))
            line.cut()
            join_all([appending])
        assert refusals == []
        keys = keys_in(ledger)
    assert len(keys) == len(set(keys)) == (CUTS + 1) * len(PLAYERS)

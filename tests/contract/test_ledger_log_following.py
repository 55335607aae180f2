"""Following a log: time marks, waiting, and several readers at once."""

from __future__ import annotations

import threading
from time import monotonic

import pytest
from tests.contract.kafka_ledgers import LOG_PARTITIONS, OpenLog, log_of, parts_of
from tests.contract.ledger_drafts import (
    AT,
    PLAYERS,
    WAIT_S,
    Reader,
    draft,
    everything,
    player_in,
)
from tests.servers.load_bound import LoadBound
from tests.servers.waiting import join_all

from rankd.ledger.kafka import KafkaLedger, reading
from rankd.ledger.port import MARK


@pytest.fixture
def ledger(open_log: OpenLog) -> KafkaLedger:
    return open_log()


# Time marks


def test_a_partition_that_keeps_an_event_waiting_is_marked_with_a_later_time(ledger: KafkaLedger) -> None:
    players = [player_in(partition, partitions=LOG_PARTITIONS) for partition in range(LOG_PARTITIONS)]
    ledger.append(draft(ledger, (players[0], 1), at=AT))
    ledger.append(draft(ledger, (players[1], 1), at=AT + 500))
    ledger.tend()
    parts_of(ledger)
    assert ledger.heads().sequences == (1, 1, 0)

    ledger.tend(awaited=AT)

    assert ledger.heads().sequences == (2, 1, 1)
    marks = parts_of(ledger, [1, 1, 0])
    assert [(part.partition, part.event_run.context, len(part.event_run)) for part in marks] == [
        (0, MARK, 1),
        (2, MARK, 1),
    ]
    assert all(log_of(part).times[0] == AT + 500 for part in marks)
    ledger.tend(awaited=AT)  # all have passed it
    assert ledger.heads().sequences == (2, 1, 1)
    ledger.tend(awaited=AT + 500)
    assert ledger.heads().sequences == (3, 2, 2)
    assert {log_of(part).times[0] for part in parts_of(ledger, [2, 1, 1])} == {AT + 501}
    assert ledger.heads().at == AT + 500  # a mark is ahead of the clock, and what is due is not due before its time


# Following


def test_a_wait_ends_when_another_process_appends(open_log: OpenLog) -> None:
    ledger, other = open_log(), open_log()
    reader = Reader(ledger)
    assert reader.read() == 0
    began_s = monotonic()
    ledger.wait(0.3)
    assert monotonic() - began_s >= 0.3
    appending = threading.Timer(0.2, lambda: other.append(draft(other, ("alice", 1))))
    appending.start()

    began_s = monotonic()
    ledger.wait(WAIT_S)

    assert monotonic() - began_s < WAIT_S / 2
    assert reader.read() == 1
    join_all([appending])


def test_who_reads_from_the_beginning_keeps_nobody_from_following(open_log: OpenLog) -> None:
    ledger, bound = open_log(), LoadBound()
    followers = [Reader(ledger, events_max) for events_max in (1_000, 7)]
    problems: list[BaseException] = []
    done = threading.Event()

    def read_again() -> None:
        try:
            while bound.take() and not done.is_set():
                everything(ledger, events_max=50)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=read_again) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(30):
        ledger.append(draft(ledger, *((player, number) for player in PLAYERS)))
        for follower in followers:
            ledger.wait(0.01)
            follower.read()
    done.set()
    join_all(threads)
    assert problems == []
    expected = everything(ledger)
    assert sum(map(len, expected)) == 30 * len(PLAYERS)
    for follower in followers:
        while follower.read():
            pass
        assert follower.rows == expected


def test_what_a_partition_has_that_waits_is_read_later(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "QUEUED_MAX", 20)
    writer, ledger = open_log(), open_log()
    for number in range(40):
        writer.append(draft(writer, *((player, number) for player in PLAYERS)))
    position, partition_scores = [0] * LOG_PARTITIONS, [list[int]() for _ in range(LOG_PARTITIONS)]

    def read(skipping: set[int], events_max: int) -> bool:
        parts = ledger.read(position, events_max, skipping)
        for part in parts:
            assert part.event_run.first == position[part.partition] + 1
            position[part.partition] += len(part.event_run)
            partition_scores[part.partition] += part.event_run.score
        return bool(parts)

    while read({0}, 50):
        pass
    assert position[0] == 0
    writer.append(draft(writer, *((player, 40) for player in PLAYERS)))
    while read(set(), 70):
        pass
    assert partition_scores == [[row.score for row in rows] for rows in everything(writer)]


def test_a_draft_may_be_larger_than_what_a_client_holds(ledger: KafkaLedger) -> None:
    events = 120_000
    appended = ledger.append(draft(ledger, *((PLAYERS[number % 24], number) for number in range(events))))

    assert sum(ledger.heads().sequences) == events
    assert dict(enumerate(ledger.heads().sequences)) == appended.end

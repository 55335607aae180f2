"""Reads the event partitions forward.

A LogReader has one consumer, which fetches all partitions ahead, and queues of what has arrived. There are a few of
them, so that a follower goes on where it was while something else reads from further back.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic

from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, KafkaError, Message, TopicPartition

from rankd.errors import LedgerDamaged
from rankd.kafka.clients import ANSWER_WAIT_S, Reason, open_consumer, raise_translated
from rankd.ledger.kafka.control_topic import CONSUMER, GROUP
from rankd.ledger.kafka.failures import as_ledger_failures, unavailable
from rankd.ledger.kafka.producing import stamped_by_brokers
from rankd.ledger.kafka.records import EventRecord

READERS_MAX = 4
FETCHED_MAX = 10_000  # records that are taken from the client at once
QUEUED_MAX = 50_000  # of a partition that is not read on; then it is paused
SILENCE_S = 0.2  # a read returns what it has when nothing more comes in so long
SLICE_S = 0.05  # of a wait, after which a read may begin
_FETCH = {
    "enable.partition.eof": "true",
    "fetch.wait.max.ms": "100",
    "fetch.error.backoff.ms": "100",
    "fetch.queue.backoff.ms": "20",
    "queued.min.messages": "20000",
    "queued.max.messages.kbytes": "16384",
}
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class LogReader:
    """One position in every partition, and what was fetched behind it; one thread at a time uses it."""

    def __init__(self, settings: Mapping[str, str], topic: str, partitions: int) -> None:
        """It stands nowhere yet."""
        self.lock = threading.Lock()
        self.wanted = 0  # reads that wait for the lock
        self.next: list[int] | None = None  # the offsets to hand out next
        self.ends = [0] * partitions  # behind the last record that was fetched
        self.skipped: Collection[int] = ()  # in the last read
        self.used_s = 0.0
        self._topic = topic
        self._queues: list[deque[EventRecord]] = [deque() for _ in range(partitions)]
        self._paused: set[int] = set()
        self._at_end: dict[int, int] = {}  # the ends that the brokers reported, which may be behind a gap
        self._reason = Reason()
        self._consumer: Consumer = open_consumer(settings, GROUP, self._reason, **{**CONSUMER, **_FETCH})

    def move(self, offsets: Sequence[int]) -> None:
        """Stand at these offsets."""
        self.next = None
        for queue in self._queues:
            queue.clear()
        self._paused.clear()
        self._at_end.clear()
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in enumerate(offsets)]
        self._consumer.assign(places)
        self.next = list(offsets)
        self.ends = list(offsets)

    def take(self, counts: Sequence[int]) -> list[list[EventRecord]]:
        """Take so many records of each partition, which the brokers have; fewer where some do not come for a while."""
        deadline = monotonic() + ANSWER_WAIT_S
        while lacking := sum(self._lacks(partition, count) for partition, count in enumerate(counts)):
            if self.fetch(SILENCE_S, min(lacking, FETCHED_MAX)):
                continue
            if any(queue and count for queue, count in zip(self._queues, counts, strict=True)):
                break
            if monotonic() > deadline:
                raise unavailable("the leaders of partitions do not answer")
        return [self._taken(partition, count) for partition, count in enumerate(counts)]

    def _lacks(self, partition: int, count: int) -> int:
        """Return how many records are yet to come; none where all before their end came, and offsets are missing."""
        queued = len(self._queues[partition])
        fetched = max(self.ends[partition], self._at_end.get(partition, 0))
        return max(0, count - queued) if fetched < self._places()[partition] + count else 0

    def _places(self) -> list[int]:
        if self.next is None:
            raise AssertionError("the reader stands nowhere")
        return self.next

    def _taken(self, partition: int, count: int) -> list[EventRecord]:
        queue = self._queues[partition]
        records = [queue.popleft() for _ in range(min(count, len(queue)))]
        if records:
            self._places()[partition] = records[-1].offset + 1
        if partition in self._paused and len(queue) < QUEUED_MAX // 2:
            self._paused.discard(partition)
            self._consumer.resume([TopicPartition(self._topic, partition)])
        return records

    def fetch(self, wait_s: float, count: int = 1) -> bool:
        """Queue what has arrived; wait for `count` messages. Return whether the brokers said anything."""
        messages = self._consumer.consume(count, wait_s)
        messages += self._consumer.consume(FETCHED_MAX, 0.0)
        try:
            for message in messages:
                self._queue(message)
        except BaseException:
            self.next = None  # some were taken, and are in no queue
            raise
        full = [
            TopicPartition(self._topic, partition)
            for partition, queue in enumerate(self._queues)
            if len(queue) > QUEUED_MAX and partition not in self._paused
        ]
        if full:
            self._consumer.pause(full)
            self._paused.update(place.partition for place in full)
        return bool(messages)

    def _queue(self, message: Message) -> None:
        partition, offset, error = message.partition(), message.offset(), message.error()
        if error is not None:
            self._note(error, partition, offset)
            return
        if partition is None or offset is None or offset < self.ends[partition]:
            return
        value, key = message.value(), message.key()
        kind, time = message.timestamp()
        if kind != TIMESTAMP_CREATE_TIME:
            raise unavailable(stamped_by_brokers(self._topic))
        if not isinstance(value, bytes) or not (key is None or isinstance(key, bytes)):
            raise LedgerDamaged(f"record {offset} in partition {partition} of {self._topic} was not written by rankd")
        self._queues[partition].append(EventRecord(offset, time, key, value))
        self.ends[partition] = offset + 1

    def _note(self, error: KafkaError, partition: int | None, offset: int | None) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            if partition is not None and offset is not None:
                self._at_end[partition] = offset
        elif error.code() in _GONE:
            raise LedgerDamaged(
                f"the records of partition {partition} of the ledger from {self.ends[partition or 0]} on have expired"
            )
        elif not error.retriable():
            raise_translated(error, self._topic)

    @property
    def has_unread(self) -> bool:
        """Whether something is queued that the last read did not skip."""
        return any(queue and partition not in self.skipped for partition, queue in enumerate(self._queues))

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()


class LogReaders:
    """A few readers; from any thread."""

    def __init__(self, settings: Mapping[str, str], topic: str, partitions: int) -> None:
        """There is no reader yet."""
        self._settings = settings
        self._topic = topic
        self._partitions = partitions
        self._lock = threading.Lock()
        self._readers: list[LogReader] = []
        self._tail: LogReader | None = None  # the one that stands furthest

    @contextmanager
    def at(self, offsets: Sequence[int], check: Callable[[Sequence[int]], None]) -> Iterator[LogReader]:
        """Use a reader that stands at these offsets; `check` refuses those to which none can be moved."""
        reader = self._choose(list(offsets))
        try:
            with as_ledger_failures():
                if reader.next != list(offsets):
                    check(offsets)
                    reader.move(offsets)
                yield reader
        except BaseException:
            reader.next = None
            raise
        finally:
            reader.used_s = monotonic()
            reader.lock.release()
        with self._lock:
            tail = self._tail
            if tail is None or tail.next is None or sum(reader.next or ()) >= sum(tail.next):
                self._tail = reader

    def _choose(self, offsets: list[int]) -> LogReader:
        """Return a locked reader: the one that stands there, else a new one, else the one that was not used longest."""
        deadline = monotonic() + ANSWER_WAIT_S
        while monotonic() < deadline:
            with self._lock:
                standing = next((reader for reader in self._readers if reader.next == offsets), None)
                if standing is None:
                    is_full = len(self._readers) >= READERS_MAX
                    for reader in sorted(self._readers, key=lambda reader: reader.used_s):
                        if (is_full or reader.next is None) and reader.lock.acquire(blocking=False):
                            return reader
                    if not is_full:
                        self._readers.append(LogReader(self._settings, self._topic, self._partitions))
                        self._readers[-1].lock.acquire()
                        return self._readers[-1]
            if standing is not None:
                if self._locked(standing):
                    return standing
            else:
                threading.Event().wait(SLICE_S)
        raise unavailable("all readers of the ledger are busy")

    @staticmethod
    def _locked(reader: LogReader) -> bool:
        reader.wanted += 1
        try:
            return reader.lock.acquire(timeout=SLICE_S)
        finally:
            reader.wanted -= 1

    def wait(self, timeout_s: float) -> None:
        """Return when the furthest reader has something to read, or a read wants it."""
        deadline = monotonic() + timeout_s
        reader = self._tail
        while reader is not None and (left_s := deadline - monotonic()) > 0:
            if reader.wanted or not reader.lock.acquire(timeout=min(SLICE_S, left_s)):
                return
            try:
                if reader.next is None or reader.has_unread:
                    return
                with as_ledger_failures():
                    reader.fetch(min(SLICE_S, left_s))
            finally:
                reader.lock.release()

    def close(self) -> None:
        """Disconnect all."""
        with self._lock:
            readers, self._readers, self._tail = self._readers, [], None
        for reader in readers:
            if reader.lock.acquire(timeout=ANSWER_WAIT_S):
                reader.close()
                reader.lock.release()

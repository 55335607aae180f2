"""Finds single events by their places, and their metadata.

What is read forward fills the cache of metadata, so that a page is shown without asking the brokers most of the time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from time import monotonic

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from rankd.kafka.clients import Reason, open_consumer, raise_translated
from rankd.ledger.kafka.control_topic import CONSUMER, GROUP
from rankd.ledger.kafka.failures import as_ledger_failures, unavailable
from rankd.ledger.kafka.records import EventRecord, metadata_in
from rankd.ledger.kafka.watermarks import Watermarks

LOOKUP_WAIT_S = 3.0
FETCHED_MAX = 500
CACHED_CHARACTERS_MAX = 16_000_000
ENTRY_CHARACTERS = 200  # what an entry takes beside its text
_FETCH = {
    "fetch.message.max.bytes": "16384",
    "fetch.wait.max.ms": "5",  # the next lookup waits for the last fetch to end
    "fetch.queue.backoff.ms": "1",
    "enable.partition.eof": "true",
}

EventPlace = tuple[int, int]  # partition and sequence


class MetadataCache:
    """The metadata of the events seen last, None for those without; from any thread."""

    def __init__(self, characters_max: int = CACHED_CHARACTERS_MAX) -> None:
        """It is empty."""
        self._lock = threading.Lock()
        self._texts: dict[EventPlace, str | None] = {}
        self._characters = 0
        self._characters_max = characters_max

    def note(self, partition: int, sequence: int, json: str | None) -> None:
        """Keep the metadata of an event; the oldest entries make room."""
        place = partition, sequence
        with self._lock:
            if place in self._texts:
                return
            self._texts[place] = json
            self._characters += _size(json)
            while self._characters > self._characters_max:
                self._characters -= _size(self._texts.pop(next(iter(self._texts))))

    def find(self, places: Sequence[EventPlace]) -> tuple[dict[EventPlace, str], list[EventPlace]]:
        """Return the metadata of events that have some, and the events that are not known."""
        with self._lock:
            known = {place: self._texts[place] for place in places if place in self._texts}
        unknown = [place for place in dict.fromkeys(places) if place not in known]
        return {place: json for place, json in known.items() if json is not None}, unknown


def _size(json: str | None) -> int:
    return ENTRY_CHARACTERS + len(json or "")


class EventLookup:
    """Reads events at places of their own; from any thread, one at a time."""

    def __init__(self, settings: Mapping[str, str], topic: str, watermarks: Watermarks) -> None:
        """Connect on first use."""
        self._settings = settings
        self._topic = topic
        self._watermarks = watermarks
        self._lock = threading.Lock()
        self._reason = Reason()
        self._consumer: Consumer | None = None
        self._ends: list[int] = []

    def find(self, places: Sequence[EventPlace]) -> dict[EventPlace, EventRecord]:
        """Return the records at those places that the log has."""
        records: dict[EventPlace, EventRecord] = {}
        with self._lock, as_ledger_failures():
            wanted = self._wanted(places)
            if not wanted:
                return {}
            consumer = self._consumer = self._consumer or open_consumer(
                self._settings, GROUP, self._reason, **{**CONSUMER, **_FETCH}
            )
            deadline = monotonic() + LOOKUP_WAIT_S
            while any(wanted.values()):
                # The first of each partition, and whatever comes with it.
                asked = {partition: offsets[0] for partition, offsets in wanted.items() if offsets}
                consumer.assign([TopicPartition(self._topic, *place) for place in asked.items()])
                while asked:
                    if monotonic() > deadline:
                        raise unavailable(f"{self._topic}: events were not found in time")
                    for message in consumer.consume(1, LOOKUP_WAIT_S / 10) + consumer.consume(FETCHED_MAX, 0.0):
                        self._take(message, asked, wanted, records)
            consumer.unassign()
        return records

    def _wanted(self, places: Sequence[EventPlace]) -> dict[int, list[int]]:
        """Return the offsets of the places that the log has, by partition, in order."""
        firsts = self._watermarks.firsts()
        if any(partition >= len(self._ends) or sequence > self._ends[partition] for partition, sequence in places):
            self._ends, _ = self._watermarks.all_ends()
        wanted: dict[int, list[int]] = {}
        for partition, sequence in sorted(set(places)):
            if partition < len(firsts) and firsts[partition] < sequence <= self._ends[partition]:
                wanted.setdefault(partition, []).append(sequence - 1)
        return wanted

    def _take(
        self,
        message: Message,
        asked: dict[int, int],
        wanted: dict[int, list[int]],
        records: dict[EventPlace, EventRecord],
    ) -> None:
        partition, offset, error = message.partition(), message.offset(), message.error()
        if partition is None or offset is None:
            return
        offsets = wanted.get(partition, [])
        if error is not None:
            if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                offset = asked.get(partition, -1)  # it has expired since
            elif error.code() != KafkaError._PARTITION_EOF:
                if not error.retriable():
                    raise_translated(error, self._topic)
                return
        elif offset in offsets:
            value, key = message.value(), message.key()
            if isinstance(value, bytes) and isinstance(key, bytes | None):
                records[partition, offset + 1] = EventRecord(offset, message.timestamp()[1], key, value)
        while offsets and offsets[0] <= offset:
            del offsets[0]
        if offset >= asked.get(partition, offset + 1):
            del asked[partition]

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None


class MetadataLookup:
    """The metadata of events, from the cache or the log."""

    def __init__(self, lookup: EventLookup) -> None:
        """Nothing is cached yet."""
        self._lookup = lookup
        self.cache = MetadataCache()

    def find(self, places: Sequence[EventPlace]) -> dict[EventPlace, str]:
        """Return the metadata of events that have some."""
        metadata, unknown = self.cache.find(places)
        if unknown:
            for place, record in self._lookup.find(unknown).items():
                json = None if record.key is None else metadata_in(record.value)
                self.cache.note(*place, json)
                if json is not None:
                    metadata[place] = json
        return metadata

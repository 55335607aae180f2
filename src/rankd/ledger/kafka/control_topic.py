"""Reads the control topic on, from its beginning, as one process needs it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import monotonic

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from rankd.errors import LedgerDamaged
from rankd.kafka.clients import ANSWER_WAIT_S, Reason, open_consumer, raise_translated
from rankd.ledger.kafka.control import ControlState
from rankd.ledger.kafka.failures import as_ledger_failures
from rankd.ledger.kafka.watermarks import Watermarks

READ_RECORDS = 10_000
GROUP = "rankd-ledger"  # no group is joined; the library wants a name
CONSUMER = {"reconnect.backoff.max.ms": "1000", "isolation.level": "read_uncommitted"}


class ControlTopic:
    """The control topic and what it says; from any thread."""

    def __init__(self, settings: Mapping[str, str], topic: str, watermarks: Watermarks) -> None:
        """Nothing is read yet."""
        self.state = ControlState()
        self.name = topic
        self._watermarks = watermarks
        self._reason = Reason()
        self._lock = threading.Lock()
        self._consumer: Consumer = open_consumer(settings, GROUP, self._reason, **CONSUMER)
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def refresh(self) -> ControlState:
        """Read to the present end."""
        return self.read_to(self._watermarks.control_end())

    def read_to(self, end: int) -> ControlState:
        """Read the offsets before `end`."""
        if self.state.next_offset < end:
            deadline = monotonic() + ANSWER_WAIT_S
            with self._lock, as_ledger_failures():
                while self.state.next_offset < end:
                    if self._take(1, min(1.0, ANSWER_WAIT_S)):
                        deadline = monotonic() + ANSWER_WAIT_S
                    elif monotonic() > deadline:
                        raise_translated(KafkaException("no answer"), self.name)
                    self._take(READ_RECORDS, 0.0)
        return self.state

    def read_what_came(self) -> ControlState:
        """Read what the client has fetched already, without waiting for brokers."""
        with self._lock, as_ledger_failures():
            while self._take(READ_RECORDS, 0.0):
                pass
        return self.state

    def _take(self, count_max: int, wait_s: float) -> bool:
        messages = self._consumer.consume(count_max, wait_s)
        try:
            for message in messages:
                self._add(message)
        except BaseException:  # none is skipped: the next call reads this one again
            self._consumer.assign([TopicPartition(self.name, 0, self.state.next_offset)])
            raise
        return bool(messages)

    def _add(self, message: Message) -> None:
        error, offset = message.error(), message.offset()
        if error is not None:
            if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise LedgerDamaged(
                    f"records of the control topic {self.name} are gone, which must keep all; create another ledger"
                )
            raise_translated(error, self.name)
        if offset is None or offset < self.state.next_offset:
            return
        value = message.value()
        self.state.add(offset, value if isinstance(value, bytes) else None)

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            self._consumer.close()

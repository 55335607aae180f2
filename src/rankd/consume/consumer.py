"""Consumes topics of scores: each record counts once, wherever the process is killed.

    consumer group → assigned partitions → continue where the ledger says → records → RecordAppender

The ledger has the offsets, not Kafka. An append names the offsets it begins at, so that of two processes that believe
to own a partition one is refused, and reads on where the other is. What is wrong with a record makes it a dead letter;
what is wrong with the ledger or with Kafka is tried again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from rankd.consume.appending import ConsumerFigures, Intake, RecordAppender, SourcePartition
from rankd.errors import Behind, KafkaUnusable, Unavailable
from rankd.kafka.clients import ANSWER_WAIT_S, Backoff, Reason, cluster_of, open_consumer, raise_translated
from rankd.kafka.dead_letters import DeadLetters
from rankd.ledger.port import NOT_READ, SourceMoved
from rankd.throttled_warnings import ThrottledWarnings

WAIT_S = 0.1  # for records, before a look at whether to stop
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 10.0
BEHIND_WAIT_S = 1  # while ranks lag too far, where nothing says how long
_GROUP = {"partition.assignment.strategy": "range", "session.timeout.ms": "10000", "heartbeat.interval.ms": "1000"}
_log = logging.getLogger("rankd")


class ScoreConsumer:
    """Consumes topics by a consumer group; one thread calls `run`."""

    def __init__(
        self,
        intake: Intake,
        settings: Mapping[str, str],
        topics: Sequence[str],
        *,
        group: str,
        batch_events_max: int,
        dead_letters: DeadLetters,
        figures: ConsumerFigures | None = None,
    ) -> None:
        """`settings` are librdkafka's, of the connection."""
        self.figures = figures or ConsumerFigures()
        self._topics = list(topics)
        self._batch_events_max = batch_events_max
        self._appender = RecordAppender(intake, dead_letters, group, self.figures)
        self._reason = Reason()
        self._consumer: Consumer = open_consumer(settings, group, self._reason, **_GROUP)
        self._assigned: list[SourcePartition] | None = None  # and not placed yet
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S)
        self._warnings = ThrottledWarnings(_log)

    def run(self, stop: threading.Event) -> None:
        """Consume until `stop` is set."""
        self._consumer.subscribe(self._topics, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)
        waiting: list[Message] = []
        try:
            while not stop.is_set():
                try:
                    if self._assigned is not None:
                        self._begin_at(self._assigned)
                        waiting = []
                    waiting = waiting or self._read()
                    self._append(waiting)
                    waiting = []
                    self._backoff.reset()
                except SourceMoved as moved:
                    _log.info("%s; reading its partition again", moved)
                    self._assigned = [*self._appender.next]
                except Behind as problem:  # the records stay in Kafka
                    self._warnings.warn("the consumer waits: %s", problem)
                    stop.wait(problem.retry_after_s or BEHIND_WAIT_S)
                except (Unavailable, KafkaUnusable) as problem:
                    _log.warning("the consumer waits: %s", problem)
                    self._backoff.pause(stop)
        finally:
            with suppress(KafkaException):
                self._consumer.close()

    # Assignment: callbacks of librdkafka, called within `consume`

    def _assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        consumer.assign([])  # until the ledger has said where they go on
        self._assigned = [(partition.topic, partition.partition) for partition in partitions]

    def _revoke(self, consumer: Consumer, _partitions: Sequence[TopicPartition]) -> None:
        consumer.unassign()
        self._assigned = None
        self._appender.next.clear()
        self.figures.lag.clear()

    def _begin_at(self, topic_partitions: Sequence[SourcePartition]) -> None:
        """Continue where the ledger says."""
        self._appender.begin(cluster_of(self._consumer, self._reason), topic_partitions)
        self._continue({})
        self._assigned = None

    def _continue(self, behind: Mapping[SourcePartition, int]) -> None:
        """Read on from where the ledger says; from another offset where records are gone."""
        self._consumer.assign(
            [
                TopicPartition(
                    *topic_partition, behind.get(topic_partition, OFFSET_BEGINNING if offset == NOT_READ else offset)
                )
                for topic_partition, offset in self._appender.next.items()
            ]
        )

    # Records

    def _read(self) -> list[Message]:
        try:
            return self._records(self._consumer.consume(self._batch_events_max, WAIT_S))
        except KafkaException as problem:
            self._reason.raise_for(problem, "consume.url")

    def _records(self, messages: Sequence[Message]) -> list[Message]:
        """Return the records among what was consumed; errors come the same way."""
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._go_on_behind_gap((message.topic() or "", message.partition() or 0))
            elif not error.retriable():
                raise_translated(error, "consume.url")
        return records

    def _go_on_behind_gap(self, topic_partition: SourcePartition) -> None:
        """Continue behind records that Kafka has deleted; refuse a topic that ends before what was read of it."""
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*topic_partition), timeout=ANSWER_WAIT_S)
        wanted = self._appender.next.get(topic_partition, NOT_READ)
        if wanted > high:
            topic, partition = topic_partition
            raise KafkaUnusable(
                f"{topic}, partition {partition} ends at {high}, and it was read up to {wanted}: was the topic "
                "created anew? Give `consume.group` another name to read it from its beginning"
            )
        if wanted != NOT_READ and low > wanted:
            self.figures.lost += low - wanted
            _log.error(
                "%d records of %s, partition %d were deleted before they were read: the topic's retention is too short",
                low - wanted,
                *topic_partition,
            )
        self._continue({topic_partition: low})

    def _append(self, messages: Sequence[Message]) -> None:
        by_partition: dict[SourcePartition, list[Message]] = {}
        for message in messages:
            by_partition.setdefault((message.topic() or "", message.partition() or 0), []).append(message)
        for topic_partition, records in by_partition.items():
            if topic_partition in self._appender.next:  # else it was revoked
                self._appender.append(topic_partition, records)
        for topic_partition, offset in self._appender.next.items():
            _, high = self._consumer.get_watermark_offsets(TopicPartition(*topic_partition), cached=True)
            self.figures.lag[topic_partition] = max(0, high - max(offset, 0))

"""The queue of dead letters, from the command line: list, replay, drop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from rankd.consume.appending import ConsumerFigures, Intake, RecordAppender
from rankd.errors import KafkaUnavailable
from rankd.kafka.clients import ANSWER_WAIT_S, Reason, cluster_of, open_consumer, raise_translated
from rankd.kafka.dead_letters import DeadLetter, DeadLetters, read_letter

AT_ONCE = 1_000
PARTITION = 0  # there is one
_log = logging.getLogger("rankd")


class LetterReader:
    """Reads dead letters from an offset on."""

    def __init__(self, settings: Mapping[str, str], topic: str, group: str) -> None:
        self._topic = topic
        self._reason = Reason()
        self._consumer: Consumer = open_consumer(settings, group, self._reason)

    @property
    def cluster(self) -> str:
        """The id of the brokers' cluster."""
        return cluster_of(self._consumer, self._reason)

    def close(self) -> None:
        """Close the connection."""
        with suppress(KafkaException):
            self._consumer.close()

    def letters(self, limit: int) -> list[DeadLetter]:
        """Return the first letters that the topic has."""
        return [read_letter(message) for some in self.read(0, limit) for message in some]

    def read(self, first: int, limit: int) -> Iterator[list[Message]]:
        """Yield letters from an offset up to the present end of the topic."""
        try:
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, PARTITION), timeout=ANSWER_WAIT_S
            )
            offset = max(low, first)
            self._consumer.assign([TopicPartition(self._topic, PARTITION, offset)])
            end = min(high, offset + limit)
            while offset < end:
                messages = self._consumer.consume(min(AT_ONCE, end - offset), ANSWER_WAIT_S)
                if not messages:
                    raise KafkaUnavailable(f"{self._topic}: Kafka does not send the letters from {offset} on")
                for message in messages:
                    error = message.error()
                    if error is not None:
                        raise_translated(error, self._topic)
                yield messages
                offset = (messages[-1].offset() or 0) + 1
        except KafkaException as problem:
            self._reason.raise_for(problem, self._topic)


class DeadLetterQueue:
    """The dead letters behind the place where the last replay or drop ended; one process at a time changes it."""

    def __init__(self, intake: Intake, settings: Mapping[str, str], dead_letters: DeadLetters, group: str) -> None:
        """`group` is that of the consumer whose letters these are."""
        self.figures = ConsumerFigures()
        self._reader = LetterReader(settings, dead_letters.topic, f"{group}-dlq")
        self._appender = RecordAppender(intake, dead_letters, group, self.figures)
        self._place = (dead_letters.topic, PARTITION)
        self._appender.begin(self._reader.cluster, [self._place])

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def letters(self, limit: int) -> list[DeadLetter]:
        """Return the first letters of the queue."""
        return [read_letter(message) for some in self._read(limit) for message in some]

    def replay(self, limit: int) -> int:
        """Append the first letters as scores; those refused again go to the end. Return how many were taken."""
        return self._take(limit, lambda some: self._appender.append(self._place, some))

    def drop(self, limit: int) -> int:
        """Drop the first letters; return how many."""
        return self._take(limit, lambda some: self._appender.skip(self._place, some))

    def _take(self, limit: int, take: Callable[[Sequence[Message]], None]) -> int:
        taken = 0
        for some in self._read(limit):
            take(some)
            taken += len(some)
        return taken

    def _read(self, limit: int) -> Iterator[list[Message]]:
        return self._reader.read(self._appender.next[self._place], limit)

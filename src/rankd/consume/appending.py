"""Appends records of topics in their order: scores to the ledger, refused ones to the dead letters.

records → decoded → Intake.append: events and offsets in one commit
            └ refused → DeadLetters.send, then the offsets move over them
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol

from confluent_kafka import Message

from rankd.api.calls.bodies import Score
from rankd.consume.records import read_score
from rankd.errors import NotFound, RankdError, Refused
from rankd.intake.sender import Sender
from rankd.kafka.dead_letters import DeadLetters, Refusal
from rankd.ledger.port import NOT_READ, SourceSpan

SENDER = Sender("kafka", "kafka")
_log = logging.getLogger("rankd")

SourcePartition = tuple[str, int]  # topic and partition


class Intake(Protocol):
    """What takes the records: rankd.intake.sources.SourceIntake."""

    def offsets(self, source: str) -> dict[int, int]:
        """Return the offsets to read next of a source, by partition."""

    def append(self, sent: Sequence[Score], sender: Sender, spans: Sequence[SourceSpan]) -> None:
        """Append scores and move the sources on, or neither."""

    def skip(self, spans: Sequence[SourceSpan]) -> None:
        """Move the sources on."""


class ConsumerFigures:
    """Counts of a consumer; read by any thread."""

    def __init__(self) -> None:
        self.consumed = 0  # records appended
        self.refused = 0  # records that became dead letters
        self.lost = 0  # records that Kafka had deleted before they were read
        self.lag: dict[SourcePartition, int] = {}  # records not appended yet, of the partitions assigned here


class RecordAppender:
    """Appends the records of one consumer; `next` says where each partition goes on, as the ledger has it."""

    def __init__(self, intake: Intake, dead_letters: DeadLetters, group: str, figures: ConsumerFigures) -> None:
        """`group` names the consumer in the ledger."""
        self.next: dict[SourcePartition, int] = {}
        self._intake = intake
        self._dead_letters = dead_letters
        self._group = group
        self._cluster = ""
        self._figures = figures

    def begin(self, cluster: str, topic_partitions: Sequence[SourcePartition]) -> None:
        """Read where partitions go on; another cluster's topic of the same name is another source."""
        self._cluster = cluster
        offsets = {
            topic: self._intake.offsets(self._source(topic)) for topic in {topic for topic, _ in topic_partitions}
        }
        self.next = {
            (topic, partition): offsets[topic].get(partition, NOT_READ) for topic, partition in topic_partitions
        }

    def append(self, topic_partition: SourcePartition, records: Sequence[Message]) -> None:
        """Append what has not been appended before; in the records' order."""
        fresh = [record for record in records if (record.offset() or 0) >= self.next[topic_partition]]
        read = [(record, read_score(record)) for record in fresh]
        for is_refused, run in groupby(read, key=lambda pair: isinstance(pair[1], RankdError)):
            if is_refused:
                self._refuse(
                    topic_partition,
                    [Refusal(record, problem) for record, problem in run if isinstance(problem, RankdError)],
                )
            else:
                self._append_scores(
                    topic_partition, [(record, score) for record, score in run if isinstance(score, Score)]
                )

    def skip(self, topic_partition: SourcePartition, records: Sequence[Message]) -> None:
        """Move on over records."""
        span = self._span(topic_partition, records[-1])
        self._intake.skip([span])
        self.next[topic_partition] = span.upto

    def _append_scores(self, topic_partition: SourcePartition, read: Sequence[tuple[Message, Score]]) -> None:
        """Append scores; when they are refused, halve them until the refused ones are alone."""
        span = self._span(topic_partition, read[-1][0])
        try:
            self._intake.append([score for _, score in read], SENDER, [span])
        except (Refused, NotFound) as problem:
            if len(read) == 1:
                self._refuse(topic_partition, [Refusal(read[0][0], problem)])
                return
            for half in _halves(read):
                self._append_scores(topic_partition, half)
            return
        self.next[topic_partition] = span.upto
        self._figures.consumed += len(read)

    def _refuse(self, topic_partition: SourcePartition, refusals: Sequence[Refusal]) -> None:
        """Send dead letters, then move on: after a crash in between they are sent twice, and say where they stood."""
        self._dead_letters.send([refusal.letter() for refusal in refusals])
        self.skip(topic_partition, [refusal.message for refusal in refusals])
        self._figures.refused += len(refusals)
        _log.warning(
            "%d records of %s, partition %d were refused, the first at offset %s: %s",
            len(refusals),
            *topic_partition,
            refusals[0].message.offset(),
            refusals[0].problem,
        )

    def _source(self, topic: str) -> str:
        return f"kafka:{self._cluster}/{topic}/{self._group}"

    def _span(self, topic_partition: SourcePartition, last: Message) -> SourceSpan:
        topic, partition = topic_partition
        return SourceSpan(self._source(topic), partition, self.next[topic_partition], (last.offset() or 0) + 1)


def _halves(read: Sequence[tuple[Message, Score]]) -> Iterator[Sequence[tuple[Message, Score]]]:
    middle = len(read) // 2
    yield read[:middle]
    yield read[middle:]

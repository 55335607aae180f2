"""Dead letters: records that were refused, with where they stood and why, on a topic of their own.

    refused record, or event of a log → DeadLetters.send → topic → `rankd dlq list | replay | drop`

The topic is a queue: `replay` and `drop` begin where the last of them ended, and the ledger has that place, as it has
any consumer's. So a replayed record counts once, and one that is refused again goes to the end of the queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from confluent_kafka import Message

from rankd.errors import KafkaUnusable, RankdError
from rankd.kafka.clients import KafkaAdmin, KafkaProducer, SentRecord

PARTITIONS = 1  # a queue has one order
TOPIC, PARTITION, OFFSET = "rankd-topic", "rankd-partition", "rankd-offset"  # headers
VALUE_BYTES = "rankd-value-bytes"  # of a letter whose value was cut: how many it had
CODE, REASON = "rankd-reason-code", "rankd-reason"

OURS = (TOPIC, PARTITION, OFFSET, VALUE_BYTES, CODE, REASON)
CUT_BYTES = 10_000  # of the key and of the value of a letter that is too large for its topic


class Refusal(msgspec.Struct, frozen=True):
    """A refused record and the reason."""

    message: Message
    problem: RankdError

    def letter(self) -> SentRecord:
        """Return the record with its sender's own headers and ours; one refused again keeps where it stood first."""
        message = self.message
        sent = {header[0]: _bytes(header[1]) for header in message.headers() or ()}
        origin = _origin(str(message.topic()), message.partition() or 0, message.offset() or 0)
        reason = _reason(self.problem.code, str(self.problem))
        return message.key(), message.value(), [*{**origin, **sent, **reason}.items()]


class RefusedPlace(NamedTuple):
    """A place of a log whose event was refused, and the reason."""

    topic: str
    partition: int
    offset: int
    key: str
    value: bytes
    code: str
    text: str

    def letter(self) -> SentRecord:
        """Return it as a record, with headers."""
        origin = _origin(self.topic, self.partition, self.offset)
        return self.key.encode(), self.value, [*{**origin, **_reason(self.code, self.text)}.items()]


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead letter, as it is listed."""

    offset: int  # in the queue
    topic: str  # where the record stood
    partition: int
    record_offset: int
    code: str
    reason: str
    key: str | None
    value: str | None


class DeadLetters:
    """Sends refused records to their topic."""

    def __init__(self, topic: str, retention_ms: int, settings: Mapping[str, str]) -> None:
        """The topic is created if it is missing."""
        self.topic = topic
        KafkaAdmin(settings).ensure_topic(topic, PARTITIONS, {"retention.ms": str(retention_ms)})
        self._settings = settings
        self._producer: KafkaProducer | None = None
        self.sent = 0

    def send(self, letters: Sequence[SentRecord]) -> None:
        """Send letters, and return when they are on stable storage; those that are too large for the topic are cut."""
        producer = self._producer = self._producer or KafkaProducer(self._settings)
        try:
            for index in producer.send(self.topic, letters):
                letter = letters[index]  # or another one of its batch was too large
                if producer.send(self.topic, [letter]) and producer.send(self.topic, [_cut(letter)]):
                    raise KafkaUnusable(
                        f"{self.topic}: takes no record of {2 * CUT_BYTES} bytes; raise max.message.bytes"
                    )
        except RankdError:
            self._producer = None  # one that has failed may have ended for good
            producer.drop()
            raise
        self.sent += len(letters)


def read_letter(message: Message) -> DeadLetter:
    """Return a record of the queue as it is listed; one that somebody else wrote has no origin."""
    headers = dict(message.headers() or ())
    key, value = message.key(), message.value()
    return DeadLetter(
        message.offset() or 0,
        _text(headers.get(TOPIC)) or "",
        _number(headers.get(PARTITION)),
        _number(headers.get(OFFSET)),
        _text(headers.get(CODE)) or "",
        _text(headers.get(REASON)) or "",
        _text(key),
        _text(value),
    )


def _origin(topic: str, partition: int, offset: int) -> dict[str, bytes]:
    return {TOPIC: topic.encode(), PARTITION: str(partition).encode(), OFFSET: str(offset).encode()}


def _reason(code: str, text: str) -> dict[str, bytes]:
    return {CODE: code.encode(), REASON: text.encode()}


def _cut(letter: SentRecord) -> SentRecord:
    """Return a letter with the beginning of its key and value, and of its headers those that say where it stood."""
    key, value, headers = letter
    size = {VALUE_BYTES: str(len(value or b"")).encode()}
    ours = {name: text for name, text in headers if name in OURS}
    return None if key is None else key[:CUT_BYTES], (value or b"")[:CUT_BYTES], [*{**size, **ours}.items()]


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _text(value: str | bytes | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _number(value: str | bytes | None) -> int:
    text = _text(value) or ""
    return int(text) if text.isascii() and text.isdigit() else -1

"""Clients of Kafka: a consumer and a producer whose errors are rankd's.

librdkafka reconnects by itself. It reports why it cannot in callbacks only, so the last reason is kept for messages.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from rankd.errors import KafkaUnavailable, KafkaUnusable

ANSWER_WAIT_S = 10.0
DELIVERY_WAIT_S = 30.0
SETTINGS = {"client.id": "rankd", "log_level": "2", "socket.keepalive.enable": "true"}
RECORD_BYTES_MAX = 64 * 1024 * 1024  # sent; a topic's max.message.bytes is lower, and refuses first
_PRODUCER = {"enable.idempotence": "true", "acks": "all", "linger.ms": "5", "compression.type": "lz4"}
_CONSUMER = {"enable.auto.commit": "false", "auto.offset.reset": "error", "enable.partition.eof": "false"}
# What no retry mends: the administrator of the brokers, or of this configuration, has to act.
_LASTING = {
    KafkaError._AUTHENTICATION: "refuses the credentials; check user, password and mechanism",
    KafkaError.SASL_AUTHENTICATION_FAILED: "refuses the credentials; check user, password and mechanism",
    KafkaError._SSL: "cannot be reached by TLS; check `ca`, and the host names in its certificate",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "does not allow this user to use the topic; grant it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "does not allow this user to use the consumer group; grant it",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "does not allow this user to do that; grant it",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "does not have the topic; create it",
    KafkaError._UNKNOWN_TOPIC: "does not have the topic; create it",
    KafkaError._UNKNOWN_PARTITION: "does not have the partition; was the topic created with fewer?",
    KafkaError.MSG_SIZE_TOO_LARGE: "refuses a record of that size; raise the topic's max.message.bytes",
}
Record = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]  # key, value, headers
_log = logging.getLogger("rankd")


class Reason:
    """The last reason why brokers cannot be reached, as librdkafka reported it."""

    def __init__(self) -> None:
        self._error: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Take an error of librdkafka's thread."""
        if self._error is None or error.code() in _LASTING:
            self._error = error

    def raise_for(self, problem: KafkaException, what: str) -> NoReturn:
        """Raise rankd's error for a failed call."""
        error = problem.args[0] if problem.args else None
        if self._error is not None and self._error.code() in _LASTING:
            error = self._error
        raise_translated(error, what)


def raise_translated(error: object, what: str) -> NoReturn:
    """Raise rankd's error for one of Kafka; `what` names the topic or the brokers."""
    code = error.code() if isinstance(error, KafkaError) else None
    text = error.str() if isinstance(error, KafkaError) else str(error)
    if code in _LASTING:
        raise KafkaUnusable(f"{what}: Kafka {_LASTING[code]} ({text})")
    raise KafkaUnavailable(f"{what}: Kafka does not answer ({text})")


class KafkaProducer:
    """Sends records, and returns when the brokers have them; one thread at a time uses it."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Nothing is sent before `send`."""
        self._settings = settings
        self._brokers = settings["bootstrap.servers"]
        self._producer: Producer | None = None
        self._reason = Reason()

    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        """Send records, and return when all are on stable storage; any failure is an error.

        Records that are too large for the topic, and what was sent in a batch with one, are not on it: their indexes
        are returned.
        """
        failed: list[KafkaError] = []
        too_large: list[int] = []

        def note(index: int, error: KafkaError | None) -> None:
            if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                too_large.append(index)
            elif error is not None:
                failed.append(error)

        producer = self._producer = self._producer or self._connect()
        try:
            for index, (key, value, headers) in enumerate(records):
                delivered = partial(_delivered, note, index)
                try:
                    producer.produce(topic, value, key, headers=list(headers), on_delivery=delivered)
                except KafkaException as problem:  # larger than RECORD_BYTES_MAX
                    note(index, problem.args[0])
                producer.poll(0)
            left = producer.flush(DELIVERY_WAIT_S + ANSWER_WAIT_S)
        except BufferError as problem:
            raise KafkaUnavailable(f"{topic}: more records wait than may; try again") from problem
        except KafkaException as problem:
            self._fail(producer, problem, topic)
        except SystemError as problem:  # the client raises a fatal error while it calls `delivered`
            if not isinstance(problem.__cause__, KafkaException):
                raise
            self._fail(producer, problem.__cause__, topic)
        if failed:
            self._fail(producer, KafkaException(failed[0]), topic)
        if left:
            raise KafkaUnavailable(f"{topic}: Kafka at {self._brokers} does not confirm records")
        return sorted(too_large)

    def _connect(self) -> Producer:
        self._reason = Reason()
        own: dict[str, Any] = {
            "message.timeout.ms": int(DELIVERY_WAIT_S * 1_000),
            "message.max.bytes": RECORD_BYTES_MAX,
            "error_cb": self._reason,
        }
        return Producer({**SETTINGS, **_PRODUCER, **self._settings, **own})

    def _fail(self, producer: Producer, problem: KafkaException, topic: str) -> NoReturn:
        """Raise rankd's error. A fatal error ends an idempotent producer, so the next `send` makes another."""
        self._producer = None
        try:
            producer.poll(0)  # calls `_reason`, or raises the fatal error
        except KafkaException as fatal:
            problem = fatal
        self._reason.raise_for(problem, topic)


def _delivered(
    note: Callable[[int, KafkaError | None], None], index: int, error: KafkaError | None, _message: Message
) -> None:
    note(index, error)


def open_consumer(settings: Mapping[str, str], group: str, reason: Reason, **more: str) -> Consumer:
    """Return a consumer of a group, which is subscribed to nothing yet."""
    own: dict[str, Any] = {"group.id": group, "error_cb": reason}
    return Consumer({**SETTINGS, **_CONSUMER, **settings, **own, **more})


def cluster_of(client: Consumer, reason: Reason) -> str:
    """Return the id of the cluster that a client is connected to."""
    try:
        cluster = client.cluster_id(timeout=ANSWER_WAIT_S)
    except KafkaException as problem:
        reason.raise_for(problem, "the brokers")
    if not cluster:
        reason.raise_for(KafkaException("no broker answers"), "the brokers")
    return str(cluster)


class KafkaAdmin:
    """Finds and creates topics."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._reason = Reason()
        self._brokers = settings["bootstrap.servers"]
        own: dict[str, Any] = {"error_cb": self._reason}
        self._admin = AdminClient({**SETTINGS, **settings, **own})

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 where it does not exist."""
        try:
            # Of all topics: asking for one by name might create it.
            found = self._admin.list_topics(timeout=ANSWER_WAIT_S).topics.get(topic)
        except KafkaException as problem:
            self._admin.poll(0)  # calls `_reason`
            self._reason.raise_for(problem, self._brokers)
        return 0 if found is None else len(found.partitions)

    def check_topic(self, topic: str) -> None:
        """Refuse a topic that does not exist."""
        if not self.partitions(topic):
            raise KafkaUnusable(f"{self._brokers} does not have the topic {topic}; create it")

    def ensure_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic that is missing; where that is not allowed, the error says what to create."""
        if self.partitions(topic):
            return
        new = NewTopic(topic, num_partitions=partitions, config=dict(config))
        try:
            self._admin.create_topics([new], request_timeout=ANSWER_WAIT_S)[topic].result(2 * ANSWER_WAIT_S)
        except KafkaException as problem:
            error = problem.args[0]
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
                wanted = " ".join(f"--config {name}={value}" for name, value in config.items())
                raise KafkaUnusable(
                    f"the topic {topic} is missing, and this user may not create it: "
                    f"kafka-topics.sh --create --topic {topic} --partitions {partitions} {wanted}".rstrip()
                ) from None
            self._reason.raise_for(problem, topic)


class Backoff:
    """Pauses between attempts: doubled from one to the next, up to a limit."""

    def __init__(self, first_s: float, max_s: float) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def pause(self, stop: threading.Event) -> None:
        """Wait before the next attempt; `stop` ends the wait."""
        stop.wait(self._next_s)
        self._next_s = min(2 * self._next_s, self._max_s)

    def reset(self) -> None:
        """Begin again with the shortest pause."""
        self._next_s = self._first_s

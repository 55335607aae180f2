"""Clients of Kafka: a consumer and a producer whose errors are rankd's.

librdkafka reconnects by itself. It reports why it cannot in callbacks only, so the last reason is kept for messages.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from rankd.errors import KafkaUnavailable, KafkaUnusable

ANSWER_WAIT_S = 10.0
DELIVERY_WAIT_S = 30.0
ROOM_WAIT_S = 0.1  # for the brokers to take records
OFFSETS_RETRY_S = 0.02
OFFSETS_ATTEMPT_S, OFFSETS_SLOW_S = 1.0, 0.3  # for all leaders to answer
FUTURE_GRACE_S = 0.5  # for the client to report that a request was not answered in time
FAILURE_POLLS = 5  # after a fatal error, for the records that failed
RECORD_BYTES_MAX = 64 * 1024 * 1024  # sent; a topic's max.message.bytes is lower, and refuses first
SETTINGS = {"client.id": "rankd", "log_level": "2", "socket.keepalive.enable": "true"}
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


SentRecord = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]  # key, value, headers
Headers = list[tuple[str, bytes | str | None]]
OnFailure = Callable[[KafkaError | None, Message], None]
# The arguments of confluent-kafka's `produce`: topic, value, key, partition, callback, none, no timestamp, headers.
Record = tuple[str, bytes | str | None, bytes | None, int, OnFailure | None, None, int, Headers]
ANY_PARTITION = -1  # chosen by the key


class KafkaProducer:
    """Sends records, in order within each partition; one thread at a time uses it."""

    def __init__(self, settings: Mapping[str, str], more: Mapping[str, str | bool] | None = None) -> None:
        """Nothing is sent before a record is enqueued; `more` are settings of librdkafka over ours."""
        self.reason = Reason()
        self._failed: list[KafkaError] = []
        self.brokers = settings["bootstrap.servers"]
        failed = self._failed
        own: dict[str, Any] = {
            "message.timeout.ms": int(DELIVERY_WAIT_S * 1_000),
            "message.max.bytes": RECORD_BYTES_MAX,
            "error_cb": self.reason,
            "on_delivery": lambda error, _message: failed.append(error),
            "delivery.report.only.error": True,
        }
        self.client = Producer({**SETTINGS, **_PRODUCER, **settings, **own, **(more or {})})

    def send(self, topic: str, records: Sequence[SentRecord]) -> list[int]:
        """Send records, and return when all are on stable storage; any failure is an error.

        Records that are too large for the topic, and what was sent in a batch with one, are not on it: their indexes
        are returned.
        """
        self._failed.clear()  # of records that were sent before
        too_large: list[int] = []
        deadline = monotonic() + DELIVERY_WAIT_S + ANSWER_WAIT_S

        def note(index: int, error: KafkaError | None, _message: Message) -> None:
            if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                too_large.append(index)
            elif error is not None:
                self._failed.append(error)

        def check_deadline() -> None:
            if monotonic() > deadline:
                raise KafkaUnavailable(f"{topic}: Kafka at {self.brokers} does not confirm records")

        self.enqueue(
            [
                (topic, value, key, ANY_PARTITION, partial(note, index), None, 0, [*headers])
                for index, (key, value, headers) in enumerate(records)
            ],
            check_deadline,
        )
        while not self.is_flushed(topic):
            check_deadline()
        return sorted(too_large)

    def enqueue(self, records: Iterable[Record], waits: Callable[[], None]) -> None:
        """Enqueue records; `waits` is called again and again while there is no room, and may raise."""
        produce, poll, topic = self.client.produce, self.client.poll, self.brokers
        try:
            for record in records:
                topic = record[0]
                while True:
                    try:
                        produce(*record)
                        break
                    except BufferError:
                        poll(ROOM_WAIT_S)
                        self._check(topic)
                        waits()
            poll(0)
        except (KafkaException, SystemError) as problem:
            self._raise(_kafka_problem(problem), topic)
        self._check(topic)

    def is_flushed(self, what: str = "", wait_s: float = ROOM_WAIT_S) -> bool:
        """Wait until the brokers have all records; False when they have not in time. `what` is named in an error."""
        what = what or self.brokers
        try:
            left = self.client.flush(wait_s)
        except (KafkaException, SystemError) as problem:
            self._raise(_kafka_problem(problem), what)
        self._check(what)
        return left == 0

    def drop(self) -> None:
        """Drop what is not confirmed."""
        with suppress(KafkaException, SystemError):
            self.client.purge()
            self.client.poll(0)

    def _raise(self, problem: KafkaException, what: str) -> NoReturn:
        """Raise for a failed call; after a fatal error, the records that failed may say why."""
        for _ in range(FAILURE_POLLS):
            if self._failed:
                break
            with suppress(KafkaException, SystemError):  # the fatal error once more
                self.client.poll(ROOM_WAIT_S)
        self._raise_cause([*self._failed, *problem.args], what)

    def _check(self, what: str) -> None:
        """Raise for records that were not delivered."""
        if self._failed:
            self._raise_cause(self._failed, what)

    def _raise_cause(self, errors: Sequence[KafkaError], what: str) -> NoReturn:
        """Raise for the first error that says why: when one record fails, those behind it are dropped."""
        first = next((error for error in errors if error.code() in _LASTING), errors[0])
        self.reason.raise_for(KafkaException(first), what)


def _kafka_problem(problem: Exception) -> KafkaException:
    """Return Kafka's error: a fatal one that is raised while failures are reported becomes a SystemError's cause."""
    cause = problem if isinstance(problem, KafkaException) else problem.__cause__
    if not isinstance(cause, KafkaException):
        raise problem
    return cause


def open_consumer(settings: Mapping[str, str], group: str, reason: Reason, **more: str) -> Consumer:
    """Return a consumer of a group, which is subscribed to nothing yet."""
    own: dict[str, Any] = {"group.id": group, "error_cb": reason}
    return Consumer({**SETTINGS, **_CONSUMER, **settings, **own, **more})


def cluster_of(client: Consumer | Producer, reason: Reason) -> str:
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
            metadata = self._admin.list_topics(timeout=ANSWER_WAIT_S).topics.get(topic)
        except KafkaException as problem:
            self._admin.poll(0)  # calls `_reason`
            self._reason.raise_for(problem, self._brokers)
        return 0 if metadata is None else len(metadata.partitions)

    def ends(self, places: Sequence[tuple[str, int]], wait_s: float) -> list[int | None]:
        """Return the offset behind the last record of topics and partitions; None where no leader answers in time."""
        return self._offsets(places, OffsetSpec.latest(), wait_s)  # type: ignore[no-untyped-call]

    def firsts(self, places: Sequence[tuple[str, int]], wait_s: float) -> list[int | None]:
        """Return the offset of the first record that is left, likewise."""
        return self._offsets(places, OffsetSpec.earliest(), wait_s)  # type: ignore[no-untyped-call]

    def _offsets(self, places: Sequence[tuple[str, int]], spec: OffsetSpec, wait_s: float) -> list[int | None]:
        offsets: dict[tuple[str, int], int] = {}
        deadline, pause = monotonic() + wait_s, Backoff(OFFSETS_RETRY_S, 10 * OFFSETS_RETRY_S)
        while True:
            asked = {TopicPartition(*place): spec for place in places if place not in offsets}
            failure: KafkaException | None = None
            began = monotonic()
            try:
                attempt_s = min(OFFSETS_ATTEMPT_S, max(OFFSETS_RETRY_S, deadline - monotonic()))
                futures = self._admin.list_offsets(asked, request_timeout=attempt_s)
                for place, future in futures.items():
                    try:
                        answer = future.result(attempt_s + FUTURE_GRACE_S)
                        if answer.offset < 0:
                            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
                        offsets[place.topic, place.partition] = answer.offset
                    except KafkaException as problem:  # also of a leader that is being replaced
                        failure = problem
                    except TimeoutError:
                        failure = KafkaException(KafkaError(KafkaError._TIMED_OUT))
            except KafkaException as problem:
                failure = problem
            # A client that does not know who leads now asks those who did, each time anew, until it lists the topics.
            if failure is not None or monotonic() - began > OFFSETS_SLOW_S:
                with suppress(KafkaException):
                    self._admin.list_topics(timeout=OFFSETS_ATTEMPT_S)
            if failure is None:
                return [offsets[place] for place in places]
            if monotonic() > deadline or failure.args[0].code() in _LASTING:
                if not offsets:
                    self._admin.poll(0)  # calls `_reason`
                    self._reason.raise_for(failure, self._brokers)
                return [offsets.get(place) for place in places]
            pause.pause(threading.Event())
            with suppress(KafkaException):  # the client finds new leaders when it lists topics, not by such a failure
                self._admin.list_topics(timeout=max(OFFSETS_RETRY_S, deadline - monotonic()))

    def check_topic(self, topic: str) -> None:
        """Refuse a topic that does not exist."""
        if not self.partitions(topic):
            raise KafkaUnusable(f"{self._brokers} does not have the topic {topic}; create it")

    def ensure_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> int:
        """Create a topic that is missing, and return how many partitions it has.

        Where creating is not allowed, the error says what to create.
        """
        if existing := self.partitions(topic):
            return existing
        new = NewTopic(topic, num_partitions=partitions, config=dict(config))
        try:
            self._admin.create_topics([new], request_timeout=ANSWER_WAIT_S)[topic].result(2 * ANSWER_WAIT_S)
        except KafkaException as problem:
            error = problem.args[0]
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return self.partitions(topic) or partitions
            if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
                wanted = " ".join(f"--config {name}={value}" for name, value in config.items())
                raise KafkaUnusable(
                    f"the topic {topic} is missing, and this user may not create it: "
                    f"kafka-topics.sh --create --topic {topic} --partitions {partitions} {wanted}".rstrip()
                ) from None
            self._reason.raise_for(problem, topic)
        self._await_leaders(topic)
        return partitions

    def _await_leaders(self, topic: str) -> None:
        """Wait until a new topic can be used."""
        deadline, pause = monotonic() + ANSWER_WAIT_S, threading.Event()
        while monotonic() < deadline:
            with suppress(KafkaException):
                metadata = self._admin.list_topics(timeout=ANSWER_WAIT_S).topics.get(topic)
                if metadata is not None and all(place.leader >= 0 for place in metadata.partitions.values()):
                    return
            pause.wait(OFFSETS_RETRY_S)


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

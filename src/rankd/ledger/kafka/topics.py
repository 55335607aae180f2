"""The topics of a ledger, and how they are made."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import closing
from time import time

from rankd.domain.partition import PARTITIONS_MAX
from rankd.errors import InvalidValue, LedgerNewer, LedgerUnavailable
from rankd.kafka.clients import KafkaAdmin
from rankd.ledger.kafka.control import VERSION, LedgerRecord, encode_ledger
from rankd.ledger.kafka.control_topic import ControlTopic
from rankd.ledger.kafka.failures import as_ledger_failures
from rankd.ledger.kafka.producing import LogProducer, NewRecord
from rankd.ledger.kafka.watermarks import Watermarks

PARTITIONS = 8
RETENTION_MS = 90 * 86_400_000
WAIT_MS = 30_000
_CREATE_TIME = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}
_CONTROL_BYTES_MAX = 16 * 1024 * 1024  # a control record may have thousands of events


def control_topic_of(topic: str) -> str:
    """Return the name of the control topic.

    >>> control_topic_of("rankd-events")
    'rankd-events-control'
    """
    return f"{topic}-control"


def migrate(
    settings: Mapping[str, str], topic: str, partitions: int | None = None, *, retention_ms: int = RETENTION_MS
) -> int:
    """Create the ledger; return its former version, 0 for a new one.

    `settings` are those of Kafka's clients. `partitions` are fixed at creation (8 by default), and `retention_ms` is
    that of a new topic of events. Safe to run twice and concurrently.
    """
    if partitions is not None and not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidValue("partitions", f"must be from 1 to {PARTITIONS_MAX}; got {partitions}")
    control = control_topic_of(topic)
    config = {**_CREATE_TIME, "retention.ms": "-1", "retention.bytes": "-1"}
    with as_ledger_failures():
        admin = KafkaAdmin(settings)
        admin.ensure_topic(control, 1, {**config, "max.message.bytes": str(_CONTROL_BYTES_MAX)})
        watermarks = Watermarks(admin, topic, control, 0)
        with closing(ControlTopic(settings, control, watermarks)) as reading:
            existing = reading.refresh().ledger
            before = 0 if existing is None else existing.version
            wanted = partitions or PARTITIONS if existing is None else existing.partitions
            _check_partitions(partitions, wanted)
            made = admin.ensure_topic(topic, wanted, {**config, "retention.ms": str(retention_ms)})
            if existing is None:
                _check_partitions(partitions, made)
                with closing(LogProducer(settings, WAIT_MS)) as producer:
                    record = NewRecord(encode_ledger(str(uuid.uuid4()), made))
                    producer.produce(control, [record], int(time() * 1_000))
                stored = reading.refresh().ledger
                _check_partitions(partitions, made if stored is None else stored.partitions)
    return before


def _check_partitions(asked: int | None, stored: int) -> None:
    if asked not in (None, stored):
        raise InvalidValue(
            "partitions", f"is {stored} in this ledger and cannot be changed; for {asked}, create another one"
        )


def check_topics(admin: KafkaAdmin, topic: str) -> None:
    """Refuse topics that were not created."""
    for name in (topic, control_topic_of(topic)):
        if not admin.partitions(name):
            raise LedgerUnavailable(f"Kafka has no topic {name}: run `rankd migrate`")


def check_ledger(ledger: LedgerRecord | None, admin: KafkaAdmin, topic: str) -> LedgerRecord:
    """Return the ledger of the topics; refuse one that is incomplete, or newer than this rankd supports."""
    if ledger is None:
        raise LedgerUnavailable("the ledger's creation is incomplete: run `rankd migrate`")
    if ledger.version > VERSION:
        raise LedgerNewer(
            f"the ledger in Kafka has version {ledger.version}, and this rankd knows versions up to {VERSION}: "
            "upgrade rankd"
        )
    if (existing := admin.partitions(topic)) < ledger.partitions:
        raise LedgerUnavailable(
            f"{topic} has {existing} partitions, and its ledger has {ledger.partitions}; was the topic created anew? "
            f"Delete {control_topic_of(topic)} too to begin with an empty ledger"
        )
    return ledger

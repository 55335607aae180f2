"""Relays of tests: one in a thread of the test's own, and what a consumer of its topics finds."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import Message
from tests.servers.kafka import KafkaBroker
from tests.servers.processes import killed_at_the_end
from tests.servers.topics import Topics
from tests.servers.waiting import wait_until

from rankd.boards import Boards
from rankd.config.model import Config, OutboxConfig
from rankd.domain.position import parse_position
from rankd.node.installation import Installation
from rankd.outbox.running import ConfiguredRelay

JOIN_S = 60.0
START_WAIT_S = 120.0
RELAYING = "relaying to"  # what the log of a relay begins with
PARTITIONS, TOP_PARTITIONS = 4, 2


class RelayedEvent(NamedTuple):
    """A record of the topic of events."""

    partition: int  # of the topic
    position: tuple[int, int]  # partition and sequence of the ledger
    event_id: int
    key: str | None
    value: dict[str, Any]


class Outbox:
    """Topics of one test, which relays write and the test reads."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.topics = Topics(broker.address)
        self.config = OutboxConfig(
            url=broker.url,
            topic=self.topics.name("events"),
            partitions=PARTITIONS,
            notifications_topic=self.topics.name("tops"),
            notifications_partitions=TOP_PARTITIONS,
        )

    @property
    def options(self) -> Iterable[tuple[str, object]]:
        """Its section of a configuration."""
        return msgspec.structs.asdict(self.config).items()

    @property
    def variables(self) -> Mapping[str, str]:
        """The configuration of a process."""
        return {f"RANKD_OUTBOX_{name.upper()}": str(value) for name, value in self.options}

    @contextmanager
    def relayed(self, installation: Installation, boards: Boards, *, waits: bool = True) -> Iterator[ConfiguredRelay]:
        """Relay in a thread for the block, which waits until it has the lease."""
        stop, relay = threading.Event(), ConfiguredRelay(Config(outbox=self.config))
        with installation.open_tail(boards) as tail:
            thread = threading.Thread(target=relay.run, args=(boards, tail, stop, print))
            thread.start()
            try:
                wait_until(lambda: not waits or relay.lag() is not None)  # the topics are there
                yield relay
            finally:
                stop.set()
                thread.join(JOIN_S)
                assert not thread.is_alive()

    def events(self) -> list[RelayedEvent]:
        """Return all records of the topic of events, by partition."""
        return [
            self._event(message)
            for partition in range(PARTITIONS)
            for message in self.topics.read(self.config.topic, self.topics.end(self.config.topic, partition), partition)
        ]

    def _event(self, message: Message) -> RelayedEvent:
        headers, key = self.topics.headers(message), message.key()
        position = parse_position(headers["rankd-position"])
        return RelayedEvent(
            message.partition() or 0,
            (position.partition, position.sequence),
            int(headers["rankd-event-id"]),
            None if key is None else key.decode(),
            _json(message) or {},
        )

    def tops(self) -> list[tuple[str, dict[str, Any] | None]]:
        """Return the notifications, by partition: instance and value, None for an instance that is gone."""
        topic = self.config.notifications_topic
        messages = [
            message
            for partition in range(TOP_PARTITIONS)
            for message in self.topics.read(topic, self.topics.end(topic, partition), partition)
        ]
        return [((message.key() or b"").decode(), _json(message)) for message in messages]

    def newest_tops(self) -> dict[str, dict[str, Any] | None]:
        """Return the newest notification of each instance."""
        return dict(self.tops())


class RelayProcesses:
    """Processes that relay one ledger to the topics of an outbox."""

    def __init__(self, outbox: Outbox, folder: Path, ledger: str) -> None:
        self.outbox = outbox
        self._folder = folder
        self._environment: Mapping[str, str] = {**os.environ, "RANKD_LEDGER_URL": ledger, **outbox.variables}
        self._started = 0

    @contextmanager
    def running(self, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a process for the block, and return once it relays, or waits for the lease or for Kafka."""
        self._started += 1
        log = self._folder / f"relay-{self._started}.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", "rankd", "relay"],
                env={
                    **self._environment,
                    "RANKD_RANKS_FOLDER": str(self._folder / f"node-{self._started}"),
                    **environment,
                },
                cwd=self._folder,
                stdout=written,
                stderr=written,
            )
        with killed_at_the_end(process):
            wait_until(lambda: process.poll() is not None or RELAYING in log.read_text(errors="replace"), START_WAIT_S)
            assert process.poll() is None, log.read_text(errors="replace")
            yield process


def wait_relayed(relay: ConfiguredRelay, events: int) -> None:
    """Return when a relay has sent so many events and waits for more."""
    wait_until(lambda: relay.relayed() >= events and relay.lag() == 0)


def once(events: list[RelayedEvent]) -> list[RelayedEvent]:
    """Return events as a consumer does that skips what it has seen; a repeat says the same as the first."""
    seen: dict[tuple[int, int], int] = {}  # sequence, by partition of the topic and of the ledger
    first: dict[tuple[int, int], RelayedEvent] = {}  # by partition and event id
    kept = []
    for event in events:
        ledger_partition, sequence = event.position
        if sequence <= seen.get((event.partition, ledger_partition), 0):
            assert event == first[event.partition, event.event_id]
            continue
        seen[event.partition, ledger_partition] = sequence
        first[event.partition, event.event_id] = event
        kept.append(event)
    return kept


def _json(message: Message) -> dict[str, Any] | None:
    value = message.value()
    return None if value is None else msgspec.json.decode(value, type=dict[str, Any])

"""Ledgers on Kafka for contract tests: topics of each test's own on a broker that others use too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import ClassVar

from tests.servers.topics import Topics
from tests.servers.waiting import wait_until

from rankd.config.model import KafkaConfig
from rankd.kafka.address import client_settings
from rankd.ledger.backlog import BacklogState
from rankd.ledger.kafka import KafkaLedger, migrate
from rankd.ledger.kafka.topics import control_topic_of
from rankd.ledger.port import LogColumns, Part

APPEND_WAIT_MS = 1_500  # of tests in which a broker refuses
LOG_PARTITIONS = 3  # of the tests about logs alone
_numbers = count()

OpenLog = Callable[[], KafkaLedger]


class NoBacklog:
    """Of a ledger that nobody ranks."""

    def read(self) -> BacklogState:
        return BacklogState((), is_held=False)

    def note_ranked(self, positions: Sequence[int]) -> None:
        """Note nothing."""

    def hold(self, hold_ms: int, pause_ms: int) -> bool:
        return True

    def release(self) -> None:
        """End nothing."""


class KafkaStorage:
    """Two topics, which keep what is old: the tests' clocks are set to the past."""

    can_be_changed: ClassVar[bool] = False

    def __init__(self, url: str, partitions: int, *, wait_ms: int = APPEND_WAIT_MS) -> None:
        self.settings = client_settings(url, KafkaConfig())
        self.topics = Topics(self.settings["bootstrap.servers"])
        self.topic = self.topics.name(f"ledger-{next(_numbers)}")
        self.control_topic = control_topic_of(self.topic)
        self.partitions = partitions
        self._wait_ms = wait_ms
        migrate(self.settings, self.topic, partitions, retention_ms=-1)

    def ledger(self) -> KafkaLedger:
        """Open the ledger as one more process."""
        return KafkaLedger(self.settings, self.topic, NoBacklog(), wait_ms=self._wait_ms)

    def open(self) -> tuple[KafkaLedger, Callable[[], None]]:
        ledger = self.ledger()
        return ledger, ledger.close

    def execute(self, statement: str) -> None:
        raise AssertionError(f"Kafka does not run {statement}")

    def refuse(self) -> None:
        """Let no record be small enough."""
        self._limit_records("1")

    def allow(self) -> None:
        self._limit_records("1048576")

    def _limit_records(self, bytes_max: str) -> None:
        topics = self.topic, self.control_topic
        for topic in topics:
            self.topics.configure(topic, "max.message.bytes", bytes_max)
        wait_until(lambda: all(self.topics.value_of(topic, "max.message.bytes") == bytes_max for topic in topics))


def parts_of(ledger: KafkaLedger, after: Sequence[int] = (0,) * LOG_PARTITIONS) -> list[Part]:
    """Read everything behind some positions."""
    position, parts = list(after), list[Part]()
    while read := ledger.read(position, 1_000):
        for part in read:
            position[part.partition] = part.event_run.first + len(part.event_run) - 1
        parts += read
    return parts


def log_of(part: Part) -> LogColumns:
    assert part.log is not None
    return part.log

"""A process writes to a log while another one changes definitions: no score stands there under an older one."""

from __future__ import annotations

import threading
from array import array
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contract.kafka_ledgers import LOG_PARTITIONS, KafkaStorage, OpenLog, parts_of
from tests.contract.ledger_drafts import AT
from tests.servers.kafka import KafkaBroker
from tests.servers.waiting import WAIT_S

from rankd.clock import ManualClock
from rankd.intake.changes import Changes
from rankd.intake.commit import Commit
from rankd.intake.definitions import Definitions
from rankd.intake.scores import ScoreTask
from rankd.intake.sender import Sender
from rankd.intake.writer import Writer
from rankd.ledger.event import EventKind
from rankd.ledger.kafka import KafkaLedger, watermarks
from rankd.ledger.port import DefinitionsChanged
from rankd.settings import read_settings

ADMIN = Sender("admin", "admin")
INSTANCES_MAX = 10
LONG_WAIT_MS = 60_000
HEADS_WAIT_S = 0.2  # less than a broker takes to start


class LogWriter(Writer):
    """A writer whose test acts between a draft and its append."""

    def __init__(self, ledger: KafkaLedger) -> None:
        self.definitions = Definitions(ledger)
        registry: Any = SimpleNamespace()  # scores without attributes ask for none
        super().__init__(ledger, self.definitions, registry, ManualClock(AT), read_settings({}))
        self.changes = Changes(self, ledger, self.definitions, instances_per_event_max=INSTANCES_MAX)
        self.drafted: list[Any] = []  # what is called once, behind the next draft

    def _ordered_contexts(self, commit: Commit) -> frozenset[int]:
        ordered = super()._ordered_contexts(commit)
        if self.drafted:
            self.drafted.pop()()
        return ordered


def versions_in(ledger: KafkaLedger) -> list[int]:
    """Return the versions of the board that scores were accepted under."""
    contexts = [ledger.context(part.event_run.context) for part in parts_of(ledger)]
    return [context.boards["arcade"].version for context in contexts if context.kind is EventKind.SCORE]


def test_a_score_that_was_drafted_before_a_definition_is_drafted_again(open_log: OpenLog) -> None:
    writer, other = LogWriter(open_log()), LogWriter(open_log())
    writer.changes.define("arcade", {"score_max": 10}, ADMIN)
    other.definitions.catch_up()

    def define_and_follow() -> None:
        other.changes.define("arcade", {"score_max": 20}, ADMIN)
        writer.definitions.catch_up()

    writer.drafted.append(define_and_follow)
    writer.accept(ScoreTask("arcade", ["alice"], array("q", [5]), sender=Sender("game", "game")))

    assert versions_in(open_log()) == [2]
    writer.close()
    other.close()


def test_a_score_that_has_to_be_drafted_again_waits_for_brokers_as_long_as_others(
    own_kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = KafkaStorage(own_kafka.url, LOG_PARTITIONS, wait_ms=LONG_WAIT_MS)
    with closing(storage.ledger()) as ledger, closing(storage.ledger()) as other_ledger:
        writer, other = LogWriter(ledger), LogWriter(other_ledger)
        writer.changes.define("arcade", {"score_max": 10}, ADMIN)
        other.definitions.catch_up()
        away = threading.Event()

        def define_and_lose_the_broker() -> None:
            other.changes.define("arcade", {"score_max": 20}, ADMIN)
            writer.definitions.catch_up()
            own_kafka.kill()
            away.set()

        monkeypatch.setattr(watermarks, "HEADS_WAIT_S", HEADS_WAIT_S)
        writer.drafted.append(define_and_lose_the_broker)
        task = ScoreTask("arcade", ["alice"], array("q", [5]), sender=Sender("game", "game"))
        with ThreadPoolExecutor(1) as threads:
            accepted = threads.submit(writer.accept, task)
            assert away.wait(WAIT_S)
            own_kafka.start()
            accepted.result(WAIT_S)

        assert versions_in(ledger) == [2]
        writer.close()
        other.close()


def test_nothing_is_appended_while_a_definition_is_applied(open_log: OpenLog) -> None:
    definitions = Definitions(open_log())
    definitions.check_as_of(0)
    definitions._is_changing = True
    with pytest.raises(DefinitionsChanged):
        definitions.check_as_of(0)

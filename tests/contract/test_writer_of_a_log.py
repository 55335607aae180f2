"""A process writes to a log while another one changes definitions: no score stands there under an older one."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contract.kafka_ledgers import OpenLog, parts_of
from tests.contract.ledger_drafts import AT

from rankd.clock import ManualClock
from rankd.intake.changes import Changes
from rankd.intake.commit import Commit
from rankd.intake.definitions import Definitions
from rankd.intake.scores import ScoreTask
from rankd.intake.sender import Sender
from rankd.intake.writer import Writer
from rankd.ledger.event import EventKind
from rankd.ledger.kafka import KafkaLedger
from rankd.ledger.port import DefinitionsChanged
from rankd.settings import read_settings

ADMIN = Sender("admin", "admin")
INSTANCES_MAX = 10


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


def test_nothing_is_appended_while_a_definition_is_applied(open_log: OpenLog) -> None:
    definitions = Definitions(open_log())
    definitions.check_as_of(0)
    definitions._is_changing = True
    with pytest.raises(DefinitionsChanged):
        definitions.check_as_of(0)

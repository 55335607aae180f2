"""Events that a log's followers refuse are sent by the holder of the lease, at least once, and kept by the others."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence

import pytest
from tests.servers.waiting import wait_until

from rankd.errors import KafkaUnavailable
from rankd.ledger.event import Context, Detail, EventKind, EventRun
from rankd.node import refused_events
from rankd.node.refused_events import RefusedEvents, submission_of
from rankd.projection.admission import RefusedEvent

CONTEXT = Context(EventKind.SCORE, "arcade", "key:game", {})


def column(number: int) -> array[int]:
    return array("q", [number])


def refused(sequence: int) -> RefusedEvent:
    detail: list[Detail | None] = [Detail({"country": "BR"})]
    run = EventRun(7, column(1_000), column(0), column(976), column(3), ["alice"], detail, sequence, 2)
    return RefusedEvent(run, CONTEXT, "board_closed", "arcade takes no scores")


class Topic:
    """The topic of dead letters, which may be away."""

    def __init__(self) -> None:
        self.is_away = False
        self.sent: list[int] = []

    def send(self, events: Sequence[RefusedEvent]) -> None:
        if self.is_away:
            raise KafkaUnavailable("away")
        self.sent += [event.event_run.first for event in events]


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    monkeypatch.setattr(refused_events, "SEND_EVERY_S", 0.005)
    return Topic()


@pytest.fixture
def events(topic: Topic) -> Iterator[RefusedEvents]:
    made = RefusedEvents(topic.send)
    yield made
    made.close()


def test_the_holder_of_the_lease_sends_each_once(events: RefusedEvents, topic: Topic) -> None:
    events.holds_lease = lambda: True
    for sequence in (1, 2, 3):
        events.add(refused(sequence))
    wait_until(lambda: len(topic.sent) >= 3)
    events.close()
    assert topic.sent == [1, 2, 3]


def test_who_takes_the_lease_over_sends_what_came_before(events: RefusedEvents, topic: Topic) -> None:
    events.add(refused(1))
    events.close()
    assert topic.sent == []

    later = RefusedEvents(topic.send)
    later.add(refused(2))
    later.holds_lease = lambda: True
    later.close()
    assert topic.sent == [2]


def test_what_cannot_be_sent_is_sent_later(events: RefusedEvents, topic: Topic) -> None:
    topic.is_away = True
    events.holds_lease = lambda: True
    events.add(refused(1))
    events.add(refused(2))
    topic.is_away = False
    wait_until(lambda: topic.sent == [1, 2])


def test_who_never_gets_the_lease_does_not_keep_them_for_ever(
    events: RefusedEvents, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_events, "KEPT_S", 0.0)
    events.add(refused(1))
    wait_until(lambda: not events._kept)
    events.holds_lease = lambda: True
    events.close()
    assert topic.sent == []


def test_more_than_are_kept_are_counted_and_left_out(
    events: RefusedEvents, topic: Topic, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(refused_events, "KEPT_MAX", 2)
    for sequence in (1, 2, 3):
        events.add(refused(sequence))
    events.holds_lease = lambda: True
    events.close()
    assert topic.sent == [1, 2]
    assert "1 refused events became no dead letters" in caplog.text


def test_a_letter_is_what_would_be_sent_to_the_api() -> None:
    assert json.loads(submission_of(refused(1))) == {
        "board": "arcade",
        "player": "alice",
        "at": 1_000,
        "score": 976,
        "tiebreak": 3,
        "attributes": {"country": "BR"},
    }

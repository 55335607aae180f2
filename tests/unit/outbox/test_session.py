"""When a relay stores its position: by hand, with brokers that confirm when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.servers.waiting import join_all, wait_until

import rankd
from rankd.boards import Boards
from rankd.errors import KafkaUnavailable
from rankd.kafka.clients import Backoff, Record
from rankd.ledger.port import SourceMoved, SourceSpan
from rankd.node.open_embedded import embedded_of
from rankd.outbox import session as module
from rankd.outbox.relay import LeaseLost, LeaseTerm, RelayFigures
from rankd.outbox.session import OutboxTopic, RelaySession

from .lagging_boards import LaggingBoards

EVENTS = 100
SOURCE = "relay:cluster/events"


class HeldProducer:
    """Brokers that confirm records when they may."""

    brokers = "brokers"

    def __init__(self) -> None:
        self.may_confirm = threading.Event()
        self.records: list[Record] = []

    def enqueue(self, records: Iterable[Record], _waits: Callable[[], None]) -> None:
        self.records += records

    def is_flushed(self, wait_s: float = 0.01) -> bool:
        return self.may_confirm.wait(wait_s)


class RecordingStore:
    """The position in the ledger, and every move of it."""

    def __init__(self, boards: Boards) -> None:
        self._boards = boards
        self.stored: list[SourceSpan] = []

    def offsets(self, source: str) -> dict[int, int]:
        return self._boards.sources.offsets(source)

    def skip(self, spans: Sequence[SourceSpan]) -> None:
        self._boards.sources.skip(spans)
        self.stored += spans


class LostLease:
    """A lease that another relay gets."""

    def __init__(self) -> None:
        self.is_lost = False

    def claim(self) -> bool:
        return True

    def is_held(self) -> bool:
        return not self.is_lost

    def release(self) -> None:
        """Nobody waits."""


class SessionByHand:
    """A session in a thread, on boards with some events."""

    def __init__(self, boards: Boards) -> None:
        self.boards = boards
        self.producer, self.store = HeldProducer(), RecordingStore(boards)
        self.lagging, self.lease, self.figures = LaggingBoards(boards), LostLease(), RelayFigures()
        self.stop = threading.Event()
        self.raised: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Return when the session has ended."""
        join_all([self._thread])

    def _run(self) -> None:
        topics = OutboxTopic("events", 4), OutboxTopic("tops", 2)
        session = RelaySession(
            embedded_of(self.boards).ledger,
            self.store,
            self.lagging,
            self.producer,  # type: ignore[arg-type]  # no client of Kafka
            source=SOURCE,
            events=topics[0],
            tops=topics[1],
            term=LeaseTerm(self.lease, self.stop, Backoff(0.1, 1.0), self.figures),
            figures=self.figures,
        )
        try:
            session.run()
        except (KafkaUnavailable, LeaseLost, SourceMoved) as problem:
            self.raised = problem


@pytest.fixture
def by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionByHand]:
    monkeypatch.setattr(module, "STORE_EVERY_S", 0.0)
    monkeypatch.setattr(module, "STOP_WAIT_S", 0.05)
    monkeypatch.setattr("rankd.outbox.relay.LEASE_EVERY_S", 0.0)
    with rankd.open(tmp_path / "data") as boards:
        boards.define("tally", keep="sum")
        boards.submit_many("tally", players=[f"p{n}" for n in range(EVENTS)], scores=[*range(EVENTS)])
        made = SessionByHand(boards)
        made.start()
        try:
            yield made
        finally:
            made.stop.set()
            made.end()


def test_the_position_is_stored_once_the_brokers_have_confirmed(by_hand: SessionByHand) -> None:
    wait_until(lambda: len(by_hand.producer.records) > EVENTS)
    assert (by_hand.figures.lag, by_hand.figures.relayed) == (EVENTS + 1, 0)
    by_hand.boards.submit("tally", "p1", 1)
    assert by_hand.store.stored == []

    by_hand.producer.may_confirm.set()
    wait_until(lambda: by_hand.store.offsets(SOURCE) == {0: EVENTS + 3})

    assert by_hand.figures.lag == 0
    assert by_hand.figures.relayed == EVENTS + 2
    assert [span.after for span in by_hand.store.stored] == [
        -1,
        *(span.upto for span in by_hand.store.stored[:-1]),
    ]


def test_a_stop_while_nothing_is_confirmed_stores_nothing(by_hand: SessionByHand) -> None:
    wait_until(lambda: len(by_hand.producer.records) > EVENTS)

    by_hand.stop.set()
    by_hand.end()

    assert isinstance(by_hand.raised, KafkaUnavailable)
    assert by_hand.store.offsets(SOURCE) == {}


def test_the_position_waits_for_the_notifications_of_its_events(by_hand: SessionByHand) -> None:
    by_hand.producer.may_confirm.set()
    wait_until(lambda: by_hand.store.offsets(SOURCE) == {0: EVENTS + 2})
    by_hand.lagging.is_lagging = True
    by_hand.boards.submit("tally", "p1", 1_000)
    wait_until(lambda: by_hand.figures.relayed == EVENTS + 2)
    assert by_hand.store.offsets(SOURCE) == {0: EVENTS + 2}
    sent = by_hand.figures.notified

    by_hand.lagging.is_lagging = False
    wait_until(lambda: by_hand.store.offsets(SOURCE) == {0: EVENTS + 3})

    assert by_hand.figures.notified == sent + 1


def test_a_relay_whose_position_another_one_moved_ends(by_hand: SessionByHand) -> None:
    by_hand.producer.may_confirm.set()
    wait_until(lambda: by_hand.store.offsets(SOURCE) == {0: EVENTS + 2})
    by_hand.boards.sources.skip([SourceSpan(SOURCE, 0, EVENTS + 2, EVENTS + 3)])

    by_hand.boards.submit("tally", "p1", 1)
    by_hand.end()

    assert isinstance(by_hand.raised, SourceMoved)


def test_a_relay_that_waits_for_brokers_ends_with_its_lease(by_hand: SessionByHand) -> None:
    wait_until(lambda: len(by_hand.producer.records) > EVENTS)

    by_hand.lease.is_lost = True
    by_hand.end()

    assert isinstance(by_hand.raised, LeaseLost)
    assert by_hand.store.offsets(SOURCE) == {}

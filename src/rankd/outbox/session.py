"""One session of the relay: from the stored position on, over one connection to the brokers, until an error.

    Ledger.read → Merging → records, notifications → KafkaProducer → all confirmed? → the position is stored

What is stored is confirmed, and so are the notifications of its events. After any error the session is given up with
what is in flight, and the next one begins at the stored position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import NamedTuple, Protocol

from rankd.domain.partition import partition_of
from rankd.errors import KafkaUnavailable
from rankd.kafka.clients import Backoff, KafkaProducer, Record
from rankd.ledger.port import NOT_READ, Ledger, SourceSpan
from rankd.outbox.notifications import TopNotifications, TopReader
from rankd.outbox.records import EventRecords
from rankd.outbox.relay import LeaseTerm, RelayFigures
from rankd.projection.merging import Merging, Step

READ_EVENTS = 5_000  # at once
POLL_FIRST_S, POLL_MAX_S = 0.01, 0.1  # between two looks at a ledger without new events
CONFIRM_EVERY_S = 1.0  # while there is work; else at once
STORE_EVERY_S = 1.0  # each is a commit of the ledger
SETTLE_S_MAX = 10.0  # how long notifications keep the position from being stored
UNCONFIRMED_S_MAX = 5.0  # then the log says that it waits
STOP_WAIT_S = 5.0  # for the last confirmations
PRODUCER = {
    "enable.gapless.guarantee": "true",  # after a record that fails, none is sent
    "message.timeout.ms": "0",  # brokers that are away are waited for: giving a record up would be a gap
    "queue.buffering.max.messages": "20000",
    "queue.buffering.max.kbytes": "65536",
    "message.max.bytes": "8388608",  # the topic's own limit decides
    "reconnect.backoff.max.ms": "1000",
}


class PositionStore(Protocol):
    """Keeps the position in the ledger: rankd.intake.sources.SourceIntake."""

    def offsets(self, source: str) -> dict[int, int]:
        """Return the sequences to relay next, by partition."""

    def skip(self, spans: Sequence[SourceSpan]) -> None:
        """Move the position on; SourceMoved where another relay has."""


class OutboxTopic(NamedTuple):
    """A topic, and how many partitions it has."""

    name: str
    partitions: int


class _Confirmed(NamedTuple):
    """Positions that the brokers have confirmed at an instant."""

    positions: tuple[int, ...]
    at_s: float


class RelaySession:
    """Relays from the stored position on; used by one thread, once."""

    def __init__(
        self,
        ledger: Ledger,
        store: PositionStore,
        boards: TopReader,
        producer: KafkaProducer,
        *,
        source: str,
        events: OutboxTopic,
        tops: OutboxTopic,
        term: LeaseTerm,
        figures: RelayFigures,
    ) -> None:
        """`source` names the position in the ledger, `tops` is the topic of notifications."""
        self._ledger = ledger
        self._store = store
        self._producer = producer
        self._source = source
        self._tops = tops
        self._term = term
        self._figures = figures
        self._records = EventRecords(events.name, events.partitions, ledger.context, ledger.metadata)
        self._notifications = TopNotifications(boards, self._send_top)
        self._merging = Merging(ledger.partitions, ledger.context, 0)
        offsets: Mapping[int, int] = store.offsets(source)
        self._stored = [offsets.get(partition, NOT_READ) for partition in range(ledger.partitions)]
        self._read = [max(0, offset - 1) for offset in self._stored]
        self._sent = list(self._read)
        self._is_confirmed = True
        self._confirmed = _Confirmed(tuple(self._sent), monotonic())
        self._unconfirmed_s = 0.0  # since when records wait for the brokers
        self._unsettled: _Confirmed | None = None  # whose notifications are not all confirmed
        self._storable = self._confirmed.positions
        self._stored_s = monotonic()
        self._head = 0  # events of the ledger, as counted last
        self._ends_by_s: float | None = None  # after a stop

    def run(self) -> None:
        """Relay until the term ends; store the position at the end."""
        pause = Backoff(POLL_FIRST_S, POLL_MAX_S)
        self._measure_lag()
        while not self._term.is_over:
            events = self._relay_some()
            self._notifications.publish(monotonic())
            is_due = not events or monotonic() - self._confirmed.at_s >= CONFIRM_EVERY_S
            if is_due and not self._is_confirmed:
                self._confirm()
            if monotonic() - self._stored_s >= STORE_EVERY_S:
                self._store_position()
            self._check()
            if events:
                pause.reset()
            else:
                self._term.pause(pause)
        self._notifications.publish(monotonic(), at_once=True)
        self._confirm()
        self._store_position()

    def _relay_some(self) -> int:
        """Send the next events; return how many were read."""
        at_barrier = [part for part in range(len(self._read)) if self._merging.holds_back(part)]
        parts = self._ledger.read(self._read, READ_EVENTS, at_barrier)
        for part in parts:
            self._read[part.partition] = part.event_run.span.upto
        # Without ordinals: the order is by player, and a reader that begins anywhere does not know the last one.
        self._merging.add(part._replace(ordinals=None) for part in parts)
        for step in self._merging.steps():
            self._relay(step)
        return sum(len(part.event_run) for part in parts)

    def _relay(self, step: Step) -> None:
        event_run, barrier = step
        if barrier is None:
            self._enqueue(self._records.of_players(event_run))
            self._sent[event_run.partition] = event_run.span.upto
        else:
            self._enqueue(self._records.of_control(event_run))
            self._sent = list(barrier)
        self._notifications.touch(self._ledger.context(event_run.context), event_run, monotonic())

    def _send_top(self, instance: str, value: bytes | None) -> None:
        name, partitions = self._tops
        partition = partition_of(instance, partitions)
        self._enqueue([(name, value, instance.encode(), partition, None, None, 0, [])])
        self._figures.notified += 1

    def _enqueue(self, records: Iterable[Record]) -> None:
        if self._is_confirmed:
            self._is_confirmed, self._unconfirmed_s = False, monotonic()
        self._producer.enqueue(records, self._wait)

    def _wait(self) -> None:
        """Go on waiting for the brokers, if this relay may."""
        self._check()
        now_s = monotonic()
        if now_s - self._unconfirmed_s > UNCONFIRMED_S_MAX:
            self._term.waits(f"Kafka at {self._producer.brokers} does not confirm records")
        if self._term.is_over:
            self._ends_by_s = self._ends_by_s or now_s + STOP_WAIT_S
            if now_s > self._ends_by_s:
                raise KafkaUnavailable("it stops before Kafka has confirmed all records, and will send them again")

    def _check(self) -> None:
        if self._term.check():
            self._measure_lag()

    def _measure_lag(self) -> None:
        self._head = sum(self._ledger.heads().sequences)
        self._show_lag()

    def _show_lag(self) -> None:
        self._figures.lag = max(self._head, sum(self._read)) - sum(self._confirmed.positions)

    def _confirm(self) -> None:
        """Wait until the brokers have everything; then some of it can be stored."""
        waiting_s = self._notifications.oldest_s  # since when; what was sent for earlier events is confirmed below
        while not self._producer.is_flushed():
            self._wait()
        self._is_confirmed = True
        self._term.goes_on()
        confirmed = _Confirmed(tuple(self._sent), monotonic())
        self._figures.relayed += sum(confirmed.positions) - sum(self._confirmed.positions)
        self._confirmed = confirmed
        self._show_lag()
        unsettled = self._unsettled
        if waiting_s is None:
            self._storable, self._unsettled = confirmed.positions, None
        elif unsettled is None:
            self._unsettled = confirmed
        elif waiting_s > unsettled.at_s or confirmed.at_s - unsettled.at_s > SETTLE_S_MAX:
            self._storable, self._unsettled = unsettled.positions, confirmed

    def _store_position(self) -> None:
        self._stored_s = monotonic()
        spans = [
            SourceSpan(self._source, partition, stored, position + 1)
            for partition, (stored, position) in enumerate(zip(self._stored, self._storable, strict=True))
            if position >= max(stored, 1)
        ]
        if spans:
            self._store.skip(spans)
            for span in spans:
                self._stored[span.partition] = span.upto

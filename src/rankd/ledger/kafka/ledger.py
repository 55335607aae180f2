"""The ledger on Kafka; ledger/port.py has its promises, those of a log.

    draft → one record per event, in its player's partition → offsets of all records, once all brokers in sync have them
    control event → record in the control topic → judged by its place there → a barrier in every partition → `copied`

A sequence is an offset + 1. Nothing is compared before an event is written: followers judge it.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack

from rankd.errors import InvalidValue, LedgerDamaged
from rankd.kafka.clients import KafkaAdmin
from rankd.ledger.appended import AppendedColumns
from rankd.ledger.audit import AuditedPage, AuditMark, AuditQuery
from rankd.ledger.backlog import Backlog
from rankd.ledger.event import Context, EventRun
from rankd.ledger.kafka.control_topic import ControlTopic
from rankd.ledger.kafka.control_writing import ControlWriter
from rankd.ledger.kafka.failures import as_ledger_failures
from rankd.ledger.kafka.looking_up import EventLookup, MetadataLookup
from rankd.ledger.kafka.marking import TimeMarks
from rankd.ledger.kafka.producing import LogProducer, NewRecord
from rankd.ledger.kafka.reading import LogReaders
from rankd.ledger.kafka.records import Barrier, Decoder, encode_draft
from rankd.ledger.kafka.topics import WAIT_MS, check_ledger, check_topics, control_topic_of
from rankd.ledger.kafka.watermarks import Watermarks
from rankd.ledger.origin import RequestOrigin
from rankd.ledger.port import (
    CONTROLS_MAX,
    Appended,
    Capabilities,
    ControlEvent,
    Draft,
    Heads,
    KeyedRequest,
    Part,
    PastEvent,
    StoredRequest,
)
from rankd.ledger.vector import shares


class KafkaLedger:
    """A ledger in the topics that `migrate` made; from any thread."""

    def __init__(
        self,
        settings: Mapping[str, str],
        topic: str,
        backlog: Backlog,
        *,
        wait_ms: int = WAIT_MS,
        close_backlog: Callable[[], None] = lambda: None,
    ) -> None:
        """Connect, and read the control topic; refuse a ledger that is newer than this rankd supports.

        `settings` are those of Kafka's clients. `wait_ms` is how long an append waits for brokers that are away.
        """
        self.backlog = backlog
        self.capabilities = Capabilities(
            is_sole_writer=False,
            stores_answers=False,
            appends_conditionally=False,
            finds_history=False,
            append_wait_ms=wait_ms,
        )
        control_topic = control_topic_of(topic)
        with ExitStack() as opening, as_ledger_failures():
            admin = KafkaAdmin(settings)
            check_topics(admin, topic)
            watermarks = Watermarks(admin, topic, control_topic, 0)
            self._control = ControlTopic(settings, control_topic, watermarks)
            opening.callback(self._control.close)
            ledger = check_ledger(self._control.refresh().ledger, admin, topic)
            opening.pop_all()
        self._partitions, self._identity = ledger.partitions, ledger.identity
        self._watermarks = watermarks = Watermarks(admin, topic, control_topic, ledger.partitions)
        self._topic = topic
        self._producer = LogProducer(settings, wait_ms)
        # Of its own: while an append waits for a broker, what is about no player goes on.
        upkeep = LogProducer(settings, wait_ms)
        self._marks = TimeMarks(upkeep, topic, ledger.partitions)
        self._control_writer = ControlWriter(self._control, upkeep, topic, ledger.partitions)
        self._readers = LogReaders(settings, topic, ledger.partitions)
        self._lookup = EventLookup(settings, topic, watermarks)
        self._metadata = MetadataLookup(self._lookup)
        self._decoder = Decoder(self._barrier, self._metadata.cache.note)
        self._at = 0  # the newest time of a record that was read or written here
        self._known = [0] * ledger.partitions  # the ends, as far as this process knows
        self._lock = threading.Lock()
        self._closing = [
            close_backlog,
            self._control.close,
            self._lookup.close,
            self._readers.close,
            upkeep.close,
            self._producer.close,
        ]

    def stamp(self, _positions: Sequence[int]) -> str:
        """Return the ledger's identity: its sequences are never reused."""
        return self._identity

    @property
    def partitions(self) -> int:
        """The number of partitions, fixed when the ledger is created."""
        return self._partitions

    @property
    def identity(self) -> str:
        """The unique identity of this ledger."""
        return self._identity

    def close(self) -> None:
        """Close the connections."""
        with ExitStack() as closing:
            for close in self._closing:
                closing.callback(close)

    def heads(self) -> Heads:
        """Return the committed heads."""
        ends, control_end = self._watermarks.all_ends()
        state = self._control.read_to(control_end)
        firsts = tuple(offset + 1 for offset in self._watermarks.firsts())
        return Heads(tuple(ends), state.copied, max(self._at, state.at), firsts=firsts)

    def sequences_at(self, _at: int) -> tuple[int, ...]:
        """Refuse: an instant is on different sides of a control event in different partitions."""
        raise InvalidValue("as_of", "is not answered where the ledger is Kafka; read without it")

    # Writing

    def append(self, draft: Draft) -> Appended:
        """Make a draft durable; each event is written by itself."""
        if draft.sources:
            raise ValueError("a log takes no events of a source: it could not move its offsets on in the same commit")
        draft.distinct_keys()
        encoded = encode_draft(draft, self._partitions)
        partitions = array("H", [partition for _, _, partition in encoded])
        sequences = array("q")
        if encoded:
            offsets = self._producer.produce(self._topic, [NewRecord(*event) for event in encoded], draft.at)
            following = {partition: iter(of_partition) for partition, of_partition in offsets.items()}
            sequences = array("q", [next(following[partition]) + 1 for partition in partitions])
            self._note_time(draft.at)
        return AppendedColumns(partitions, sequences, draft.at)

    def append_control(
        self,
        events: Sequence[ControlEvent],
        seen: int,
        request: KeyedRequest | None = None,
        *,
        at: int = 0,
        forgotten_before: int = 0,
        origin: RequestOrigin | None = None,
    ) -> Sequence[ControlEvent]:
        """Make control events durable, in every partition; return them with their numbers and sequences."""
        return self._control_writer.append(events, seen, at, request, forgotten_before)

    def number_context(self, context: Context) -> int:
        """Return the number of a context; a new context gets a number that every process will see."""
        known = self._control.state.number_of(context)
        return self._control_writer.number([context])[0] if known is None else known

    def tend(self, awaited: int | None = None) -> None:
        """Complete control events of processes that died; write time marks where an event waits for them."""
        self._control_writer.complete()
        if awaited is not None:
            self._marks.write(awaited, self._at)

    def prepare(self, _now: int) -> None:
        """Do nothing: topics grow by themselves."""

    def forget_requests(self, before: int, count_max: int) -> int:
        """Forget some of the old requests of control events; followers forget those of scores."""
        return self._control.state.forget_requests(before, count_max)

    # Reading

    def controls(self, after: int, count_max: int = CONTROLS_MAX) -> Sequence[ControlEvent]:
        """Return the first `count_max` control events behind a number, in order."""
        state = self._control.refresh()
        return state.events(after, min(state.copied, after + count_max))

    def read(self, after: Sequence[int], events_max: int, skipping: Collection[int] = ()) -> Sequence[Part]:
        """Return committed events behind a sequence of each partition, in order within each, about `events_max` in all.

        What has been fetched is enough to know that there is something; else the brokers are asked for their ends.
        """
        with self._readers.at(after, self._check_places) as reader:
            reader.skipped = skipping
            reader.fetch(0.0)
            waiting = self._waiting(reader.ends, after, skipping)
            if not any(waiting):
                waiting = self._waiting(self._watermarks.ends(), after, skipping)
            if not any(waiting):
                return []
            taken = reader.take(shares(waiting, events_max))
            parts = [
                part for partition, records in enumerate(taken) for part in self._decoder.parts(partition, records)
            ]
        for partition, records in enumerate(taken):
            if records:
                self._marks.note_read(partition, max(record.time for record in records))
                # Not that of marks, which are ahead of the clock.
                self._note_time(max((record.time for record in records if record.key is not None), default=0))
        return parts

    def _waiting(self, ends: Sequence[int | None], after: Sequence[int], skipping: Collection[int]) -> list[int]:
        """Return how many offsets there are behind `after`, as far as this process knows; `ends` is what it learnt."""
        known = self._known = [max(before, end or 0) for before, end in zip(self._known, ends, strict=True)]
        return [
            0 if partition in skipping else max(0, end - begun)
            for partition, (end, begun) in enumerate(zip(known, after, strict=True))
        ]

    def _check_places(self, after: Sequence[int]) -> None:
        """Refuse places that the log does not have any more, or not yet."""
        firsts, ends = self._watermarks.firsts(now=True), self._watermarks.ends()
        for partition, (first, begun, end) in enumerate(zip(firsts, after, ends, strict=True)):
            if begun < first:
                raise LedgerDamaged(
                    f"partition {partition} of the ledger's log begins at {first + 1}, and {begun + 1} is to be read "
                    "next: what was between them has expired; begin with a newer checkpoint"
                )
            if end is not None and end < begun:
                raise LedgerDamaged(
                    f"partition {partition} of the ledger ends at {end}, before what was read of it; were the topics "
                    "created anew?"
                )

    def wait(self, timeout_s: float) -> None:
        """Return when something may have been appended, at the latest after `timeout_s`."""
        self._readers.wait(timeout_s)

    def context(self, number: int) -> Context:
        """Return a context by number."""
        state = self._control.state
        return (state if state.has_context(number) else self._control.refresh()).context(number)

    def _barrier(self, number: int) -> Barrier:
        barrier = self._control.state.barrier(number) or self._control.refresh().barrier(number)
        if barrier is None:
            raise LedgerDamaged(f"control event {number} is missing in the control topic; was it created anew?")
        return barrier

    def event(self, partition: int, sequence: int) -> EventRun:
        """Return one event as a run of one."""
        record = self._lookup.find([(partition, sequence)]).get((partition, sequence))
        if record is None:
            raise LedgerDamaged(f"event {sequence} of partition {partition} is missing, or has expired")
        (part,) = self._decoder.parts(partition, [record])
        return part.event_run

    def request(self, sender: str, key: str) -> StoredRequest | None:
        """Return the request of control events under a key, as far as was read; followers know those of scores."""
        return self._control.state.request(sender, key)

    def requests(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], StoredRequest]:
        """Return the requests of control events under any of these keys."""
        stored = {place: self.request(*place) for place in keys}
        return {place: request for place, request in stored.items() if request is not None}

    def sources(self) -> list[str]:
        """Return nothing: a log takes no events of a source."""
        return []

    def source_offsets(self, _source: str) -> dict[int, int]:
        """Return nothing: a log takes no events of a source."""
        return {}

    def metadata(self, events: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """Return the metadata (JSON) of events, by partition and sequence, that have some and have not expired."""
        return self._metadata.find(events)

    def history(self, player: str, limit: int, before: int | None = None, board: str | None = None) -> list[PastEvent]:
        """Refuse: it would read the whole log."""
        raise InvalidValue("player", "has no history where the ledger is Kafka")

    def audit(self, _query: AuditQuery, _before: AuditMark | None = None) -> AuditedPage:
        """Refuse: it would read the whole log."""
        raise _not_audited()

    def events_of(self, _players: Mapping[str, int], _events_max: int) -> Iterator[tuple[str, Sequence[EventRun]]]:
        """Refuse: it would read the whole log."""
        raise _not_audited()

    def controls_of(self, _board: str, _partition: int) -> Sequence[EventRun] | None:
        """Refuse: it would read the whole log."""
        raise _not_audited()

    def _note_time(self, at: int) -> None:
        with self._lock:
            self._at = max(self._at, at)


def _not_audited() -> InvalidValue:
    return InvalidValue("audit", "is not answered where the ledger is Kafka")

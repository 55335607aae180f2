"""Writes the control topic: contexts, control events, and their copies in every partition."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import monotonic

from rankd.ledger.event import Context
from rankd.ledger.kafka.control import (
    ControlKey,
    ControlRecord,
    CopiedRecord,
    control_item,
    encode_context_record,
    encode_record,
)
from rankd.ledger.kafka.control_topic import ControlTopic
from rankd.ledger.kafka.producing import LogProducer, NewRecord
from rankd.ledger.kafka.records import encode_barrier
from rankd.ledger.port import ControlEvent, DefinitionsChanged, KeyedRequest, KeysTaken

LEFT_AFTER_S = 1.0  # a control event that is not copied by then is that of a process that died


class ControlWriter:
    """Appends control events; from any thread, one at a time."""

    def __init__(self, topic: ControlTopic, producer: LogProducer, events_topic: str, partitions: int) -> None:
        """The copies go into the partitions of `events_topic`."""
        self._topic = topic
        self._producer = producer
        self._events_topic = events_topic
        self._partitions = partitions
        self._lock = threading.Lock()
        self._left: tuple[int, float] | None = None  # a number that is not copied, and since when

    def number(self, contexts: Sequence[Context]) -> list[int]:
        """Return the numbers of contexts; those that have none get one."""
        with self._lock:
            return self._number(contexts)

    def _number(self, contexts: Sequence[Context]) -> list[int]:
        state = self._topic.state
        missing = {context.key: context for context in contexts if state.number_of(context) is None}
        if missing:
            self._produce([encode_context_record(context) for context in missing.values()])
        numbers = [state.number_of(context) for context in contexts]
        return [number for number in numbers if number is not None]

    def append(
        self,
        events: Sequence[ControlEvent],
        seen: int,
        at: int,
        request: KeyedRequest | None = None,
        forgotten_before: int = 0,
    ) -> Sequence[ControlEvent]:
        """Append control events and copy them; DefinitionsChanged, and none is valid, where there are unseen ones.

        KeysTaken, and nothing is written, where the key of their request was used after `forgotten_before`.
        """
        with self._lock:
            state = self._topic.refresh()
            if state.count > state.copied:
                self._copy()  # their process died, or is copying them too
            if state.count != seen:
                raise DefinitionsChanged
            if request is not None:
                earlier = state.request(request.sender, request.key)
                if earlier is not None and earlier.at >= forgotten_before:
                    raise KeysTaken([(request.sender, request.key)])
            elif not events:
                return []
            numbers = self._number([event.context for event in events])
            items = [
                control_item(number, event.at, event.detail) for number, event in zip(numbers, events, strict=True)
            ]
            latest = max([at, state.at, *(event.at for event in events)])
            key = None if request is None else ControlKey(request.sender, request.key, request.fingerprint)
            last = state.last_of(self._produce([encode_record(ControlRecord(seen, latest, items, key))], latest))
            if last is None:  # another process was faster
                raise DefinitionsChanged
            self._copy()
            return state.events(last - len(events), last)

    def complete(self) -> None:
        """Copy control events that were left uncopied for some time."""
        state = self._topic.read_what_came()
        first = state.copied + 1
        if state.count < first:
            self._left = None
        elif self._left is None or self._left[0] != first:
            self._left = first, monotonic()
        elif monotonic() - self._left[1] >= LEFT_AFTER_S:
            with self._lock:
                self._copy()

    def _copy(self) -> None:
        """Copy the control events that are in no or in some partitions into all, in order, and say so.

        Another process may do the same: the copies that a reader meets first count, and they are in order too.
        """
        state = self._topic.state
        numbers = range(state.copied + 1, state.count + 1)
        if not numbers:
            return
        barriers = [
            NewRecord(encode_barrier(number), None, partition)
            for number in numbers
            for partition in range(self._partitions)
        ]
        offsets = self._producer.produce(self._events_topic, barriers, max(map(state.time_of, numbers)))
        sequences = [[offsets[partition][index] + 1 for partition in offsets] for index in range(len(numbers))]
        self._produce([encode_record(CopiedRecord(numbers[-1], sequences))], state.at)

    def _produce(self, values: Sequence[bytes], at: int = 0) -> int:
        """Produce control records, read the topic up to them, and return the offset of the last."""
        offsets = self._producer.produce(self._topic.name, [NewRecord(value) for value in values], at)[0]
        self._topic.read_to(offsets[-1] + 1)
        return offsets[-1]

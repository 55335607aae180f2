"""Encodes a draft as the arguments of `append_1`, and decodes the places of its events from the answer.

draft → partition of each event → sorted by partition → columns, packed → one call → sequences in the draft's order
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import msgspec
import psycopg
from psycopg.types.numeric import Int8

from rankd.domain.partition import partition_of
from rankd.ledger.appended import AppendedColumns
from rankd.ledger.event import EventRun, encode_column, encode_detail
from rankd.ledger.origin import RequestOrigin
from rankd.ledger.port import (
    Appended,
    ControlEvent,
    DefinitionsChanged,
    Draft,
    KeyedRequest,
    KeysTaken,
    SourceMoved,
)
from rankd.ledger.postgres.packing import Bigints, Bytes, Integers, Smallints, SparseBigints, Texts

TEAMS = -1  # the head that ordinals are taken from
DEFINITIONS_CHANGED = "RK001"
KEYS_TAKEN = "RK002"
SOURCE_MOVED = "RK003"
_ARGUMENTS = 27
_CALL_APPEND = f"SELECT bases, committed FROM append_1({', '.join(['%s'] * _ARGUMENTS)})"  # noqa: S608 - no value in it
_ADVANCE_SOURCES = ", advance_sources_1(%s, %s, %s, %s)"
_ADD_ORIGINS = ", add_origins_1(bases, %s, %s, %s, %s, %s, %s)"
CALL_APPEND_CONTROL = "SELECT ends, numbered, committed FROM append_control_1(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
CALL_APPEND_CONTROL_FROM = f"{CALL_APPEND_CONTROL}, add_origins_1(ARRAY[0, ends[1] - %s], %s, %s, %s, %s, %s, %s)"


# `append_1` adds the addresses alone, for versions that knew nothing else of a request.
_NO_ORIGINS = (Smallints(None), Bigints(None), Bigints(None), Texts(None))


class OrderedDraft:
    """The events of a draft in write order: by partition, and in the draft's order within each."""

    def __init__(self, draft: Draft, partitions: int) -> None:
        """Compute every event's partition."""
        self.draft = draft
        players = list(chain.from_iterable(event_run.players for event_run in draft.event_runs))
        self.count = len(players)
        self.partition = array("H", [partition_of(player, partitions) for player in players])
        self.players = players
        # The sort is stable: it keeps the draft's order within a partition.
        self.order = sorted(range(self.count), key=self.partition.__getitem__)
        self.counts = {part: self.partition.count(part) for part in sorted(set(self.partition))}
        self.place = self._places()

    def _places(self) -> array[int]:
        """Return each event's number among those of its partition, from 1, in the draft's order."""
        place = array("q", bytes(8 * self.count))
        row = 0
        for count in self.counts.values():
            for number, index in enumerate(self.order[row : row + count], start=1):
                place[index] = number
            row += count
        return place

    def call(self) -> tuple[str, list[Any]]:
        """Return the statement that appends the draft, and its arguments."""
        statement, arguments, sources = _CALL_APPEND, self._arguments(), self.draft.sources
        if sources:
            statement += _ADVANCE_SOURCES
            arguments += (
                Texts([span.source.encode() for span in sources]),
                Integers([span.partition for span in sources]),
                Bigints([span.after for span in sources]),
                Bigints([span.upto for span in sources]),
            )
        spans = [
            (partition, first, upto, origin)
            for origin, start, count in self.draft.origins
            for partition, (first, upto) in self._span(start, count).items()
        ]
        if spans:
            statement += _ADD_ORIGINS
            arguments += _origin_arguments(spans)
        return statement, arguments

    def _arguments(self) -> list[Any]:
        """Return the arguments of `append_1`."""
        draft = self.draft
        ordinals = self._ordinals()
        counts = self.counts
        if ordinals is not None:
            counts = {TEAMS: sum(ordinal is not None for ordinal in ordinals), **counts}
        elif not counts:
            counts = {0: 0}  # a request without events needs a head, for the ledger's time
        return [
            Int8(draft.seen),
            Int8(draft.at),
            Smallints(list(counts)),
            Bigints(list(counts.values())),
            *self._columns(ordinals),
            *self._requests(),
            *self._metadata(),
            *_NO_ORIGINS,
        ]

    def _columns(self, ordinals: list[int | None] | None) -> list[Any]:
        if not self.count:
            nothing = (Smallints, Integers, Bigints, Texts, Bigints, Bigints, Bigints, Texts)
            return [kind(None) for kind in nothing]
        event_runs = self.draft.event_runs
        pick = _picker(self.order)
        details = _details(event_runs)
        return [
            Smallints(pick(self.partition)),
            Integers(pick(_joined([array("q", [run.context]) * len(run) for run in event_runs]))),
            Bigints(pick(_joined([run.at for run in event_runs]))),
            Texts([player.encode() for player in pick(self.players)]),
            Bigints(pick(_joined([run.score for run in event_runs]))),
            Bigints(pick(_joined([run.tiebreak for run in event_runs]))),
            Bigints(None) if ordinals is None else SparseBigints(pick(ordinals)),
            Texts(None) if details is None else Texts(pick(details)),
        ]

    def _ordinals(self) -> list[int | None] | None:
        """Return each event's number among the commit's ordered events, from 1; None when there are none."""
        ordered = self.draft.ordered
        if not any(event_run.context in ordered for event_run in self.draft.event_runs):
            return None
        ordinals: list[int | None] = []
        last = 0
        for event_run in self.draft.event_runs:
            if event_run.context in ordered:
                ordinals.extend(range(last + 1, last + 1 + len(event_run)))
                last += len(event_run)
            else:
                ordinals.extend([None] * len(event_run))
        return ordinals if last else None

    def _requests(self) -> list[Any]:
        # Sorted by key: all writers lock keys in the same order, so they cannot deadlock.
        requests = sorted(self.draft.requests, key=itemgetter(0, 1))
        forgotten_before = Int8(self.draft.forgotten_before)
        if not requests:
            no_keys, no_places = packed_keys(None), (Integers(None), Smallints(None), Bigints(None))
            return [*no_keys, Integers(None), forgotten_before, *no_places]
        self.draft.distinct_keys()
        places = [
            (number, partition, place)
            for number, request in enumerate(requests, start=1)
            for partition, (_, place) in self._span(request.first, request.events).items()
        ]
        return [
            *packed_keys(requests),
            Integers([request.events for request in requests]),
            forgotten_before,
            Integers([number for number, _, _ in places]),
            Smallints([partition for _, partition, _ in places]),
            Bigints([place for _, _, place in places]),
        ]

    def _span(self, first: int, count: int) -> dict[int, tuple[int, int]]:
        """Return the first and the last place of some events in each partition, where they are consecutive."""
        spans: dict[int, tuple[int, int]] = {}
        for index in range(first, first + count):
            partition, place = self.partition[index], self.place[index]
            begun, _ = spans.get(partition, (place, place))
            spans[partition] = (begun, place)
        return spans

    def _metadata(self) -> list[Any]:
        metadata = self.draft.metadata
        if not metadata:
            return [Smallints(None), Bigints(None), Texts(None)]
        return [
            Smallints([self.partition[index] for index in metadata]),
            Bigints([self.place[index] for index in metadata]),
            Texts([json.encode() for json in metadata.values()]),
        ]

    def appended(self, bases: Sequence[int], committed: int) -> Appended:
        """Return the places of the events, from the answer of `append_1`."""
        sequence = array("q", [bases[part + 1] + place for part, place in zip(self.partition, self.place, strict=True)])
        return AppendedColumns(self.partition, sequence, committed)


def control_arguments(
    events: Sequence[ControlEvent],
    contexts: Sequence[int],
    *,
    seen: int,
    at: int,
    request: KeyedRequest | None,
    forgotten_before: int,
) -> list[Any]:
    """Return the arguments of `append_control_1`."""
    details = [None if event.detail is None else encode_detail(event.detail) for event in events]
    return [
        Int8(seen),
        Int8(max([at, *(event.at for event in events)])),
        Integers(contexts),
        Bigints([event.at for event in events]),
        Texts(details),
        *packed_keys(None if request is None else [request]),
        Int8(forgotten_before),
    ]


def control_origin_arguments(origin: RequestOrigin, events: int) -> list[Any]:
    """Return where control events came from, kept with their copies in the first partition."""
    return [Int8(events), *_origin_arguments([(0, 1, events, origin)])]


def _origin_arguments(spans: Sequence[tuple[int, int, int, RequestOrigin]]) -> list[Any]:
    origins = [origin for _, _, _, origin in spans]
    return [
        Smallints([span[0] for span in spans]),
        Bigints([span[1] for span in spans]),
        Bigints([span[2] for span in spans]),
        Texts([origin.address.encode() for origin in origins]),
        Texts([_encoded(origin.user_agent) for origin in origins]),
        Texts([_encoded(origin.request_id) for origin in origins]),
    ]


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def raise_refused(problem: psycopg.Error) -> None:
    """Raise the refusal of one of our SQL functions; return for other errors."""
    if problem.sqlstate == DEFINITIONS_CHANGED:
        raise DefinitionsChanged from None
    if problem.sqlstate == KEYS_TAKEN:
        taken = msgspec.json.decode(problem.diag.message_detail or "[]", type=list[tuple[str, str]])
        raise KeysTaken(taken) from None
    if problem.sqlstate == SOURCE_MOVED:
        raise SourceMoved(f"{problem.diag.message_detail}: another consumer has read on") from None


def packed_keys(requests: Sequence[KeyedRequest] | None) -> list[Any]:
    """Return senders, keys and fingerprints."""
    if requests is None:
        return [Texts(None), Texts(None), Bytes(None)]
    return [
        Texts([request.sender.encode() for request in requests]),
        Texts([request.key.encode() for request in requests]),
        Bytes([request.fingerprint for request in requests]),
    ]


def _picker(order: list[int]) -> Any:
    """Return a function that puts a column into write order."""
    if len(order) == 1 or all(map(int.__eq__, order, range(len(order)))):
        return lambda column: column
    return itemgetter(*order)


def _joined(columns: list[array[int]]) -> array[int]:
    if len(columns) == 1:
        return columns[0]
    joined = array("q")
    for column in columns:
        joined.extend(column)
    return joined


def _details(event_runs: Sequence[EventRun]) -> list[bytes | None] | None:
    """Return the JSON of every event's detail, None for none; None when no event has any."""
    if all(event_run.detail is None for event_run in event_runs):
        return None
    encoded: list[bytes | None] = []
    for event_run in event_runs:
        details = event_run.detail or [None] * len(event_run)
        encoded.extend(detail or None for detail in encode_column(details))
    return encoded

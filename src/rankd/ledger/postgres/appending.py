"""A draft as the arguments of `append_1`, and the answer as places of its events.

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
from rankd.ledger.event import Stretch, encode_detail
from rankd.ledger.port import (
    Appended,
    ControlEvent,
    DefinitionsChanged,
    Draft,
    KeyedRequest,
    KeysTaken,
)
from rankd.ledger.postgres.packing import Bigints, Bytes, Integers, Smallints, SparseBigints, Texts

TEAMS = -1  # the head that ordinals are taken from
DEFINITIONS_CHANGED = "RK001"
KEYS_TAKEN = "RK002"
_ARGUMENTS = 27
CALL_APPEND = f"SELECT bases, committed FROM append_1({', '.join(['%s'] * _ARGUMENTS)})"  # noqa: S608 - no value in it
CALL_APPEND_CONTROL = "SELECT ends, numbered, committed FROM append_control_1(%s, %s, %s, %s, %s, %s, %s, %s, %s)"


class AppendedColumns(msgspec.Struct, frozen=True):
    """Where the events of a draft stand, in its order."""

    partition: array[int]  # "H"
    sequence: array[int]  # "q"
    at: int

    @property
    def end(self) -> dict[int, int]:
        """The last sequence in each partition that has some of the events."""
        return self.positions(0, len(self.sequence))

    def place(self, index: int) -> tuple[int, int]:
        """Return partition and sequence of an event."""
        return self.partition[index], self.sequence[index]

    def positions(self, first: int, count: int) -> dict[int, int]:
        """Return the last sequence in each partition of some of the events."""
        end = first + count
        return dict(zip(self.partition[first:end], self.sequence[first:end], strict=True))


class Arranged:
    """The events of a draft in the order they are written in: by partition, and as they came within each."""

    def __init__(self, draft: Draft, partitions: int) -> None:
        """Find every event's partition."""
        self.draft = draft
        players = list(chain.from_iterable(stretch.players for stretch in draft.stretches))
        self.count = len(players)
        self.partition = array("H", [partition_of(player, partitions) for player in players])
        self.players = players
        # A stable sort: within a partition, the draft's order is kept.
        self.order = sorted(range(self.count), key=self.partition.__getitem__)
        self.counts = {part: self.partition.count(part) for part in sorted(set(self.partition))}
        self.place = self._places()

    def _places(self) -> array[int]:
        """Return for each event, in the draft's order, which of its partition it is, from 1."""
        place = array("q", bytes(8 * self.count))
        row = 0
        for count in self.counts.values():
            for number, index in enumerate(self.order[row : row + count], start=1):
                place[index] = number
            row += count
        return place

    def arguments(self) -> list[Any]:
        """Return what `append_1` is called with."""
        draft = self.draft
        ordinals = self._ordinals()
        counts = self.counts
        if ordinals is not None:
            counts = {TEAMS: sum(one is not None for one in ordinals), **counts}
        elif not counts:
            counts = {0: 0}  # a request without events: its time is the ledger's
        return [
            Int8(draft.seen),
            Int8(draft.at),
            Smallints(list(counts)),
            Bigints(list(counts.values())),
            *self._columns(ordinals),
            *self._requests(),
            *self._metadata(),
            *self._origins(),
        ]

    def _columns(self, ordinals: list[int | None] | None) -> list[Any]:
        if not self.count:
            nothing = (Smallints, Integers, Bigints, Texts, Bigints, Bigints, Bigints, Texts)
            return [kind(None) for kind in nothing]
        stretches = self.draft.stretches
        pick = _picker(self.order)
        details = _details(stretches)
        return [
            Smallints(pick(self.partition)),
            Integers(pick(_joined([array("q", [one.context]) * len(one) for one in stretches]))),
            Bigints(pick(_joined([one.at for one in stretches]))),
            Texts([player.encode() for player in pick(self.players)]),
            Bigints(pick(_joined([one.score for one in stretches]))),
            Bigints(pick(_joined([one.tiebreak for one in stretches]))),
            Bigints(None) if ordinals is None else SparseBigints(pick(ordinals)),
            Texts(None) if details is None else Texts(pick(details)),
        ]

    def _ordinals(self) -> list[int | None] | None:
        """Return which of the commit's ordered events each is, from 1; None when there are none."""
        ordered = self.draft.ordered
        if not any(stretch.context in ordered for stretch in self.draft.stretches):
            return None
        found: list[int | None] = []
        given = 0
        for stretch in self.draft.stretches:
            if stretch.context in ordered:
                found.extend(range(given + 1, given + 1 + len(stretch)))
                given += len(stretch)
            else:
                found.extend([None] * len(stretch))
        return found if given else None

    def _requests(self) -> list[Any]:
        # In the order of their keys, as everybody's are: so nobody waits for somebody who waits for him.
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
        """Return the first and the last place, in each partition, of some of the events; they are consecutive there."""
        spans: dict[int, tuple[int, int]] = {}
        for index in range(first, first + count):
            partition, place = self.partition[index], self.place[index]
            begun, _ = spans.get(partition, (place, place))
            spans[partition] = (begun, place)
        return spans

    def _metadata(self) -> list[Any]:
        found = self.draft.metadata
        if not found:
            return [Smallints(None), Bigints(None), Texts(None)]
        return [
            Smallints([self.partition[index] for index in found]),
            Bigints([self.place[index] for index in found]),
            Texts([json.encode() for json in found.values()]),
        ]

    def _origins(self) -> list[Any]:
        spans = [
            (partition, first, upto, address)
            for address, start, count in self.draft.origins
            for partition, (first, upto) in self._span(start, count).items()
        ]
        if not spans:
            return [Smallints(None), Bigints(None), Bigints(None), Texts(None)]
        return [
            Smallints([span[0] for span in spans]),
            Bigints([span[1] for span in spans]),
            Bigints([span[2] for span in spans]),
            Texts([span[3].encode() for span in spans]),
        ]

    def appended(self, bases: Sequence[int], committed: int) -> Appended:
        """Return where the events stand, from the answer of `append_1`."""
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
    """Return what `append_control_1` is called with."""
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


def raise_refused(problem: psycopg.Error) -> None:
    """Raise what a function of ours refused with; return when it was something else."""
    if problem.sqlstate == DEFINITIONS_CHANGED:
        raise DefinitionsChanged from None
    if problem.sqlstate == KEYS_TAKEN:
        taken = msgspec.json.decode(problem.diag.message_detail or "[]", type=list[tuple[str, str]])
        raise KeysTaken(taken) from None


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
    """Return what puts a column into the order of writing."""
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


def _details(stretches: Sequence[Stretch]) -> list[bytes | None] | None:
    """Return the JSON of every event's detail, None for none; None when no event has any."""
    if all(stretch.detail is None for stretch in stretches):
        return None
    encoded: list[bytes | None] = []
    for stretch in stretches:
        details = stretch.detail or [None] * len(stretch)
        encoded.extend(None if detail is None else encode_detail(detail) for detail in details)
    return encoded

"""The contents of the ledger: runs of events as columns, their contexts, and the seal of a commit.

An EventRun is consecutive events with one context. Columns stay columns from the request to the disk and to the rank
store, so that ten thousand scores are ten thousand numbers and not ten thousand objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

import msgspec

from rankd._columns import distinct, take
from rankd.domain.window import ClockReading
from rankd.errors import LedgerNewer

PAYLOAD_VERSION = 2  # the newest that is understood
PAYLOAD_OF_HOURS = 2  # the first with the kind `hour`
PAYLOAD_WRITTEN = 1  # of new events; one release behind PAYLOAD_VERSION, so that nodes of the version before read them
HASH_BYTES = 16
SEAL_BYTES = HASH_BYTES + 8
NO_SEAL = bytes(SEAL_BYTES)  # before the first commit
NO_PLAYER = 0
SEQUENCE_BITS = 48  # of an event id; the partition is above
_NUMBERS = Struct("<2q")  # sequence of the first event, number of events
_END_OF_DETAIL = b"\0"  # never in JSON


class EventKind(StrEnum):
    """What an event does."""

    SCORE = "score"
    REMOVE = "remove"  # a player leaves every instance of the board
    RESET = "reset"  # current instances are emptied
    DEFINE = "define"
    DELETE = "delete"  # the board and all its instances are removed
    CLOSE = "close"  # a window instance is final
    MIDNIGHT = "midnight"  # places are captured for rank_change
    HOUR = "hour"  # places are recorded, on boards with an hourly history
    RETIRE = "retire"  # a window instance leaves the rank store; its final standings are in the archive


# Events without a player, in every partition.
CONTROLS = frozenset(
    {
        EventKind.DEFINE,
        EventKind.DELETE,
        EventKind.RESET,
        EventKind.CLOSE,
        EventKind.MIDNIGHT,
        EventKind.HOUR,
        EventKind.RETIRE,
    }
)


class AcceptanceContext(msgspec.Struct, frozen=True, omit_defaults=True):
    """The board version that an event was accepted under, and the reading of the board's clock."""

    version: int
    utc_offset_s: int = 0
    resets: dict[str, int] = {}

    def reading(self, at: int) -> ClockReading:
        """Return the clock reading that names the windows of an event at this instant."""
        return ClockReading(at, self.utc_offset_s, self.resets)


class Context(msgspec.Struct, frozen=True):
    """The common part of many events; stored once, as JSON."""

    kind: EventKind
    board: str
    sender: str
    boards: dict[str, AcceptanceContext]  # the board itself and those it feeds
    payload_version: int = PAYLOAD_WRITTEN

    @property
    def key(self) -> bytes:
        """Equal contexts have equal keys."""
        return encode_context(self)


class Detail(msgspec.Struct, frozen=True, omit_defaults=True):
    """The optional part of an event. Attributes are resolved: a rebuild years later finds the same scopes."""

    attributes: dict[str, str] = {}  # those that a reached board declares as a scope or a team
    keys: dict[str, int] = {}  # of decaying scores, by board
    left_out: dict[str, list[str]] = {}  # attributes that a fed board cannot take, by board
    has_metadata: bool = False
    window: str | None = None  # reset: the window named; close, retire: the instance
    definition: dict[str, object] | None = None  # define

    def attributes_for(self, board_id: str) -> dict[str, str]:
        """Return the attributes that count on a board."""
        left_out = self.left_out.get(board_id)
        if left_out is None:
            return self.attributes
        return {name: value for name, value in self.attributes.items() if name not in left_out}


NO_DETAIL = Detail()


class EventSpan(NamedTuple):
    """The events `after` (exclusive) … `upto` (inclusive) of one partition."""

    partition: int
    after: int
    upto: int

    @property
    def start(self) -> EventSpan:
        """The empty span before them, which does not advance a position."""
        return self._replace(upto=self.after)


class EventRun(msgspec.Struct):
    """Consecutive events of one context as columns of one length."""

    context: int
    at: array[int]
    player: array[int]  # numbers
    score: array[int]
    tiebreak: array[int]
    players: Sequence[str]  # the ids behind the numbers; "" for no player
    detail: list[Detail | None] | None = None  # None: no event has a detail
    first: int = 0  # sequence of the first event, once it has one
    partition: int = 0

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.score)

    @property
    def span(self) -> EventSpan:
        """Their span in the ledger."""
        return EventSpan(self.partition, self.first - 1, self.first + len(self) - 1)

    def part(self, start: int, end: int) -> EventRun:
        """Return some of the events, by index."""
        return EventRun(
            self.context,
            self.at[start:end],
            self.player[start:end],
            self.score[start:end],
            self.tiebreak[start:end],
            self.players[start:end],
            None if self.detail is None else self.detail[start:end],
            self.first + start,
            self.partition,
        )


def control_run(context: int, at: int, detail: Detail | None, first: int = 0) -> EventRun:
    """Return a control event as a run of one."""
    nothing = array("q", [0])
    return EventRun(context, array("q", [at]), nothing, nothing, nothing, [""], [detail], first)


class Scored(NamedTuple):
    """One event of a run as a row, for code off the hot path."""

    sequence: int
    at: int
    player: str
    score: int
    tiebreak: int
    detail: Detail
    partition: int = 0

    @property
    def id(self) -> int:
        """The event id, unique in its ledger; with one partition, the sequence."""
        return event_id(self.partition, self.sequence)

    @property
    def span(self) -> EventSpan:
        """Its span in the ledger."""
        return EventSpan(self.partition, self.sequence - 1, self.sequence)


def event_id(partition: int, sequence: int) -> int:
    """Return the event id, unique over all partitions."""
    return partition << SEQUENCE_BITS | sequence


def place_of(event: int) -> tuple[int, int]:
    """Return partition and sequence of an event id."""
    return event >> SEQUENCE_BITS, event & ((1 << SEQUENCE_BITS) - 1)


def rows(event_run: EventRun) -> Iterable[Scored]:
    """Iterate over a run event by event."""
    details = event_run.detail or [None] * len(event_run)
    columns = zip(event_run.at, event_run.players, event_run.score, event_run.tiebreak, details, strict=True)
    for sequence, (at, player, score, tiebreak, detail) in enumerate(columns, start=event_run.first):
        yield Scored(sequence, at, player, score, tiebreak, detail or NO_DETAIL, event_run.partition)


encode_context = msgspec.json.Encoder(order="deterministic").encode
encode_detail = msgspec.json.Encoder(order="deterministic").encode
decode_detail = msgspec.json.Decoder(Detail).decode
_decode_context = msgspec.json.Decoder(Context).decode


def encode_column(details: list[Detail | None]) -> list[bytes]:
    """Return the JSON of details, b"" for none; one that stands there many times is encoded once."""
    kinds, index = distinct(details)
    return take([b"" if detail is None else encode_detail(detail) for detail in kinds], index)


def decode_column(texts: Sequence[str | bytes | None]) -> list[Detail | None]:
    """Return details by their JSON; those of equal texts are one object."""
    made: dict[str | bytes | None, Detail | None] = {
        text: decode_detail(text) if text else None for text in dict.fromkeys(texts)
    }
    return list(map(made.__getitem__, texts))


class _Versioned(msgspec.Struct, frozen=True):
    """The part of a context that every version can read."""

    payload_version: int = 1


_decode_versioned = msgspec.json.Decoder(_Versioned).decode


def decode_context(json: bytes | str) -> Context:
    """Decode a context; LedgerNewer when a newer version wrote it, even one with an unknown kind."""
    version = _decode_versioned(json).payload_version
    if version > PAYLOAD_VERSION:
        raise LedgerNewer(
            f"the ledger holds events of version {version}, and this rankd knows versions up to {PAYLOAD_VERSION}: "
            "upgrade rankd"
        )
    return _decode_context(json)


def seal(
    before: bytes,
    at: int,
    first: int,
    contexts: Iterable[bytes],
    columns: Sequence[array[int]],
    *,
    details: Iterable[bytes],
) -> bytes:
    """Return the seal of a commit: a hash of the previous seal and of the events as stored, and the commit's time.

    `at` is the ledger's time; `contexts` the JSON of the events' contexts, each once, in order of first use; `columns`
    are context, at, player, score and tiebreak of all events; `details` the JSON of each, b"" for none. The seal does
    not cover ids, so that a player can be erased, nor metadata, which has its own checksum.
    """
    time = at.to_bytes(8, "little")
    numbers = _NUMBERS.pack(first, len(columns[0]))
    texts = _END_OF_DETAIL.join(contexts), _END_OF_DETAIL.join(details)
    return blake2b(b"".join((before, time, numbers, *columns, *texts)), digest_size=HASH_BYTES).digest() + time


def sealed_at(sealed: bytes) -> int:
    """Return the ledger's time at a commit."""
    return int.from_bytes(sealed[HASH_BYTES:], "little")

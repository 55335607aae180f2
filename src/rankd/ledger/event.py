"""What the ledger holds: events in stretches of columns, what they have in common, and the seal of a commit.

A stretch is a run of consecutive events with one context. Columns are kept as columns from the request to the disk and
to the rank store, so that ten thousand scores are ten thousand numbers and not ten thousand objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

import msgspec

from rankd.domain.window import Reading
from rankd.errors import LedgerNewer

PAYLOAD_VERSION = 1  # the newest that is understood
PAYLOAD_WRITTEN = 1  # what new events say; for one release that of the version before, whose nodes read them too
HASH_BYTES = 16
SEAL_BYTES = HASH_BYTES + 8
NO_SEAL = bytes(SEAL_BYTES)  # before the first commit
NO_PLAYER = 0
SEQUENCE_BITS = 48  # of the number of an event; the partition stands above
_NUMBERS = Struct("<2q")  # sequence of the first event, number of events
_END_OF_DETAIL = b"\0"  # JSON holds no such byte


class Kind(StrEnum):
    """What an event does; an open set, so a reader passes over what it does not know only if told to."""

    SCORE = "score"
    REMOVE = "remove"  # a player leaves every instance of the board
    RESET = "reset"  # current instances are empty again
    DEFINE = "define"
    DELETE = "delete"  # the board and all its instances are gone
    CLOSE = "close"  # a window instance is final
    MIDNIGHT = "midnight"  # places are remembered for rank_change
    RETIRE = "retire"  # a window instance leaves the rank store; its final standings are in the archive


# About no player: they stand in every partition.
CONTROLS = frozenset({Kind.DEFINE, Kind.DELETE, Kind.RESET, Kind.CLOSE, Kind.MIDNIGHT, Kind.RETIRE})


class Accepted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The definition of a board that an event was accepted under, and what the board's clock read."""

    version: int
    utc_offset_s: int = 0
    resets: dict[str, int] = {}

    def reading(self, at: int) -> Reading:
        """Return what names the windows of an event at this instant."""
        return Reading(at, self.utc_offset_s, self.resets)


class Context(msgspec.Struct, frozen=True):
    """What many events have in common; stored once, as JSON."""

    kind: Kind
    board: str
    sender: str
    boards: dict[str, Accepted]  # the board itself and those it feeds
    payload_version: int = PAYLOAD_WRITTEN

    @property
    def key(self) -> bytes:
        """Equal contexts have equal keys."""
        return encode_context(self)


class Detail(msgspec.Struct, frozen=True, omit_defaults=True):
    """What only some events have to say. Attributes are resolved: a rebuild years later finds the same scopes."""

    attributes: dict[str, str] = {}  # those that a board reached declares as a scope or a team
    keys: dict[str, int] = {}  # of decaying scores, by board
    left_out: dict[str, list[str]] = {}  # attributes that a board which is fed cannot take, by board
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
        """The empty span before them: what is applied with it leaves the position where it is."""
        return self._replace(upto=self.after)


class Stretch(msgspec.Struct):
    """Consecutive events of one context as columns of one length."""

    context: int
    at: array[int]
    player: array[int]  # numbers
    score: array[int]
    tiebreak: array[int]
    players: Sequence[str]  # the ids behind the numbers; "" for no player
    detail: list[Detail | None] | None = None  # None: no event has anything to say
    first: int = 0  # sequence of the first event, once it has one
    partition: int = 0  # of the ledger, where it has several

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.score)

    @property
    def span(self) -> EventSpan:
        """Where they stand in the ledger."""
        return EventSpan(self.partition, self.first - 1, self.first + len(self) - 1)

    def part(self, start: int, end: int) -> Stretch:
        """Return some of the events, by index."""
        return Stretch(
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


def control_run(context: int, at: int, detail: Detail | None, first: int = 0) -> Stretch:
    """Return an event that is about no player as a run of its own."""
    nothing = array("q", [0])
    return Stretch(context, array("q", [at]), nothing, nothing, nothing, [""], [detail], first)


class Scored(NamedTuple):
    """One event of a stretch as a row, for code that is not in a hurry."""

    sequence: int
    at: int
    player: str
    score: int
    tiebreak: int
    detail: Detail
    partition: int = 0

    @property
    def id(self) -> int:
        """What tells it from every other event of its ledger; in a ledger of one partition its sequence."""
        return event_id(self.partition, self.sequence)

    @property
    def span(self) -> EventSpan:
        """Where it stands in the ledger."""
        return EventSpan(self.partition, self.sequence - 1, self.sequence)


def event_id(partition: int, sequence: int) -> int:
    """Return the number of an event among those of all partitions."""
    return partition << SEQUENCE_BITS | sequence


def place_of(event: int) -> tuple[int, int]:
    """Return partition and sequence of an event by its number."""
    return event >> SEQUENCE_BITS, event & ((1 << SEQUENCE_BITS) - 1)


def rows(stretch: Stretch) -> Iterable[Scored]:
    """Go through a stretch event by event."""
    details = stretch.detail or [None] * len(stretch)
    columns = zip(stretch.at, stretch.players, stretch.score, stretch.tiebreak, details, strict=True)
    for sequence, (at, player, score, tiebreak, detail) in enumerate(columns, start=stretch.first):
        yield Scored(sequence, at, player, score, tiebreak, detail or NO_DETAIL, stretch.partition)


encode_context = msgspec.json.Encoder(order="deterministic").encode
encode_detail = msgspec.json.Encoder(order="deterministic").encode
decode_detail = msgspec.json.Decoder(Detail).decode
_decode_context = msgspec.json.Decoder(Context).decode


class _Versioned(msgspec.Struct, frozen=True):
    """What can be read of a context whatever version it is of."""

    payload_version: int = 1


_decode_versioned = msgspec.json.Decoder(_Versioned).decode


def decode_context(json: bytes | str) -> Context:
    """Return a context by its JSON; LedgerNewer when a newer version wrote it, of whatever kind it is."""
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
    """Return the seal of a commit: a hash of the seal before it and of its events as they are stored, and its time.

    `at` is the ledger's time; `contexts` the JSON of those the events name, each once, in the order they are named
    first; `columns` are context, at, player, score and tiebreak of all events; `details` the JSON
    of each, b"" for none. Ids are not covered, so that a player can be erased; nor is metadata, which has a checksum of
    its own.
    """
    time = at.to_bytes(8, "little")
    numbers = _NUMBERS.pack(first, len(columns[0]))
    texts = _END_OF_DETAIL.join(contexts), _END_OF_DETAIL.join(details)
    return blake2b(b"".join((before, time, numbers, *columns, *texts)), digest_size=HASH_BYTES).digest() + time


def sealed_at(sealed: bytes) -> int:
    """Return the ledger's time at a commit."""
    return int.from_bytes(sealed[HASH_BYTES:], "little")

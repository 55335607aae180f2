"""The ledger: what was accepted, in the order it was accepted in, for ever; in one partition or in several, by player.

    intake → Ledger.append (durable, numbered) → followers read every partition in order, live and again from the start

Promises (every adapter, checked by tests/contract):
- `append` returns when everything it was given is on stable storage. Within a partition, numbers have no gaps and
  follow the order of commits: whoever has read up to a number has missed nothing before it.
- Scores and removals stand in their player's partition. A control event, which is about no player, stands in every
  partition, and is ordered against everything else: whatever was appended before it has smaller numbers in all of them.
- Events that reach a team board have ordinals, without gaps and in commit order across partitions, where there are
  several.
- An append names the control events its writer has seen. When there are others, nothing is written: DefinitionsChanged.
  Where there is a sole writer, there are no others, and they are not counted.
- A key is committed with its events. When a request under the same one is remembered, nothing is written: KeysTaken.
- A context keeps the number it was given, whatever becomes of the append that it was meant for.
- When `append` raises LedgerUnavailable it may have taken effect all the same. `heads` tells; whoever sent a key finds
  out by sending it again.

Not promised: an order between scores of different partitions, except by ordinals and control events.

What an adapter cannot do it says in its `capabilities`; callers ask for those, never for the adapter's name.

May be imported by: the intake, the projection, verify, adapters. It imports no adapter.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import msgspec

from rankd.ledger.event import Context, Detail, Kind, Stretch

CONTROLS_MAX = 2_000  # read at once
NOT_ORDERED = 0  # the ordinal of an event that reaches no team board


class DefinitionsChanged(Exception):
    """There are control events that the writer has not seen; nothing was written."""


class KeysTaken(Exception):
    """Requests under some of the keys were committed by somebody else; nothing was written."""

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        """`keys` are (sender, key)."""
        super().__init__(f"{len(keys)} keys were used by requests that are committed")
        self.keys = keys


class Capabilities(msgspec.Struct, frozen=True):
    """What not every ledger can do."""

    is_sole_writer: bool  # nobody else appends: what stands behind an append is what was appended
    stores_answers: bool  # the answer to a request is kept, and given again to a repeat


class Heads(msgspec.Struct, frozen=True):
    """The end of every partition, as of one instant."""

    sequences: tuple[int, ...]
    control: int  # how many control events there are; not counted where there is a sole writer
    at: int  # the ledger's time
    ordinal: int = 0  # the last that was given


class Request(msgspec.Struct, frozen=True):
    """A request that came with a key: what a repeat is recognised by, and the last event it has in each partition.

    Of one without events, `positions` are none, or those that the ledger had when it came.
    """

    sender: str
    key: str
    fingerprint: bytes
    at: int
    events: int
    positions: dict[int, int] = {}  # sequence by partition
    answer: bytes | None = None  # where answers are stored


class KeyedRequest(NamedTuple):
    """A request of a draft: so many `events` from index `first` on."""

    sender: str
    key: str
    fingerprint: bytes
    first: int
    events: int


class Draft(msgspec.Struct):
    """What one commit adds, all or nothing."""

    stretches: list[Stretch]  # of scores and removals; player numbers are not used, ids are
    at: int  # the ledger's time as the writer knows it; what is stored is never before another commit's
    seen: int  # control events the writer knew when it accepted these
    metadata: dict[int, str] = {}  # JSON by the event's index in the draft
    requests: Sequence[KeyedRequest] = ()
    origins: Sequence[tuple[str, int, int]] = ()  # an address, index of its first event, and number
    ordered: frozenset[int] = frozenset()  # contexts whose events reach a team board
    forgotten_before: int = 0  # a request that came before this instant is forgotten, and its key free
    answers: Sequence[tuple[str, str, bytes]] = ()  # (sender, key, answer) of requests of earlier commits

    def distinct_keys(self) -> list[tuple[str, str]]:
        """Return the (sender, key) of its requests; ValueError where two of them have the same."""
        keys = [(request.sender, request.key) for request in self.requests]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"two requests of one draft have the key {twice[1]!r}")
        return keys

    @property
    def has_more(self) -> bool:
        """Whether it has anything but events."""
        return bool(self.metadata or self.requests or self.answers or self.origins)


class Appended(Protocol):
    """Where the events of a draft stand, in its order."""

    @property
    def at(self) -> int:
        """The ledger's time."""
        ...

    @property
    def end(self) -> dict[int, int]:
        """The last sequence in each partition that has some of the events."""
        ...

    def place(self, index: int) -> tuple[int, int]:
        """Return partition and sequence of an event."""
        ...

    def positions(self, first: int, count: int) -> dict[int, int]:
        """Return the last sequence in each partition of some of the events."""
        ...


class ControlEvent(msgspec.Struct, frozen=True):
    """An event that stands in every partition."""

    context: Context
    detail: Detail | None
    at: int
    number: int = 0  # counted from 1, once it has one; not where there is a sole writer
    sequences: tuple[int, ...] = ()  # where it stands in each partition


class Part(NamedTuple):
    """Consecutive events of one partition that were committed, as read."""

    partition: int
    stretch: Stretch  # `first` is set; control events come as stretches of one with their kind's context
    ordinals: array[int] | None  # NOT_ORDERED where there is none; None when no event has one


class PastEvent(msgspec.Struct, frozen=True):
    """One event of a player, for people."""

    sequence: int
    kind: Kind
    board: str
    at: int
    score: int | None
    tiebreak: int | None
    attributes: dict[str, str]
    metadata: dict[str, object] | None
    sender: str
    origin: str | None = None  # the address it came from, where that is kept


class Ledger(Protocol):
    """Read from any thread; appended to by any, or where it has a sole writer by one at a time."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    @property
    def partitions(self) -> int:
        """How many partitions there are; fixed when the ledger was made."""
        ...

    def stamp(self, positions: Sequence[int]) -> str | None:
        """Return what tells these positions of this ledger from those of any other; None where it has no such ones."""
        ...

    def heads(self) -> Heads:
        """Return the ends as they are committed now."""
        ...

    def append(self, draft: Draft) -> Appended:
        """Make a draft durable."""
        ...

    def append_control(
        self,
        events: Sequence[ControlEvent],
        seen: int,
        request: KeyedRequest | None = None,
        *,
        at: int = 0,
        forgotten_before: int = 0,
    ) -> Sequence[ControlEvent]:
        """Make control events durable, in every partition; return them with their numbers and sequences.

        `at` is the ledger's time as the writer knows it; the events' own times count too.
        """
        ...

    def read(self, after: Sequence[int], events_max: int, skipping: Collection[int] = ()) -> Sequence[Part]:
        """Return committed events behind a sequence of each partition: in order within each, at most about so many.

        Partitions take turns, so that none waits for another, but for those that are skipped; all as of one instant.
        """
        ...

    def wait(self, timeout_s: float) -> None:
        """Return when something may have been appended, and at the latest after so long."""
        ...

    def number_context(self, context: Context) -> int:
        """Return the number of a context; a new one gets one that every process will see."""
        ...

    def context(self, number: int) -> Context:
        """Return a context by number."""
        ...

    def event(self, partition: int, sequence: int) -> Stretch:
        """Return one event as a stretch of its own."""
        ...

    def request(self, sender: str, key: str) -> Request | None:
        """Return the request that came under a key, while it is remembered."""
        ...

    def requests(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], Request]:
        """Return the requests that came under any of these (sender, key), while they are remembered."""
        ...

    def forget_requests(self, before: int, count_max: int) -> int:
        """Forget some of the requests that came before an instant; return how many, fewer than asked once few are left.

        Requests that another process is forgetting meanwhile are left to it.
        """
        ...

    def metadata(self, events: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """Return the metadata (JSON) of those events, by partition and sequence, that have some."""
        ...

    def history(self, player: str, limit: int, before: int | None = None, board: str | None = None) -> list[PastEvent]:
        """Return a player's own events, the newest first; sequences are those of the player's partition."""
        ...

    def close(self) -> None:
        """Let go of the connections."""
        ...


class SharedLedger(Ledger, Protocol):
    """A ledger whose control events can be followed alone, by processes that do not rank."""

    @property
    def identity(self) -> str:
        """What tells this ledger from every other; made with it."""
        ...

    def controls(self, after: int, count_max: int = CONTROLS_MAX) -> Sequence[ControlEvent]:
        """Return the control events behind a number, in order; the first so many of them."""
        ...

"""A ledger that many processes append to at once: partitions by player, each numbered without gaps in commit order.

    API processes → PartitionedLedger.append (durable, numbered) → the projector reads every partition in order

Promises (every adapter, checked by tests/contract):
- `append` returns when everything it was given is on stable storage. Within a partition, numbers have no gaps and
  follow the order of commits: whoever has read up to a number has missed nothing before it.
- Scores and removals stand in their player's partition. A control event, which is about no player, stands in every
  partition, and is ordered against everything else: whatever was appended before it has smaller numbers in all of them.
- Events that reach a team board have ordinals, without gaps and in commit order across partitions.
- An append names the control events its writer has seen. When there are others, nothing is written: DefinitionsChanged.
- A key is committed with its events. When somebody else has committed the same one, nothing is written: KeysTaken.
- A connection that is lost while a commit is under way leaves it open whether it took effect: LedgerUnavailable.
  Whoever sent a key finds out by sending it again.

Not promised: an order between scores of different partitions, except by ordinals and control events.

May be imported by: the scaled-out writer and projector, verify, adapters. It imports no adapter.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import msgspec

from rankd.ledger.event import Context, Detail, Stretch
from rankd.ledger.port import PastEvent

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


class Heads(msgspec.Struct, frozen=True):
    """The end of every partition, as of one instant."""

    sequences: tuple[int, ...]
    control: int  # how many control events there are
    at: int  # the ledger's time
    ordinal: int = 0  # the last that was given


class Request(msgspec.Struct, frozen=True):
    """A request that came with a key: what a repeat is recognised by, and the last event it has in each partition."""

    sender: str
    key: str
    fingerprint: bytes
    at: int
    events: int
    positions: dict[int, int] = {}  # sequence by partition


class Keyed(NamedTuple):
    """A request of a draft: so many `events` from index `first` on."""

    sender: str
    key: str
    fingerprint: bytes
    first: int
    events: int


class PartitionedDraft(msgspec.Struct):
    """What one commit adds, all or nothing."""

    stretches: list[Stretch]  # of scores and removals; player numbers are not used, ids are
    at: int  # the ledger's time as the writer knows it; what is stored is never before another commit's
    seen: int  # control events the writer knew when it accepted these
    metadata: dict[int, str] = {}  # JSON by the event's index in the draft
    requests: Sequence[Keyed] = ()
    origins: Sequence[tuple[str, int, int]] = ()  # an address, index of its first event, and number
    ordered: frozenset[int] = frozenset()  # contexts whose events reach a team board
    forgotten_before: int = 0  # a request that came before this instant is forgotten, and its key free


class Appended(msgspec.Struct, frozen=True):
    """Where the events of a draft stand, in its order."""

    partition: array[int]  # "H"
    sequence: array[int]  # "q"
    at: int

    def positions(self, first: int, count: int) -> dict[int, int]:
        """Return the last sequence in each partition of some of the events."""
        last: dict[int, int] = {}
        for partition, sequence in zip(
            self.partition[first : first + count], self.sequence[first : first + count], strict=True
        ):
            last[partition] = sequence
        return last


class ControlEvent(msgspec.Struct, frozen=True):
    """An event that stands in every partition."""

    context: Context
    detail: Detail | None
    at: int
    number: int = 0  # counted from 1, once it has one
    sequences: tuple[int, ...] = ()  # where it stands in each partition


class Part(NamedTuple):
    """Consecutive events of one partition that were committed, as read."""

    partition: int
    stretch: Stretch  # `first` is set; control events come as stretches of one with their kind's context
    ordinals: array[int] | None  # NOT_ORDERED where there is none; None when no event has one


class PartitionedLedger(Protocol):
    """May be called from any thread, by any number of processes."""

    @property
    def identity(self) -> str:
        """What tells this ledger from every other; made with it."""
        ...

    @property
    def partitions(self) -> int:
        """How many partitions there are; fixed when the ledger was made."""
        ...

    def heads(self) -> Heads:
        """Return the ends as they are committed now."""
        ...

    def append(self, draft: PartitionedDraft) -> Appended:
        """Make a draft durable."""
        ...

    def append_control(
        self,
        events: Sequence[ControlEvent],
        seen: int,
        request: Keyed | None = None,
        *,
        at: int = 0,
        forgotten_before: int = 0,
    ) -> Sequence[ControlEvent]:
        """Make control events durable, in every partition; return them with their numbers and sequences.

        `at` is the ledger's time as the writer knows it; the events' own times count too.
        """
        ...

    def controls(self, after: int, count_max: int = CONTROLS_MAX) -> Sequence[ControlEvent]:
        """Return the control events behind a number, in order; the first so many of them."""
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

"""The ledger: what was accepted, in the order it was accepted in, for ever.

    domain → Ledger.append (durable, numbered) → projection, live and again from the start

Promises:
- `append` returns when everything it was given is on stable storage, numbered without gaps in commit order; when it
  raises, nothing of it was acknowledged and the caller must look at `last` before it goes on: a commit that was cut off
  by a failing disk may or may not be there.
- `read` gives back exactly what was appended, in order, and raises LedgerDamaged where a seal does not hold.
- A player's number never changes and is never used for somebody else; a context's likewise.

Not promised: that `read` sees metadata (it is read by sequence, `metadata`); order between partitions, of which the
embedded ledger has one.

May be imported by: the intake, the projection's replay, verify, adapters. It imports no adapter.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from rankd.ledger.event import Context, Kind, Stretch


class Request(msgspec.Struct, frozen=True):
    """A request that came with a key: what a repeat is recognised by, and where its events are."""

    sender: str
    key: str
    fingerprint: bytes
    first: int
    upto: int
    at: int
    answer: bytes | None = None


class Head(msgspec.Struct, frozen=True):
    """The end of the ledger."""

    sequence: int
    seal: bytes
    at: int  # the ledger's time at the last commit; an `at` that was sent does not move it


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


class Draft(msgspec.Struct):
    """What one commit adds, all or nothing."""

    stretches: list[Stretch]
    metadata: Mapping[int, str]  # JSON by the event's index in the draft
    requests: Sequence[tuple[Request, int, int]]  # with index of the first event and their number
    answers: Sequence[tuple[str, str, bytes]]  # (sender, key, answer) of requests of earlier commits
    at: int  # the ledger's time
    origins: Sequence[tuple[str, int, int]] = ()  # the address of a request, with index of its first event and number

    @property
    def has_more(self) -> bool:
        """Whether it has anything but events."""
        return bool(self.metadata or self.requests or self.answers or self.origins)


class Ledger(Protocol):
    """Written by one thread at a time; read from any."""

    def head(self) -> Head:
        """Return the end as it is on disk."""
        ...

    def append(self, draft: Draft) -> Head:
        """Make a draft durable and set `first` of its stretches; return the new end."""
        ...

    def read(self, after: int, upto: int | None = None, before: bytes | None = None) -> Iterator[list[Stretch]]:
        """Go through the commits after a sequence, some at a time; `before` is the seal of what ended there."""
        ...

    def number_players(self, players: Sequence[str]) -> array[int]:
        """Return the number of each player; those who are new get theirs with the next commit."""
        ...

    def number_context(self, context: Context) -> int:
        """Return the number of a context; a new one gets its with the next commit."""
        ...

    def context(self, number: int) -> Context:
        """Return a context by number."""
        ...

    def event(self, sequence: int) -> Stretch:
        """Return one event as a stretch of its own."""
        ...

    def history(self, player: str, limit: int, before: int | None = None, board: str | None = None) -> list[PastEvent]:
        """Return a player's own events, the newest first; only those before a sequence, or of a board, if given."""
        ...

    def request(self, sender: str, key: str) -> Request | None:
        """Return the request that came under a key, while it is remembered."""
        ...

    def metadata(self, sequences: Sequence[int]) -> dict[int, str]:
        """Return the metadata (JSON) of those events that have some."""
        ...

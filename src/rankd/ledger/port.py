"""The ledger: all accepted events, in order, for ever; in one or more partitions, by player.

    intake → Ledger.append (durable, numbered) → followers read every partition in order, live or as a replay

Promises (every adapter, checked by tests/contract):
- `append` returns when the whole draft is on stable storage. Within a partition, sequences have no gaps and follow the
  order of commits: a reader that has read up to a sequence has every event before it.
- Scores and removals are in their player's partition. A control event, which has no player, is in every partition, and
  is ordered against everything else: events appended before it have smaller sequences in all of them.
- Events that reach a team board have ordinals, without gaps and in commit order across partitions, where there are
  several.
- An append names the number of control events its writer has seen. When there are more, nothing is written:
  DefinitionsChanged. A sole writer has seen all of them, and they are not counted.
- A key is committed with its events. While a request with the same key is stored, nothing is written: KeysTaken.
- The sources of a draft move on with its events. Where one has another position, nothing is written: SourceMoved.
- A context keeps its number, even when the append it was numbered for fails.
- An `append` that raises LedgerUnavailable may have taken effect. `heads` shows it; a sender with a key finds out by
  sending the request again.

Not promised: an order between scores of different partitions, except by ordinals and control events.

Adapters differ in their `capabilities`; callers check those, never the adapter's name. A log (one that does not append
conditionally) keeps all promises about what is read, and these others about what is written:
- `append` compares nothing: not the control events seen, not the keys, and it takes no sources. One that raises
  LedgerUnavailable may have written some of its events. `append_control` does compare the keys of earlier ones, and
  `request` knows those alone.
- Events are read with what their follower needs to judge them: LogColumns. Among them are places without an event: time
  marks, and control events that were copied twice. Sequences ascend and may have gaps between parts.
- An event that was accepted after a control event was returned stands behind it, in every partition. A control event
  counts, in `heads` and `controls`, once it is in every partition; `append_control` still refuses what was not seen.
- There are no ordinals: events that reach a team board are ordered by time, partition and sequence. `tend` writes time
  marks, so that a partition without events does not keep the others waiting.
- What expired is no longer read: `Heads.firsts`. Reading from before that is refused with LedgerDamaged.

May be imported by: the intake, the projection, verify, adapters. It imports no adapter.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from rankd.ledger.audit import AuditedPage, AuditMark, AuditQuery
from rankd.ledger.backlog import Backlog
from rankd.ledger.event import Context, Detail, EventKind, EventRun
from rankd.ledger.origin import OriginSpan, RequestOrigin

CONTROLS_MAX = 2_000  # read at once
REPEATS_KNOWN_MS = 86_400_000  # how long the followers of a log know a key, by the time of its partition
MARK = 0  # the context of time marks, which is no context
TEND_EVERY_MS = 200
KEY_BYTES = 32  # of an event in a log: digest of (sender, key, index), and fingerprint
NOT_READ = -1  # the offset of a source that was never read
NOT_ORDERED = 0  # the ordinal of an event that reaches no team board


class DefinitionsChanged(Exception):
    """The ledger has control events that the writer has not seen; nothing was written."""


class KeysTaken(Exception):
    """Another process committed requests with some of the keys; nothing was written."""

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        """`keys` are (sender, key)."""
        super().__init__(f"{len(keys)} keys were used by requests that are committed")
        self.keys = keys


class SourceMoved(Exception):
    """Another consumer has read on in a source; nothing was written."""


class Capabilities(msgspec.Struct, frozen=True):
    """The capabilities in which ledgers differ."""

    is_sole_writer: bool  # no other process appends
    stores_answers: bool  # a repeated request gets the stored answer of the first
    appends_conditionally: bool  # compares control events, keys and sources; else it is a log, and its followers judge
    finds_history: bool  # `history`, `audit`, `events_of` and `controls_of` answer
    append_wait_ms: int = 0  # how long an append of a log waits for servers that are away


class Heads(msgspec.Struct, frozen=True):
    """The last sequence of every partition, as of one instant."""

    sequences: tuple[int, ...]
    control: int  # number of control events; 0 with a sole writer
    at: int  # the ledger's time
    ordinal: int = 0  # the last one
    firsts: tuple[int, ...] = ()  # the first sequence of every partition that has not expired; () where none expires


class StoredRequest(msgspec.Struct, frozen=True):
    """A request with an idempotency key: its fingerprint, and its last event in each partition.

    Without events, `positions` are empty, or the ledger's own at the time.
    """

    sender: str
    key: str
    fingerprint: bytes
    at: int
    events: int
    positions: dict[int, int] = {}  # sequence by partition
    answer: bytes | None = None  # where answers are stored


class KeyedRequest(NamedTuple):
    """A request of a draft: `events` events from index `first` on."""

    sender: str
    key: str
    fingerprint: bytes
    first: int
    events: int


class SourceSpan(NamedTuple):
    """The records `after` … `upto` (exclusive) of one partition of a source, which a draft has the events of."""

    source: str
    partition: int
    after: int  # where the source was; NOT_READ for one that was never read
    upto: int  # the offset to read next


class Draft(msgspec.Struct):
    """The contents of one atomic commit."""

    event_runs: list[EventRun]  # scores and removals, with player ids; player numbers are ignored
    at: int  # the ledger's time as the writer knows it; the stored time never goes back
    seen: int  # control events the writer knew when it accepted these
    metadata: dict[int, str] = {}  # JSON by the event's index in the draft
    requests: Sequence[KeyedRequest] = ()
    origins: Sequence[OriginSpan] = ()
    ordered: frozenset[int] = frozenset()  # contexts whose events reach a team board
    forgotten_before: int = 0  # requests before this instant have expired, and their keys are free
    answers: Sequence[tuple[str, str, bytes]] = ()  # (sender, key, answer) of requests of earlier commits
    sources: Sequence[SourceSpan] = ()

    def distinct_keys(self) -> list[tuple[str, str]]:
        """Return the (sender, key) of its requests; ValueError where two of them have the same."""
        keys = [(request.sender, request.key) for request in self.requests]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"two requests of one draft have the key {twice[1]!r}")
        return keys

    @property
    def has_more(self) -> bool:
        """Whether it has more than events."""
        return bool(self.metadata or self.requests or self.answers or self.origins or self.sources)


class Appended(Protocol):
    """The places of a draft's events in the ledger, in the draft's order."""

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
    """An event in every partition."""

    context: Context
    detail: Detail | None
    at: int
    number: int = 0  # from 1, once appended; 0 with a sole writer
    sequences: tuple[int, ...] = ()  # by partition


class LogColumns(NamedTuple):
    """What the follower of a log judges the events of a part by; columns as long as the part.

    The first 8 bytes of digests are spread evenly, also those of one request.
    """

    times: array[int]  # "q": those of the records, as stored, which may go back within a partition
    sent: bytes | None  # 1 where the sender gave `at`, else 0, and `at` is the record's time; None: 0 for all
    keys: bytes | None  # KEY_BYTES for each event, zeros for one without a key; None: no event has one
    number: int = 0  # of a control event, from 1; the follower skips one it has read in this partition


class Part(NamedTuple):
    """Consecutive committed events of one partition, as read."""

    partition: int
    event_run: EventRun  # `first` is set; a control event is a run of one; time marks are a run of the context MARK
    ordinals: array[int] | None  # NOT_ORDERED for an event without one; None when no event has one
    log: LogColumns | None = None  # of a log


class PastEvent(msgspec.Struct, frozen=True):
    """One event of a player's history."""

    sequence: int
    kind: EventKind
    board: str
    at: int
    score: int | None
    tiebreak: int | None
    attributes: dict[str, str]
    metadata: dict[str, object] | None
    sender: str
    origin: str | None = None  # the sender's address, where stored


class Ledger(Protocol):
    """Any thread may read and append; with a sole writer, one at a time appends."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of this adapter."""
        ...

    @property
    def partitions(self) -> int:
        """The number of partitions, fixed when the ledger is created."""
        ...

    def stamp(self, positions: Sequence[int]) -> str | None:
        """Return a stamp that identifies these positions of this ledger; None where it has no such positions."""
        ...

    def heads(self) -> Heads:
        """Return the committed heads."""
        ...

    def sequences_at(self, at: int) -> tuple[int, ...]:
        """Return the last sequence of each partition that was committed by an instant of the ledger's own time.

        Every commit is on one side of it, in all partitions. Those of a moment ago may still be under way, and the
        clocks of those who append differ a little: for an instant just past, a later call may return more. A log
        refuses with InvalidValue.
        """
        ...

    def append(self, draft: Draft) -> Appended:
        """Make a draft durable.

        In a log, an event at the draft's own time counts as sent without one.
        """
        ...

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
        """Make control events durable, in every partition; return them with their numbers and sequences.

        `at` is the ledger's time as the writer knows it; the events' own times count too. A log keeps no `origin`.
        """
        ...

    def read(self, after: Sequence[int], events_max: int, skipping: Collection[int] = ()) -> Sequence[Part]:
        """Return committed events behind a sequence of each partition, in order within each, about `events_max` in all.

        Partitions share the limit fairly, except the skipped ones; all are read as of one instant.
        """
        ...

    def wait(self, timeout_s: float) -> None:
        """Return when something may have been appended, at the latest after `timeout_s`."""
        ...

    def number_context(self, context: Context) -> int:
        """Return the number of a context; a new context gets a number that every process will see."""
        ...

    def context(self, number: int) -> Context:
        """Return a context by number."""
        ...

    def event(self, partition: int, sequence: int) -> EventRun:
        """Return one event as a run of one."""
        ...

    def request(self, sender: str, key: str) -> StoredRequest | None:
        """Return the request stored under a key, until it expires."""
        ...

    def requests(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], StoredRequest]:
        """Return the requests stored under any of these (sender, key)."""
        ...

    def forget_requests(self, before: int, count_max: int) -> int:
        """Delete at most `count_max` requests older than an instant; return their number.

        Requests that another process is deleting are skipped.
        """
        ...

    def sources(self) -> list[str]:
        """Return the names of all sources."""
        ...

    def source_offsets(self, source: str) -> dict[int, int]:
        """Return the offsets to read next of a source, by partition; without those never read."""
        ...

    def metadata(self, events: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """Return the metadata (JSON) of events, by partition and sequence, that have some."""
        ...

    def history(self, player: str, limit: int, before: int | None = None, board: str | None = None) -> list[PastEvent]:
        """Return a player's own events, the newest first, with sequences of the player's partition."""
        ...

    def audit(self, query: AuditQuery, before: AuditMark | None = None) -> AuditedPage:
        """Return the newest events that a query asks for, optionally behind where an earlier page ended.

        It looks at a bounded number of events: a page may hold fewer than the limit, and more may follow.
        """
        ...

    def events_of(self, players: Mapping[str, int], events_max: int) -> Iterator[tuple[str, Sequence[EventRun]]]:
        """Iterate over players with their events before a sequence of their partition, the newest first, in runs.

        A run has one event. At most `events_max` of each player; each is read in its turn.
        """
        ...

    def controls_of(self, board: str, partition: int) -> Sequence[EventRun] | None:
        """Return a board's control events, in order, with their sequences in a partition; without midnights.

        None where there are more than CONTROLS_OF_MAX, or they are not indexed yet.
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class SharedLedger(Ledger, Protocol):
    """A ledger of many processes: its control events can be read alone, by those that do not rank."""

    @property
    def backlog(self) -> Backlog:
        """What the processes tell each other about the backlog."""
        ...

    @property
    def identity(self) -> str:
        """The unique identity of this ledger."""
        ...

    def prepare(self, now: int) -> None:
        """Prepare for events from an instant on, for some weeks; every process that appends does, now and then."""
        ...

    def controls(self, after: int, count_max: int = CONTROLS_MAX) -> Sequence[ControlEvent]:
        """Return the first `count_max` control events behind a number, in order."""
        ...

    def tend(self, awaited: int | None = None) -> None:
        """Do what a log needs from one process again and again: the lease holder calls it every TEND_EVERY_MS.

        It completes control events of processes that died. `awaited` is the newest time that a waiting event of a
        follower needs the other partitions to have passed.
        """
        ...

"""The rank store: batches of updates go in with the position they reach, ranks come out.

    ledger → applier → RankStore.apply → reads, push

Promises (every adapter, checked by tests/contract):
- A batch applies whole and once. Its `after` must equal the stored position of its partition: a batch that starts
  before it is a duplicate (DUP), one that starts after it leaves a gap (GAP), one of an older epoch is FENCED; none
  of these changes anything, and the answer holds the stored position, from which the caller continues.
- The result of a batch is that of its rows applied one after the other, whatever order the store works in.
- A well-formed batch cannot fail: sums stop at the bounds. A malformed one raises MalformedBatch naming the first
  bad row, and applies nothing. `UpdateBatch` lists what is malformed, in the order of the checks.
- Order, keep rules and digest are those of domain/order.py and domain/digest.py, to the bit.
- A read sees one instant of its instance. The position moves when its batch is complete, so what a read shows is at
  least as new as a position read before it.
- An instance is in the store exactly while it has an entry. An instance without entries reads as empty; a player who
  is not in an instance is None. Nothing answers 0 for "absent".
- A read checks its arguments first, in the order of the signature: one outside its limits
  raises InvalidValue naming it, a player that is not a str raises TypeError. An id that no player can have (empty, too
  long, not UTF-8) is not an error in a read: that player is absent.

Not promised: that two reads see the same instant; that a read sees no part of the batch after its position; that an
instance keeps its rules when it is empty; the value in a score column where its flag is not set.

May be imported by: the applier, the API's reads, push, seasons, adapters. It imports no adapter.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag, StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Ranking, Rules

if TYPE_CHECKING:
    from typing_extensions import Buffer

INSTANCE_BYTES_MAX = 510  # of a key's text
BATCH_ROWS_MAX = 1_000_000  # also the longest table of a batch
SEQUENCE_MAX = 2**63 - 1  # of partitions, epochs and sequences
READ_PLAYERS_MAX = READ_ENTRIES_MAX = 10_000
READ_PLACE_MAX = 2**63 - 1
HISTOGRAM_BUCKETS_MAX = 1_000
QUANTILES_MAX = 1_000
QUANTILE_PPM_MAX = 1_000_000


class Op(IntEnum):
    """What a row does to its instance."""

    APPLY = 0  # one event, by the instance's keep rule
    PUT = 1  # set score and tie field whatever the keep rule and the bounds: rebuilds, retractions, roll-ups
    REMOVE = 2  # remove the player; score and tie are ignored
    CLEAR = 3  # remove all players; player, score and tie are ignored


class Verdict(StrEnum):
    """The outcome of a batch: the store checks FENCED before DUP and GAP."""

    APPLIED = "applied"
    DUP = "dup"
    GAP = "gap"
    FENCED = "fenced"


class Position(NamedTuple):
    """A partition's position: the highest writer epoch and the sequence of the last applied event."""

    epoch: int
    sequence: int


START = Position(epoch=0, sequence=0)


@dataclass(slots=True)
class UpdateBatch:
    """Updates from the events `after` (exclusive) … `upto` (inclusive) of one partition, as columns.

    `instances` and `players` are tables the rows point into, so that an id used in five windows is looked up once.
    A column is anything with the buffer protocol and the stated item type: array.array, memoryview, a NumPy array.
    All columns have as many rows as `score`. Left out, `player` means that row i is about players[i], `instance`
    means instances[0], `tie` means 0 and `op` means APPLY.

    A table may list an instance or a player more than once. An instance keeps its order and ties while it has an
    entry; keep and bounds are those of the table entry a row points to, since a definition's bounds may change between
    two events. Where ties are by `player` the tie field is kept as 0, also by PUT. `after == upto` moves no position,
    so its rows could be applied twice: that is for tests and for filling a store that has no other writer.

    A batch is malformed for one of these reasons, checked in this order, whatever its position is:
    1. the batch as a whole (row None): partition, epoch, after or upto is not in 0 … SEQUENCE_MAX, upto < after; more
       than BATCH_ROWS_MAX rows, instances or players; a column that is not one contiguous dimension of its item type,
       or has another length; an instance that is no (InstanceKey, Rules) pair, whose key is more than
       INSTANCE_BYTES_MAX bytes of UTF-8, or whose bounds are not 64-bit integers with score_min ≤ score_max;
    2. the first bad row: an unknown op, an instance or a player that its table does not have, an id that is not a str
       of 1 … PLAYER_BYTES_MAX bytes of UTF-8, a tie outside 0 … TIE_FIELD_MAX. What an op ignores is not checked;
    3. an invalid id in `players` that no row uses (row None).
    Only a batch at the stored position is compared with the store: it is malformed too (row None) when its rows give an
    instance another order or ties than its entries have, or than another row gives. A duplicate from before a board was
    defined anew is only a duplicate.
    """

    instances: Sequence[tuple[InstanceKey, Rules]]
    players: Sequence[str]
    score: Buffer = field(default_factory=lambda: array("q"))  # int64
    tie: Buffer | None = None  # int64, 0 … TIE_FIELD_MAX
    instance: Buffer | None = None  # uint32, index into `instances`
    player: Buffer | None = None  # uint32, index into `players`
    op: Buffer | None = None  # uint8, an Op
    partition: int = 0
    epoch: int = 0
    after: int = 0
    upto: int = 0
    ranks: Ranking | None = None  # also return ranks before and after the whole batch, by this ranking


class RowFlag(IntFlag):
    """The bits of a row in `Applied.flags`."""

    WAS_PRESENT = 1  # the player had a score just before this row
    IS_PRESENT = 2  # the player has a score just after this row
    SET = 4  # the row changed the kept score or tie field, or removed the player


RANK_ABSENT = -1  # in rank columns only; Change turns it into None


class RowChange(NamedTuple):
    """What one row changed: kept scores before and after the row, ranks before and after the whole batch."""

    changed: bool
    old_score: int | None
    new_score: int | None
    rank_before: int | None
    rank_after: int | None


InstanceTable = tuple[tuple[InstanceKey, Rules], ...]
RowOutcome = RowChange | Verdict  # what one row changed, or the verdict if the batch was not applied
_NO_FLAGS = memoryview(b"")
_NO_SCORES = memoryview(b"").cast("q")


@dataclass(frozen=True, slots=True)
class Applied:
    """The answer to a batch: the verdict, the stored position and, if applied, columns with one item a row.

    `rank_before` and `rank_after` are None unless the batch was applied and asked for ranks. A CLEAR row has
    RANK_ABSENT for both ranks, and SET if it removed an entry. A batch that was not applied has no rows here.
    """

    verdict: Verdict
    position: Position
    flags: memoryview = _NO_FLAGS  # uint8, RowFlag
    old_score: memoryview = _NO_SCORES  # int64, meaningful where WAS_PRESENT
    new_score: memoryview = _NO_SCORES  # int64, meaningful where IS_PRESENT
    rank_before: memoryview | None = None  # int64, RANK_ABSENT for an absent player
    rank_after: memoryview | None = None  # int64

    def __len__(self) -> int:
        return len(self.flags)

    def row(self, index: int) -> RowChange:
        """Return what one row did."""
        flags = self.flags[index]
        return RowChange(
            changed=bool(flags & RowFlag.SET),
            old_score=self.old_score[index] if flags & RowFlag.WAS_PRESENT else None,
            new_score=self.new_score[index] if flags & RowFlag.IS_PRESENT else None,
            rank_before=_present(self.rank_before, index),
            rank_after=_present(self.rank_after, index),
        )


def _present(ranks: memoryview | None, index: int) -> int | None:
    if ranks is None or ranks[index] == RANK_ABSENT:
        return None
    rank: int = ranks[index]
    return rank


Bounds = tuple[int, int]  # of an estimated rank: the lowest and the highest that the true rank can be


class RankedEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a page."""

    rank: int
    player: str
    score: int
    tie: int


class RankedStanding(RankedEntry, frozen=True, gc=False, repr_omit_defaults=True):
    """A player's standing: `better` players have a strictly better score, `total` are in the instance."""

    better: int
    total: int
    bounds: Bounds | None = None  # `better` is then an estimate too


class RankedFriend(RankedEntry, frozen=True, gc=False, repr_omit_defaults=True):
    """One entry of a friends' board: `rank` in the group and `global_rank` in the instance, by the same ranking."""

    global_rank: int
    bounds: Bounds | None = None  # of the global rank


class RankedPage(msgspec.Struct, frozen=True):
    """Entries in standing order, and the number in the whole instance."""

    entries: list[RankedEntry]
    total: int
    is_cut: bool = False  # some requested entries are left out, since their exact ranks are unknown


class RankedAround(msgspec.Struct, frozen=True):
    """A player with the neighbours above and below, all in standing order."""

    above: list[RankedEntry]
    player: RankedStanding
    below: list[RankedEntry]
    is_cut: bool = False  # as in RankedPage


class RankedPlace(msgspec.Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """The rank a score would have, and the number of entries without it."""

    rank: int
    total: int
    bounds: Bounds | None = None


class RankedBucket(msgspec.Struct, frozen=True, gc=False):
    """How many players have a score from `low` to `high`, both included."""

    low: int
    high: int
    count: int


class RankReads(Protocol):
    """Reads of ranks, from any thread; `players` are at most READ_PLAYERS_MAX a call."""

    def captured(self, instance: InstanceKey, player: str) -> int | None:
        """Return the player's place at the instance's last capture; None without one."""

    def total(self, instance: InstanceKey) -> int:
        """Return the number of players in the instance."""

    def score(self, instance: InstanceKey, player: str) -> Kept | None:
        """Return a player's kept score and tie field."""

    def scores(self, instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return the kept scores of many players at one instant, in request order."""

    def rank(self, instance: InstanceKey, player: str, ranking: Ranking = Ranking.ORDINAL) -> RankedStanding | None:
        """Return a player's standing."""

    def ranks(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = Ranking.ORDINAL
    ) -> list[RankedStanding | None]:
        """Return the standings of many players at one instant, in request order; None for an absent player."""

    def range(self, instance: InstanceKey, first: int, last: int, ranking: Ranking = Ranking.ORDINAL) -> RankedPage:
        """Return the places `first` … `last` (from 1, both included; at most READ_ENTRIES_MAX), cut at the end.

        A `last` before `first` returns an empty page.
        """

    def following(
        self,
        instance: InstanceKey,
        after: tuple[Kept, str] | None,
        limit: int,
        ranking: Ranking = Ranking.ORDINAL,
    ) -> RankedPage:
        """Return at most `limit` entries behind the sort key of `after`, which need not be in the instance.

        A caller that continues from each page's last entry reads a player whose standing does not change exactly once.
        The id in `after` may be an invalid one, such as "", as long as it is UTF-8.
        """

    def around(
        self, instance: InstanceKey, player: str, above: int, below: int, ranking: Ranking = Ranking.ORDINAL
    ) -> RankedAround | None:
        """Return a player with up to `above` and `below` neighbours; None when the player is absent.

        Each number is at most READ_ENTRIES_MAX.
        """

    def friends(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = Ranking.ORDINAL
    ) -> list[RankedFriend]:
        """Return those of `players` who are in the instance, in standing order, each once."""

    def rank_of_score(
        self, instance: InstanceKey, score: int, tie: int, ranking: Ranking = Ranking.ORDINAL
    ) -> RankedPlace:
        """Return where a new player with this score and tie field would stand, last by id.

        The caller passes the tie field of now, such as `Board.tie_field(now)`: the store has no clock.
        """

    def count(self, instance: InstanceKey, low: int, high: int) -> int:
        """Return how many players have low ≤ score ≤ high; none when low > high. Both are 64-bit."""

    def quantiles(self, instance: InstanceKey, ppm: Sequence[int]) -> list[int] | None:
        """Return, for each q (parts per million, 0 … QUANTILE_PPM_MAX), the smallest kept score s such that at least
        max(1, ceil(q × total / 1,000,000)) players have a score ≤ s; None when the instance is empty.

        A call asks for at most QUANTILES_MAX. Smaller scores come first whatever the board's order is.
        """

    def histogram(self, instance: InstanceKey, buckets: int) -> list[RankedBucket]:
        """Cut lowest … highest score into at most `buckets` equal ranges and count the players in each.

        The width is ceil((highest − lowest + 1) / buckets); ranges that would start above the highest score are
        left out; the last one ends at the highest score.
        """

    def digest(self, instance: InstanceKey) -> int:
        """Return the digest of domain/digest.py; 0 when the instance is empty."""


class WindowSum(NamedTuple):
    """All instances of one window instance together, hidden ones of teams included."""

    instances: int
    entries: int
    digest: int  # the sum of theirs, mod 2^128


class Dropped(NamedTuple):
    """The outcome of dropping a window instance."""

    entries: int
    is_all: bool  # the store has no instance of it left


class KeptReads(Protocol):
    """The reads that the applier needs."""

    def scopes(self, board: str, window: str, player: str | None = None) -> Iterator[str]:
        """Yield the scopes of a window instance that have an entry, or those that hold this player."""

    def total(self, instance: InstanceKey) -> int:
        """Return the number of players in the instance."""

    def score(self, instance: InstanceKey, player: str) -> Kept | None:
        """Return a player's kept score and tie field."""

    def scores(self, instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return the kept scores of many players at one instant, in request order."""

    def range(self, instance: InstanceKey, first: int, last: int, ranking: Ranking = Ranking.ORDINAL) -> RankedPage:
        """Return the places `first` … `last`."""

    def following(
        self, instance: InstanceKey, after: tuple[Kept, str] | None, limit: int, ranking: Ranking = Ranking.ORDINAL
    ) -> RankedPage:
        """Return at most `limit` entries behind a sort key."""


class RankWriter(KeptReads, Protocol):
    """The part of a rank store that the applier writes to; `RankStore` says what each method promises."""

    def apply(self, batch: UpdateBatch) -> Applied:
        """Apply a batch and move its partition's position, both or neither."""

    def apply_one(
        self,
        table: InstanceTable,
        player: str,
        score: int,
        ties: Sequence[int],
        *,
        at: int,
        ranks: Ranking,
        partition: int,
    ) -> RowOutcome:
        """Apply one event."""

    def drop(self, instance: InstanceKey) -> bool:
        """Drop an instance."""

    def drop_window(self, board: str, window: str, instances_max: int | None = None) -> Dropped:
        """Drop all or some instances of a window instance; a store may always drop all."""

    def capture(self, instance: InstanceKey) -> None:
        """Capture every player's current place."""

    def forget_capture(self, instance: InstanceKey) -> None:
        """Forget the captured places of an instance."""


class RankStore(RankReads, Protocol):
    """Every method may be called from any thread. `players` are at most READ_PLAYERS_MAX a call."""

    def apply(self, batch: UpdateBatch) -> Applied:
        """Apply a batch and move its partition's position, both or neither.

        The stored epoch becomes the batch's when that is higher and the batch is applied. `after == upto` with no
        rows only claims the epoch; `after < upto` with no rows only moves the position.
        """

    def apply_one(
        self,
        table: InstanceTable,
        player: str,
        score: int,
        ties: Sequence[int],
        *,
        at: int,
        ranks: Ranking,
        partition: int,
    ) -> RowOutcome:
        """Apply event `at` of a partition, one row for each entry of a table, and return what the first row did."""

    def position(self, partition: int) -> Position:
        """Return this partition's position; START before its first batch."""

    def instances(self) -> Iterator[InstanceKey]:
        """Yield the instances that have an entry, in no particular order.

        Yields none twice, and every one that has an entry all the while, whatever is written meanwhile.
        """

    def drop(self, instance: InstanceKey) -> bool:
        """Drop an instance and free its memory; False when the store does not have it. No position moves."""

    def drop_window(self, board: str, window: str, instances_max: int | None = None) -> Dropped:
        """Drop the instances of a window instance, all or at most `instances_max` scopes. No position moves.

        A store may drop all of them whatever `instances_max` is.
        """

    def scopes(self, board: str, window: str, player: str | None = None) -> Iterator[str]:
        """Yield the scopes of a window instance that have an entry, or those that hold this player.

        In no particular order. Yields each exactly once if nothing is written meanwhile.
        """

    def window_sum(self, board: str, window: str) -> WindowSum:
        """Add up the instances of a window instance; of one instant if nothing is written meanwhile."""

    def capture(self, instance: InstanceKey) -> None:
        """Capture every player's current ordinal place, replacing the last capture. No position moves.

        A place lasts until the next capture, `forget_capture`, or the row or drop that removes the player: a player who
        returns has none. APPLY and PUT keep it.
        """

    def forget_capture(self, instance: InstanceKey) -> None:
        """Forget the captured places of an instance, if there are any."""


def walk(
    store: KeptReads, instance: InstanceKey, chunk: int = 1_000, ranking: Ranking = Ranking.ORDINAL
) -> Iterator[RankedEntry]:
    """Yield a whole instance in standing order, reading a chunk at a time while it may change."""
    after: tuple[Kept, str] | None = None
    while entries := store.following(instance, after, chunk, ranking).entries:
        yield from entries
        after = Kept(entries[-1].score, entries[-1].tie), entries[-1].player

"""The rank store: batches of updates go in with the position they reach, ranks come out.

    ledger → applier → RankStore.apply → reads, push

Promises (every adapter, checked by tests/contract):
- A batch applies whole and once. Its `after` must equal the stored position of its partition: a batch that starts
  before it is a duplicate (DUP), one that starts after it leaves a gap (GAP), one of an older epoch is FENCED; none
  of these changes anything, and the answer holds the stored position, from which the caller goes on.
- The result of a batch is that of its rows applied one after the other, whatever order the store works in.
- A well-formed batch cannot fail: sums stop at the bounds. A malformed one raises MalformedBatch naming the first
  bad row, and nothing is applied. What is malformed, and in which order it is looked for, stands at `Batch`.
- Order, keep rules and digest are those of domain/order.py and domain/digest.py, to the bit.
- A read sees one instant of its instance. The position moves when its batch is complete, so what a read shows is at
  least as new as a position read before it.
- An instance is in the store exactly while somebody stands in it: the row that brings the first player makes it, the
  row that takes the last one out ends it. An instance nobody stands in reads as empty; a player who is not in an
  instance is None. Nothing answers 0 for "absent".
- Arguments of a read are checked before anything is looked up, in the order of the signature: one outside its limits
  raises InvalidValue naming it, a player that is not a str raises TypeError. An id that no player can have (empty, too
  long, not UTF-8) is not an error in a read: that player is absent.

Not promised: that two reads see the same instant; that a read sees no part of the batch after its position; that an
instance keeps its rules when it is empty; anything of what stands in a score column where its flag is not set.

May be imported by: the applier, the API's reads, push, seasons, adapters. It imports no adapter.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
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
    REMOVE = 2  # take the player out; score and tie are ignored
    CLEAR = 3  # take everybody out; player, score and tie are ignored


class Verdict(StrEnum):
    """What became of a batch: FENCED is decided before DUP and GAP."""

    APPLIED = "applied"
    DUP = "dup"
    GAP = "gap"
    FENCED = "fenced"


class Position(NamedTuple):
    """How far a partition is applied: the highest writer's epoch seen and the sequence of the last event."""

    epoch: int
    sequence: int


START = Position(epoch=0, sequence=0)


@dataclass(slots=True)
class Batch:
    """Updates from the events `after` (exclusive) … `upto` (inclusive) of one partition, as columns.

    `instances` and `players` are tables the rows point into, so that an id used in five windows is looked up once.
    A column is anything with the buffer protocol and the stated item type: array.array, memoryview, a NumPy array.
    All columns have as many rows as `score`. Left out, `player` means that row i is about players[i], `instance`
    means instances[0], `tie` means 0 and `op` means APPLY.

    An instance may be listed more than once, and a player too. Order and ties stay those of an instance as long as
    somebody stands in it; keep and bounds are those of the entry a row points to, since a definition's bounds may
    change between two events. Where ties are by `player` the tie field is kept as 0, also by PUT. `after == upto` moves
    no position, so rows under it are not protected from being applied twice: that is for tests and for filling a store
    nobody else writes to.

    A batch is malformed when one of these is found, looked for in this order, whatever its position would be:
    1. the batch as a whole (row None): partition, epoch, after or upto is not in 0 … SEQUENCE_MAX, upto < after; more
       than BATCH_ROWS_MAX rows, instances or players; a column that is not one contiguous dimension of its item type,
       or has another length; an instance that is no (InstanceKey, Rules) pair, whose key is more than
       INSTANCE_BYTES_MAX bytes of UTF-8, or whose bounds are not 64-bit integers with score_min ≤ score_max;
    2. the first bad row: an unknown op, an instance or a player that its table does not have, an id that is not a str
       of 1 … PLAYER_BYTES_MAX bytes of UTF-8, a tie outside 0 … TIE_FIELD_MAX. What an op ignores is not looked at;
    3. an id in `players` that no row looks at and that nobody can have (row None).
    Only a batch that would be applied is compared with the store: it is malformed too (row None) when its rows point to
    an instance by another order or ties than those of the players standing in it, or than another row does. A
    duplicate from before a board was made anew is just a duplicate.
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
    ranks: Ranking | None = None  # also answer ranks before and after the whole batch, counted this way


class RowFlag(IntFlag):
    """What `Applied.flags` says of a row."""

    WAS_PRESENT = 1  # the player had a score just before this row
    IS_PRESENT = 2  # the player has a score just after this row
    SET = 4  # what is kept, score or tie field, differs afterwards (for REMOVE: the player was there)


RANK_ABSENT = -1  # in rank columns only; Change turns it into None


class Change(NamedTuple):
    """What one row did: kept scores around the row, ranks around the whole batch."""

    changed: bool
    old_score: int | None
    new_score: int | None
    rank_before: int | None
    rank_after: int | None


Table = tuple[tuple[InstanceKey, Rules], ...]
One = Change | Verdict  # what one row did; the verdict where nothing was applied
_NO_FLAGS = memoryview(b"")
_NO_SCORES = memoryview(b"").cast("q")


@dataclass(frozen=True, slots=True)
class Applied:
    """The answer to a batch: the verdict, the position now stored and, when applied, a column a question.

    `rank_before` and `rank_after` are None unless the batch was applied and asked for ranks. A CLEAR row answers flags
    0 or, when somebody was there, SET, and RANK_ABSENT for both ranks. Unless applied, a batch has no rows here.
    """

    verdict: Verdict
    position: Position
    flags: memoryview = _NO_FLAGS  # uint8, RowFlag
    old_score: memoryview = _NO_SCORES  # int64, meaningful where WAS_PRESENT
    new_score: memoryview = _NO_SCORES  # int64, meaningful where IS_PRESENT
    rank_before: memoryview | None = None  # int64, RANK_ABSENT for a player who was not there
    rank_after: memoryview | None = None  # int64

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.flags)

    def row(self, index: int) -> Change:
        """Return what one row did."""
        flags = self.flags[index]
        return Change(
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


Bounds = tuple[int, int]  # of a rank that is an estimate: the first and the last place that the true one can be


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One line of a page."""

    rank: int
    player: str
    score: int
    tie: int


class Standing(Entry, frozen=True, gc=False, repr_omit_defaults=True):
    """Where a player stands: `better` players have a strictly better score, `total` are in the instance."""

    better: int
    total: int
    bounds: Bounds | None = None  # `better` is then an estimate too


class Friend(Entry, frozen=True, gc=False, repr_omit_defaults=True):
    """One line of a friends' board: `rank` within the group, `global_rank` in the instance, counted the same way."""

    global_rank: int
    bounds: Bounds | None = None  # of the global rank


class Page(msgspec.Struct, frozen=True):
    """Entries in standing order, and how many stand in the whole instance."""

    entries: list[Entry]
    total: int
    is_cut: bool = False  # some of those asked for are left out: they stand there, and nobody knows exactly where


class Around(msgspec.Struct, frozen=True):
    """A player with those just above and just below, all in standing order."""

    above: list[Entry]
    player: Standing
    below: list[Entry]
    is_cut: bool = False  # as of a page


class Place(msgspec.Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """Where a score would stand, and how many stand there without it."""

    rank: int
    total: int
    bounds: Bounds | None = None


class Bucket(msgspec.Struct, frozen=True, gc=False):
    """How many players have a score from `low` to `high`, both included."""

    low: int
    high: int
    count: int


class RankReads(Protocol):
    """What can be asked of ranks, from any thread; `players` are at most READ_PLAYERS_MAX a call."""

    def captured(self, instance: InstanceKey, player: str) -> int | None:
        """Return the player's place at the instance's last capture; None when there was none or it is forgotten."""

    def total(self, instance: InstanceKey) -> int:
        """Return how many players stand in the instance."""

    def score(self, instance: InstanceKey, player: str) -> Kept | None:
        """Return a player's kept score and tie field."""

    def scores(self, instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return many kept scores of one instant, in request order."""

    def rank(self, instance: InstanceKey, player: str, ranking: Ranking = Ranking.ORDINAL) -> Standing | None:
        """Return where a player stands."""

    def ranks(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = Ranking.ORDINAL
    ) -> list[Standing | None]:
        """Return where many players stand at one instant, in request order, None for those who are absent."""

    def range(self, instance: InstanceKey, first: int, last: int, ranking: Ranking = Ranking.ORDINAL) -> Page:
        """Return the places `first` … `last` (from 1, both included; at most READ_ENTRIES_MAX), cut at the end.

        A `last` before `first` asks for nothing and gets an empty page.
        """

    def following(
        self,
        instance: InstanceKey,
        after: tuple[Kept, str] | None,
        limit: int,
        ranking: Ranking = Ranking.ORDINAL,
    ) -> Page:
        """Return at most `limit` entries that stand behind the sort key of `after`, whether or not it is there.

        Going on from each page's last entry, a player whose standing does not change is seen exactly once. The id in
        `after` may be one that nobody can have, such as "", as long as it is UTF-8.
        """

    def around(
        self, instance: InstanceKey, player: str, above: int, below: int, ranking: Ranking = Ranking.ORDINAL
    ) -> Around | None:
        """Return a player with up to `above` and `below` neighbours; None when the player is absent.

        Each number is at most READ_ENTRIES_MAX.
        """

    def friends(
        self, instance: InstanceKey, players: Sequence[str], ranking: Ranking = Ranking.ORDINAL
    ) -> list[Friend]:
        """Return those of `players` who are in the instance, in standing order, each once."""

    def rank_of_score(self, instance: InstanceKey, score: int, tie: int, ranking: Ranking = Ranking.ORDINAL) -> Place:
        """Return where a new player with this score and tie field would stand, last by id.

        `tie` is the tie field of now, such as `Board.tie_field(now)`: nobody else knows what time it is.
        """

    def count(self, instance: InstanceKey, low: int, high: int) -> int:
        """Return how many players have low ≤ score ≤ high; none when low > high. Both are 64-bit."""

    def quantiles(self, instance: InstanceKey, ppm: Sequence[int]) -> list[int] | None:
        """Return, for each q (parts per million, 0 … QUANTILE_PPM_MAX), the smallest kept score s such that at least
        max(1, ceil(q × total / 1,000,000)) players have a score ≤ s; None when the instance is empty.

        At most QUANTILES_MAX are asked at once. Smaller scores come first whatever the board's order is.
        """

    def histogram(self, instance: InstanceKey, buckets: int) -> list[Bucket]:
        """Cut lowest … highest score into at most `buckets` equal ranges and count the players in each.

        The width is ceil((highest − lowest + 1) / buckets); ranges that would start above the highest score are
        left out; the last one ends at the highest score.
        """

    def digest(self, instance: InstanceKey) -> int:
        """Return the digest of domain/digest.py; 0 when the instance is empty."""


class KeptReads(Protocol):
    """What the applier asks of ranks on its way."""

    def total(self, instance: InstanceKey) -> int:
        """Return how many players stand in the instance."""

    def score(self, instance: InstanceKey, player: str) -> Kept | None:
        """Return a player's kept score and tie field."""

    def scores(self, instance: InstanceKey, players: Sequence[str]) -> list[Kept | None]:
        """Return many kept scores of one instant, in request order."""

    def range(self, instance: InstanceKey, first: int, last: int, ranking: Ranking = Ranking.ORDINAL) -> Page:
        """Return the places `first` … `last`."""

    def following(
        self, instance: InstanceKey, after: tuple[Kept, str] | None, limit: int, ranking: Ranking = Ranking.ORDINAL
    ) -> Page:
        """Return at most `limit` entries that stand behind a sort key."""


class RankWriter(KeptReads, Protocol):
    """The narrow side of a rank store that the applier writes to; each batch says which events of which partition.

    `RankStore` says what each method promises.
    """

    def apply(self, batch: Batch) -> Applied:
        """Apply a batch and move its partition's position, both or neither."""

    def apply_one(
        self,
        table: Table,
        player: str,
        score: int,
        ties: Sequence[int],
        *,
        at: int,
        ranks: Ranking,
        partition: int = 0,
    ) -> One:
        """Apply one event."""

    def drop(self, instance: InstanceKey) -> bool:
        """Take a whole instance out."""

    def capture(self, instance: InstanceKey) -> None:
        """Remember every player's place as it is now."""

    def forget_capture(self, instance: InstanceKey) -> None:
        """Forget the captured places of an instance."""


class RankStore(RankReads, Protocol):
    """Every method may be called from any thread. `players` are at most READ_PLAYERS_MAX a call."""

    def apply(self, batch: Batch) -> Applied:
        """Apply a batch and move its partition's position, both or neither.

        The stored epoch becomes the batch's when that is higher and the batch is applied. `after == upto` with no
        rows only claims the epoch; `after < upto` with no rows moves an idle store on.
        """

    def apply_one(
        self,
        table: Table,
        player: str,
        score: int,
        ties: Sequence[int],
        *,
        at: int,
        ranks: Ranking,
        partition: int = 0,
    ) -> One:
        """Apply event `at` of a partition, one row for each entry of a table, and say what the first row did."""

    def position(self, partition: int = 0) -> Position:
        """Return how far this partition is applied; START when nothing was."""

    def instances(self) -> Iterator[InstanceKey]:
        """Go through the instances in which somebody stands, in no particular order.

        None is seen twice, and one in which somebody stands all the while is seen, whatever is written meanwhile.
        """

    def drop(self, instance: InstanceKey) -> bool:
        """Take a whole instance out and give its memory back; False when it is not in the store. No position moves."""

    def capture(self, instance: InstanceKey) -> None:
        """Remember every player's ordinal place as it is now, instead of what was remembered before. No position moves.

        A place lasts until the next capture, `forget_capture`, or the row or drop that takes the player out of the
        instance: who comes back has none. APPLY and PUT leave it.
        """

    def forget_capture(self, instance: InstanceKey) -> None:
        """Forget the captured places of an instance, if there are any."""


def walk(
    store: KeptReads, instance: InstanceKey, chunk: int = 1_000, ranking: Ranking = Ranking.ORDINAL
) -> Iterator[Entry]:
    """Go through a whole instance in standing order, a chunk at a time, while it may be changing."""
    after: tuple[Kept, str] | None = None
    while entries := store.following(instance, after, chunk, ranking).entries:
        yield from entries
        after = Kept(entries[-1].score, entries[-1].tie), entries[-1].player


def batch_of_rows(
    instance: tuple[InstanceKey, Rules],
    rows: Iterable[tuple[str, int] | tuple[str, int, int]],
    *,
    partition: int = 0,
    epoch: int = 0,
    after: int = 0,
    upto: int = 0,
    ranks: Ranking | None = None,
) -> Batch:
    """Make a batch for one instance from (player, score[, tie]) rows: for tests, examples and small loads."""
    listed = [(*row, 0)[:3] for row in rows]
    return Batch(
        instances=[instance],
        players=[player for player, _, _ in listed],
        score=array("q", [score for _, score, _ in listed]),
        tie=array("q", [tie for _, _, tie in listed]),
        partition=partition,
        epoch=epoch,
        after=after,
        upto=upto,
        ranks=ranks,
    )

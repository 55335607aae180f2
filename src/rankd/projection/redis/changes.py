"""What the mirror is told: for each instance, what is kept now of those who changed. Rows are states, not steps.

Writing a row twice, or a newer one in its place, does no harm; so whatever Redis has missed is sent from the engine.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import NamedTuple, Protocol

from rankd.domain.board import TIE_RESOLUTION_MS_DEFAULT
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Keep, Kept, Rules, sort_key
from rankd.projection.port import READ_ENTRIES_MAX, READ_PLAYERS_MAX, Position, RankStore, Verdict


class Move(NamedTuple):
    """How far a partition moves: the events after `after` (exclusive) up to `upto` (inclusive)."""

    partition: int
    after: int
    upto: int


class Written(NamedTuple):
    """What became of a write on one shard, and the positions now stored there; None when the shard is not there.

    DUP and GAP say that some partition does not stand where its move begins. Rows being states, a caller whose engine
    is at least as far as every stored position may send the same rows again with `after` = stored.
    """

    verdict: Verdict
    positions: dict[int, Position] | None


@dataclass(slots=True)
class InstanceChange:
    """What changed in one instance. Each player stands in `players` at most once."""

    key: InstanceKey
    rules: Rules
    tie_resolution_ms: int = TIE_RESOLUTION_MS_DEFAULT
    players: Sequence[str] = ()
    score: array[int] = field(default_factory=lambda: array("q"))
    tie: array[int] = field(default_factory=lambda: array("q"))
    gone: bytes = b""  # one byte a player, 1: no longer there; left empty, nobody is gone
    cleared: bool = False  # everybody left before what follows
    returned: Sequence[str] = ()  # who left and came back within this change: their captured places are forgotten
    digest: int = 0  # of the whole instance, after this change
    total: int = 0  # who stand in the whole instance after this change; 0: the instance leaves Redis
    captured: Mapping[str, int] | None = None  # places to remember in place of all before; None: leave them
    forget_captured: bool = False
    metadata: Mapping[str, tuple[int, int] | None] | None = None  # player → (partition, sequence); None: forget
    exact_top: int = 0  # only so many stand in the sorted set; 0: everybody. See `with_top`
    in_top: bytes = b""  # with exact_top: one byte a player, 1: among the first exact_top
    shards: int = 1  # over which `total` are spread
    last_of_top: tuple[Kept, str] | None = None  # with exact_top: the last of them; None while everybody is among them

    def __post_init__(self) -> None:
        """Refuse columns of different lengths: rows would slip to other players."""
        count = len(self.players)
        flags = {len(self.gone), len(self.in_top)}
        if len(self.score) != count or len(self.tie) != count or not flags <= {0, count}:
            raise AssertionError(f"columns of {self.key.text} differ in length")


def dropped(key: InstanceKey, rules: Rules) -> InstanceChange:
    """Return the change that takes a whole instance out of Redis."""
    return InstanceChange(key, rules, cleared=True)


class Columned(RankStore, Protocol):
    """A store that gives what it keeps of many players as columns, as the engine does."""

    def columns(self, instance: InstanceKey, players: Sequence[str]) -> tuple[array[int], array[int], bytes]:
        """Return scores, tie fields and, of those who are not there, 1."""

    def captured_many(self, instance: InstanceKey, players: Sequence[str]) -> array[int]:
        """Return places at the instance's last capture; -1 for those without one."""


def changed(
    store: Columned,
    key: InstanceKey,
    rules: Rules,
    players: Sequence[str],
    tie_resolution_ms: int = TIE_RESOLUTION_MS_DEFAULT,
    *,
    cleared: bool = False,
    returned: Sequence[str] = (),
) -> InstanceChange:
    """Return what the store keeps now of these players, each named once."""
    score, tie, gone = array("q"), array("q"), b""
    for first in range(0, len(players), READ_PLAYERS_MAX):
        some_score, some_tie, some_gone = store.columns(key, players[first : first + READ_PLAYERS_MAX])
        score += some_score
        tie += some_tie
        gone += some_gone
    return InstanceChange(
        key,
        rules,
        tie_resolution_ms,
        players,
        score,
        tie,
        gone if 1 in gone else b"",
        cleared,
        returned,
        store.digest(key),
        store.total(key),
    )


def with_top(store: RankStore, change: InstanceChange, exact_top: int, *, is_whole: bool = False) -> InstanceChange:
    """Return a change that keeps only the first `exact_top` in the sorted set, and says who they are.

    Whoever moves up into the top because others of this change left it is added to the rows; nobody does in pages of a
    whole instance.
    """
    rules, rows = change.rules, dict(zip(change.players, zip(change.score, change.tie, strict=True), strict=True))
    gone = set(compress(change.players, change.gone))
    last = store.range(change.key, exact_top, exact_top).entries
    limit = sort_key(rules, Kept(last[0].score, last[0].tie), last[0].player) if last else None

    def is_in(player: str) -> bool:
        return player not in gone and (limit is None or sort_key(rules, Kept(*rows[player]), player) <= limit)

    leaving = 0 if is_whole else len(gone) + len(change.returned)
    if not is_whole and rules.keep not in (Keep.BEST, Keep.FIRST):
        leaving = sum(not is_in(player) for player in rows)  # a score may have become worse
    first = max(1, exact_top - leaving + 1)
    while leaving and first <= exact_top:
        entries = store.range(change.key, first, min(exact_top, first + READ_ENTRIES_MAX - 1)).entries
        rows.update((entry.player, (entry.score, entry.tie)) for entry in entries if entry.player not in gone)
        first += READ_ENTRIES_MAX
    return replace(
        change,
        players=list(rows),
        score=array("q", [score for score, _ in rows.values()]),
        tie=array("q", [tie for _, tie in rows.values()]),
        gone=bytes(player in gone for player in rows) if gone else b"",
        exact_top=exact_top,
        in_top=bytes(is_in(player) for player in rows),
        last_of_top=(Kept(last[0].score, last[0].tie), last[0].player) if last else None,
    )


def whole_instance(
    store: RankStore,
    key: InstanceKey,
    rules: Rules,
    tie_resolution_ms: int = TIE_RESOLUTION_MS_DEFAULT,
    page_entries: int = READ_ENTRIES_MAX,
) -> Iterator[InstanceChange]:
    """Go through everybody in an instance in standing order, a page at a time; nobody writes to the store meanwhile."""
    after: tuple[Kept, str] | None = None
    digest, total = store.digest(key), store.total(key)
    while entries := store.following(key, after, page_entries).entries:
        yield InstanceChange(
            key,
            rules,
            tie_resolution_ms,
            [entry.player for entry in entries],
            array("q", [entry.score for entry in entries]),
            array("q", [entry.tie for entry in entries]),
            digest=digest,
            total=total,
        )
        after = Kept(entries[-1].score, entries[-1].tie), entries[-1].player


def captured_places(store: Columned, key: InstanceKey) -> dict[str, int]:
    """Return every place that is remembered in an instance, by player."""
    found: dict[str, int] = {}
    after: tuple[Kept, str] | None = None
    while entries := store.following(key, after, READ_ENTRIES_MAX).entries:
        players = [entry.player for entry in entries]
        for first in range(0, len(players), READ_PLAYERS_MAX):
            some = players[first : first + READ_PLAYERS_MAX]
            places = store.captured_many(key, some)
            found.update((player, place) for player, place in zip(some, places, strict=True) if place >= 0)
        after = Kept(entries[-1].score, entries[-1].tie), entries[-1].player
    return found

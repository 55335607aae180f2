"""Changes for the mirror: for each instance, the current rows of changed players. Rows are states, not deltas.

A row may be written twice, or a newer one in its place; so the engine can always send what Redis lacks.
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


class PartitionMove(NamedTuple):
    """The advance of a partition: from `after` (exclusive) up to `upto` (inclusive)."""

    partition: int
    after: int
    upto: int


class WriteReply(NamedTuple):
    """The verdict on a write to one shard, and the positions now stored there; None when the shard is missing.

    DUP and GAP mean that some partition's stored position is not where its move begins. Rows are states, so a caller
    whose engine has reached every stored position may send the same rows again with `after` = stored.
    """

    verdict: Verdict
    positions: dict[int, Position] | None


@dataclass(slots=True)
class InstanceChange:
    """The changes of one instance, each player at most once."""

    key: InstanceKey
    rules: Rules
    tie_resolution_ms: int = TIE_RESOLUTION_MS_DEFAULT
    players: Sequence[str] = ()
    score: array[int] = field(default_factory=lambda: array("q"))
    tie: array[int] = field(default_factory=lambda: array("q"))
    gone: bytes = b""  # one byte per player, 1: removed; empty: none is removed
    cleared: bool = False  # all earlier entries were removed before these rows
    returned: Sequence[str] = ()  # removed and added again within this change: Redis forgets their captured places
    digest: int = 0  # of the whole instance, after this change
    total: int = 0  # players in the whole instance after this change; 0: the instance leaves Redis
    captured: Mapping[str, int] | None = None  # replaces all captured places; None: keep them
    forget_captured: bool = False
    metadata: Mapping[str, tuple[int, int] | None] | None = None  # player → (partition, sequence); None: forget
    exact_top: int = 0  # players in the sorted set; 0: all. See `with_top`
    in_top: bytes = b""  # with exact_top: one byte per player, 1: among the first exact_top
    shards: int = 1  # that share `total`
    last_of_top: tuple[Kept, str] | None = None  # with exact_top: its last entry; None while it holds all players

    def __post_init__(self) -> None:
        """Refuse columns of different lengths: players would get other players' rows."""
        count = len(self.players)
        flags = {len(self.gone), len(self.in_top)}
        if len(self.score) != count or len(self.tie) != count or not flags <= {0, count}:
            raise AssertionError(f"columns of {self.key.text} differ in length")


def dropped(key: InstanceKey, rules: Rules) -> InstanceChange:
    """Return the change that removes an instance from Redis."""
    return InstanceChange(key, rules, cleared=True)


class ColumnSource(RankStore, Protocol):
    """A store that returns the rows of many players as columns, as the engine does."""

    def columns(self, instance: InstanceKey, players: Sequence[str]) -> tuple[array[int], array[int], bytes]:
        """Return scores, tie fields, and flags that are 1 for absent players."""

    def captured_many(self, instance: InstanceKey, players: Sequence[str]) -> array[int]:
        """Return places at the instance's last capture; -1 for players without one."""


def changed(
    store: ColumnSource,
    key: InstanceKey,
    rules: Rules,
    players: Sequence[str],
    tie_resolution_ms: int = TIE_RESOLUTION_MS_DEFAULT,
    *,
    cleared: bool = False,
    returned: Sequence[str] = (),
) -> InstanceChange:
    """Return the current rows of distinct players."""
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
    """Return a change that keeps only the first `exact_top` players in the sorted set, with `in_top` set.

    It gains the rows of players who move up into the top because others left it; pages of a whole instance
    (`is_whole`) need none.
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
    """Iterate over an instance in standing order, a page at a time; the store must not change meanwhile."""
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


def captured_places(store: ColumnSource, key: InstanceKey) -> dict[str, int]:
    """Return all captured places of an instance, by player."""
    captured: dict[str, int] = {}
    after: tuple[Kept, str] | None = None
    while entries := store.following(key, after, READ_ENTRIES_MAX).entries:
        players = [entry.player for entry in entries]
        for first in range(0, len(players), READ_PLAYERS_MAX):
            some = players[first : first + READ_PLAYERS_MAX]
            places = store.captured_many(key, some)
            captured.update((player, place) for player, place in zip(some, places, strict=True) if place >= 0)
        after = Kept(entries[-1].score, entries[-1].tie), entries[-1].player
    return captured

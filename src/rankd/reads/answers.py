"""The answers of reads. Each one names its instance, the number of entries there and how fresh it is."""

from __future__ import annotations

import msgspec


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One player on a page."""

    rank: int
    player: str
    score: int
    reached_at: int | None
    tiebreak: int | None = None
    name: str | None = None
    avatar_url: str | None = None
    country: str | None = None
    metadata: dict[str, object] | None = None
    rank_min: int | None = None  # of an estimated rank: the bounds of the true one
    rank_max: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """The fields of every answer; the only ones that are given by position."""

    board: str
    window: str  # the instance, such as weekly:2026-W18
    scope: str
    total: int
    position: str
    as_of: int
    stale: bool = False
    exact: bool = True  # every place is exact, and no entry is left out for having no exact place
    source: str | msgspec.UnsetType = msgspec.UNSET  # "archive": the window has left the ranks


class Page(Answer, frozen=True, kw_only=True):
    """Entries in standing order; `next` is the cursor of the page after this one, None at the end.

    Every entry has an exact place. A page that is not `exact` ends where exact places do, though more entries follow.
    """

    entries: list[Entry]
    next: str | None = None


class Standing(Answer, frozen=True, kw_only=True):
    """A player's standing; of an estimate (`exact` is false), with the bounds of the true rank."""

    rank: int
    rank_min: int | msgspec.UnsetType = msgspec.UNSET
    rank_max: int | msgspec.UnsetType = msgspec.UNSET
    player: str
    score: int
    reached_at: int | None
    percentile: float
    top_percent: float
    rank_change: int | None
    tiebreak: int | None = None
    name: str | None = None
    avatar_url: str | None = None
    country: str | None = None
    metadata: dict[str, object] | None = None


class Around(Answer, frozen=True, kw_only=True):
    """A player with the neighbours above and below; without neighbours where the player's place is an estimate."""

    above: list[Entry]
    player: Entry
    below: list[Entry]


class Ranks(Answer, frozen=True, kw_only=True):
    """The standings of several players, in the order of the request, and the players without one."""

    entries: list[Entry]
    missing: list[str]


class Friend(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a friends' board: the exact rank within the group, and the global one."""

    rank: int
    player: str
    score: int
    reached_at: int | None
    global_rank: int
    tiebreak: int | None = None
    name: str | None = None
    avatar_url: str | None = None
    country: str | None = None
    metadata: dict[str, object] | None = None
    global_rank_min: int | None = None  # of an estimated global rank: the bounds of the true one
    global_rank_max: int | None = None


class Friends(Answer, frozen=True, kw_only=True):
    """A group in standing order."""

    entries: list[Friend]


class Place(Answer, frozen=True, kw_only=True):
    """The rank that a score would have; of an estimate (`exact` is false), with the bounds of the true rank."""

    rank: int
    rank_min: int | msgspec.UnsetType = msgspec.UNSET
    rank_max: int | msgspec.UnsetType = msgspec.UNSET


class Bucket(msgspec.Struct, frozen=True, rename={"low": "from", "high": "to"}):
    """How many players have a score from `low` to `high`, both inclusive."""

    low: int
    high: int
    count: int


class Distribution(Answer, frozen=True, kw_only=True):
    """A histogram of the scores over equal ranges, and their quantiles."""

    buckets: list[Bucket]
    quantiles: dict[str, int]

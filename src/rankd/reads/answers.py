"""What reads answer with. Every answer says which instance it is about, how many stand there and how fresh it is."""

from __future__ import annotations

import msgspec


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a page."""

    rank: int
    player: str
    score: int
    reached_at: int | None
    tiebreak: int | None = None
    name: str | None = None
    avatar_url: str | None = None
    country: str | None = None
    metadata: dict[str, object] | None = None
    rank_min: int | None = None  # of a rank that is an estimate: between which places the true one is
    rank_max: int | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer says of itself."""

    board: str
    window: str  # the instance meant, such as weekly:2026-W18
    scope: str
    total: int
    position: str
    as_of: int
    stale: bool = False
    exact: bool = True  # whether every place is exact, and nobody is left out for not having such a place


class Page(Answer, frozen=True, kw_only=True):
    """Entries in standing order; `next` is the cursor of the page after this one, None at the end.

    Every entry has an exact place. A page that is not `exact` ends, though others stand behind, where exact places do.
    """

    entries: list[Entry]
    next: str | None = None


class Standing(Answer, frozen=True, kw_only=True):
    """Where one player stands; an estimate (`exact` is false) says between which places."""

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
    """A player with those just above and just below; without them where the player's place is an estimate."""

    above: list[Entry]
    player: Entry
    below: list[Entry]


class Ranks(Answer, frozen=True, kw_only=True):
    """Where several players stand, in the order they were asked for, and those who do not."""

    entries: list[Entry]
    missing: list[str]


class Friend(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a friends' board: the rank within the group, which is exact, and the one among all."""

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
    global_rank_min: int | None = None  # of a global rank that is an estimate: between which places the true one is
    global_rank_max: int | None = None


class Friends(Answer, frozen=True, kw_only=True):
    """A group in standing order."""

    entries: list[Friend]


class Place(Answer, frozen=True, kw_only=True):
    """Where a score would stand; an estimate (`exact` is false) says between which places."""

    rank: int
    rank_min: int | msgspec.UnsetType = msgspec.UNSET
    rank_max: int | msgspec.UnsetType = msgspec.UNSET


class Bucket(msgspec.Struct, frozen=True, rename={"low": "from", "high": "to"}):
    """How many players have a score from `low` to `high`, both included."""

    low: int
    high: int
    count: int


class Distribution(Answer, frozen=True, kw_only=True):
    """How the scores are spread: equal ranges, and the scores that parts of the players do not exceed."""

    buckets: list[Bucket]
    quantiles: dict[str, int]

"""Decodes entries from Redis, and encodes marks, which name a place in the standing order.

members and numbers of a sorted set → EntryLine (in standing order) → RankedEntry
a score, a tie field and a player   → mark → two arguments of a function
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from rankd.domain.order import TIE_FIELD_MAX, Order, Ranking, Ties
from rankd.errors import RankingUnavailable
from rankd.projection.port import RankedEntry
from rankd.redis.forms import LOW_BITS, PREFIX_BYTES, TIE_FIELD_BITS, Form

_LOW_MASK = (1 << LOW_BITS) - 1
_PREFIX = Struct(">Q")
_MARK = Struct(">BqHq")  # kind, high bits and low bits of the score, tie field


class EntryLine(NamedTuple):
    """One entry; tuple order is standing order."""

    key: int  # domain.order.score_key
    tie_key: int
    player_bytes: bytes
    score: int
    tie: int

    @property
    def player(self) -> str:
        """The player's id."""
        return self.player_bytes.decode()


class MarkKind(IntEnum):
    """The place a mark names; functions/read.lua has the same numbers."""

    FIRST = 1  # before all players with this score
    LAST = 2  # behind all players with this score
    TIE = 3  # behind all players with this score and tie field
    AT = 4  # just before this score, tie field and player
    BEHIND = 5  # just behind this score, tie field and player
    STEP = 6  # before all players, in or below the exact top, in the step of this score
    STEP_END = 7  # behind all players in that step


def mark(kind: MarkKind, score: int, tie: int = 0, player: bytes = b"") -> tuple[bytes, bytes]:
    """Return a mark as two arguments, independent of the instance's form and order."""
    return _MARK.pack(kind, score >> LOW_BITS, score & _LOW_MASK, tie), player


def lines_of(form: Form, members: Sequence[bytes], numbers: Sequence[bytes]) -> list[EntryLine]:
    """Decode entries; in the prefixed form a member begins with its prefix."""
    # One loop per form: this runs for every entry of every page.
    lines = []
    desc, ties = form.order is Order.DESC, form.ties
    later_first = ties in (Ties.LATEST, Ties.VALUE)
    if form.is_packed:
        bits, lowest = form.tie_bits, form.lowest_key
        most = (1 << bits) - 1
        for member, number in zip(members, map(int, numbers), strict=True):
            key = (number >> bits) + lowest
            tie = number & most
            if later_first:
                tie = most - tie
            lines.append(
                EntryLine(key, TIE_FIELD_MAX - tie if later_first else tie, member, ~key if desc else key, tie)
            )
        return lines
    for member, number in zip(members, map(int, numbers), strict=True):
        (low,) = _PREFIX.unpack_from(member)
        key, order = number << LOW_BITS | low >> TIE_FIELD_BITS, low & TIE_FIELD_MAX
        tie = TIE_FIELD_MAX - order if later_first else order
        lines.append(EntryLine(key, order, member[PREFIX_BYTES:], ~key if desc else key, tie))
    return lines


def entries_of(
    lines: Sequence[EntryLine], ranking: Ranking, index: int, better: int, distinct: int
) -> list[RankedEntry]:
    """Return consecutive lines with their places.

    Before the first line stand `index` players; `better` players and `distinct` scores are better.
    """
    if ranking is Ranking.ORDINAL:
        return [
            RankedEntry(place, player.decode(), score, tie)
            for place, (_, _, player, score, tie) in enumerate(lines, start=index + 1)
        ]
    entries = []
    previous: int | None = None
    is_dense = ranking is Ranking.DENSE
    rank = 1 + (distinct if is_dense else better)
    for place, (_, _, player, score, tie) in enumerate(lines, start=index + 1):
        if previous is not None and score != previous:
            rank = rank + 1 if is_dense else place
        previous = score
        entries.append(RankedEntry(rank, player.decode(), score, tie))
    return entries


def known_distinct(count: int | None, instance: str) -> int:
    """Refuse a dense place where Redis does not keep distinct scores."""
    if count is None:
        raise RankingUnavailable(
            f"{instance}: dense places are kept in Redis only for unsharded boards whose own ranking is dense; "
            "ask for ordinal or competition"
        )
    return count
